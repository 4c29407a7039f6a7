"""What a machine is made of, read from /sys and /proc: processors, memory, network cards.

What a file does not tell is None: one silent sensor must not keep a run from starting.
"""

import os
import re
from pathlib import Path

from commbench.world.topology import entries, numa_nodes, number, pci_device, read


def node_inventory(sysfs=Path("/sys"), procfs=Path("/proc")) -> dict:
    """Host, processors, memory and network cards of this node.

    `cores` counts the hardware threads this process may use, `cpu_quota` how many of them its cgroup pays for, and
    `memory_limit_bytes` is the cgroup's (v1 or v2); None where there is no limit. `numa` maps nodes to CPU lists.
    """
    sysfs, procfs = Path(sysfs), Path(procfs)
    packages = {read(cpu / "topology/physical_package_id") for cpu in entries(sysfs / "devices/system/cpu", r"cpu\d+")}
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", read(procfs / "meminfo") or "", re.MULTILINE))
    return {
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "cpu": _cpu_model(read(procfs / "cpuinfo") or ""),
        "sockets": len(packages - {None}) or None,
        "cores": len(os.sched_getaffinity(0)),
        "cpu_quota": _cpu_quota(_cgroups(sysfs, procfs, "cpu")),
        "numa": numa_nodes(sysfs),
        "memory_total_bytes": _kibibytes(memory.get("MemTotal")),
        "memory_available_bytes": _kibibytes(memory.get("MemAvailable")),
        "memory_limit_bytes": _memory_limit(_cgroups(sysfs, procfs, "memory")),
        "memory_left_bytes": _memory_left(_cgroups(sysfs, procfs, "memory")),
        "infiniband": infiniband(sysfs),
        "net": _net(sysfs),
    }


def infiniband(sysfs=Path("/sys")) -> list[dict]:
    """The RDMA devices in order of name: firmware, place, PCIe link now and at best, state of each port."""
    return [
        {
            "name": hca.name,
            "fw_ver": read(hca / "fw_ver"),
            "hca_type": read(hca / "hca_type"),
            "board_id": read(hca / "board_id"),
            "netdevs": [net.name for net in entries(hca / "device/net")],
            **place(hca / "device"),
            "ports": [_port(port) for port in entries(hca / "ports", r"\d+")],
        }
        for hca in entries(sysfs / "class/infiniband")
    ]


def _cpu_model(cpuinfo: str) -> str | None:
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.+)$", cpuinfo, re.MULTILINE))
    if "model name" in fields:
        return fields["model name"].strip()
    # Arm has no name there, only numbers: 0x41 and 0xd4f is Neoverse V2 (Grace).
    parts = [f"{name} {fields[name]}" for name in ("CPU implementer", "CPU part") if name in fields]
    return ", ".join(parts) or None


def _kibibytes(text: str | None) -> int | None:
    kib = number(text)
    return None if kib is None else kib * 1024


def _cgroups(sysfs: Path, procfs: Path, controller: str) -> list[Path]:
    """The folders of this process's cgroup and of all above it: each may hold a limit, and the lowest one binds."""
    folders = []
    for line in (read(procfs / "self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        root = sysfs / "fs/cgroup" / controller if controllers else sysfs / "fs/cgroup"
        # In a container the path may be the host's: then only the root, which is the container's, is there.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders += [root.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return folders


def _cpu_quota(folders: list[Path]) -> float | None:
    quotas = []
    for folder in folders:
        v1 = f"{read(folder / 'cpu.cfs_quota_us')} {read(folder / 'cpu.cfs_period_us')}"
        quota, period = map(number, ((read(folder / "cpu.max") or v1).split() + ["", ""])[:2])
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memory_limit(folders: list[Path]) -> int | None:
    limits = [number(read(folder / name)) for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return min(
        (limit for limit in limits if limit is not None and limit < 2**62), default=None
    )  # v1's "none" is near 2^63


def _memory_left(folders: list[Path]) -> int | None:
    """What the cgroups still allow; file cache that the kernel would give up counts as free."""
    left = []
    for folder in folders:
        limit = _memory_limit([folder])
        used = number(read(folder / "memory.current") or read(folder / "memory.usage_in_bytes"))
        cache = re.search(r"^(?:total_)?inactive_file (\d+)", read(folder / "memory.stat") or "", re.MULTILINE)
        if limit is not None and used is not None:
            left.append(limit - used + (int(cache[1]) if cache else 0))
    return min(left, default=None)


def place(device: Path) -> dict:
    """PCI address, NUMA node and PCIe link of the PCI device behind `device`."""
    pci = pci_device(device)
    if pci is None:
        return {"pci": None, "numa": None, "pcie": None}
    link = {
        "speed": read(pci / "current_link_speed"), "speed_max": read(pci / "max_link_speed"),
        "width": number(read(pci / "current_link_width")), "width_max": number(read(pci / "max_link_width")),
    }  # fmt: skip
    return {"pci": pci.name, "numa": number(read(pci / "numa_node")), "pcie": link}


def _port(port: Path) -> dict:
    rate = read(port / "rate")
    rate_Gbps = re.match(r"(\d+(?:\.\d+)?) Gb/sec", rate or "")
    return {
        "port": int(port.name),
        "state": _word(read(port / "state")),
        "phys_state": _word(read(port / "phys_state")),
        "rate": rate,
        "rate_Gbps": float(rate_Gbps[1]) if rate_Gbps else None,
        "link_layer": read(port / "link_layer"),
        "errors": _port_errors(port),
    }


# What rises when a cable or a port is bad (/sys/class/infiniband/*/ports/*/counters and hw_counters).
_ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards", "local_ack_timeout_err",
    "packet_seq_err", "out_of_sequence", "rnr_nak_retry_err",
)  # fmt: skip


def _port_errors(port: Path) -> dict[str, int]:
    counts = {name: number(read(port / "counters" / name) or read(port / "hw_counters" / name)) for name in _ERRORS}
    return {name: count for name, count in counts.items() if count is not None}


def _word(text: str | None) -> str | None:
    return text and text.rpartition(":")[2].strip()  # "4: ACTIVE"


def _net(sysfs: Path) -> list[dict]:
    """The network interfaces with a device behind them, so no loopback, bridge or bond."""
    return [
        {
            "name": net.name,
            "speed_Mbps": number(read(net / "speed")),
            "operstate": read(net / "operstate"),
            "mtu": number(read(net / "mtu")),
            "driver": os.path.basename(os.path.realpath(net / "device/driver"))
            if (net / "device/driver").exists()
            else None,
            **place(net / "device"),
        }
        for net in entries(sysfs / "class/net")
        if (net / "device").exists()
    ]
