"""What a machine is made of, read from /sys, /proc and NVML: processors, memory, network cards, GPUs.

Nothing here initialises CUDA. What a file does not tell is None, what NVML does not tell is a phrase that says so:
one silent sensor must not keep a run from starting.
"""

import ctypes
import os
import re
from pathlib import Path

from commbench.world.topology import entries, gpu_addresses, numa_nodes, number, pci_address, pci_device, read

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")

# Bits of nvmlDeviceGetCurrentClocksEventReasons, in the order of nvml.h.
_CLOCK_REASONS = (
    "GPU idle", "application clocks setting", "software power cap", "hardware slowdown", "sync boost",
    "software thermal slowdown", "hardware thermal slowdown", "hardware power brake", "display clock setting",
)  # fmt: skip
_SM, _MEMORY, _CORRECTED, _UNCORRECTED, _VOLATILE, _MAX_LINKS = 1, 2, 0, 1, 0, 36  # as nvml.h numbers them


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
            **_place(hca / "device"),
            "ports": [_port(port) for port in entries(hca / "ports", r"\d+")],
        }
        for hca in entries(sysfs / "class/infiniband")
    ]


def gpus(sysfs=Path("/sys")) -> list[dict]:
    """The GPUs of this node by NVML; where NVML cannot be asked, those on the PCI bus with the reason in `not_read`."""
    try:
        import pynvml
    except ImportError:
        return _unread(sysfs, "nvidia-ml-py is not installed; add it with: pip install nvidia-ml-py")
    return gpu_inventory(pynvml, sysfs, kernel_log())


def gpu_inventory(nvml, sysfs, log: str | None) -> list[dict]:
    """What `nvml` (the module pynvml) tells of each GPU; a query that fails leaves "not supported" or the error there.

    `nvlink.version` is NVML's own count (6 is NVLink 4.0), `ecc` holds the volatile counts, `throttle` what holds the
    clocks down now, `xids` how often `log`, the kernel's log, has each XID ("not readable" without a log).
    Unverified until a GPU has run it.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return _unread(sysfs, f"NVML did not start: {error}")
    ask = _asker(nvml)
    try:
        count = ask("nvmlDeviceGetCount")
        if not isinstance(count, int):
            return _unread(sysfs, f"NVML does not count the GPUs: {count}")
        return [_gpu(ask, index, log) for index in range(count)]
    finally:
        ask("nvmlShutdown")


def kernel_log() -> str | None:
    """The kernel's messages as `dmesg` gets them; None where users may not read them (kernel.dmesg_restrict = 1)."""
    klogctl, read_all, buffer_size = ctypes.CDLL(None).klogctl, 3, 10  # syslog(2); starts no process
    size = klogctl(buffer_size, None, 0)
    if size <= 0:
        return None
    buffer = ctypes.create_string_buffer(size)
    length = klogctl(read_all, buffer, size)
    return buffer.raw[:length].decode(errors="replace") if length >= 0 else None


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


def _place(device: Path) -> dict:
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
    }


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
            **_place(net / "device"),
        }
        for net in entries(sysfs / "class/net")
        if (net / "device").exists()
    ]


def _unread(sysfs, reason: str) -> list[dict]:
    devices = [Path(sysfs) / "bus/pci/devices" / pci for pci in gpu_addresses(sysfs)]
    nvidia = {device: read(device / "vendor") == "0x10de" for device in devices}
    return [{**_place(d), "not_read": reason if nvidia[d] else "NVML knows GPUs of NVIDIA only"} for d in devices]


def _asker(nvml):
    """A function that asks NVML by name and returns the answer, or a phrase in its place; it raises nothing."""

    def ask(name: str, *arguments):
        try:
            answer = getattr(nvml, name)(*arguments)
        except AttributeError:  # this pynvml is older than the query
            return "not supported"
        except nvml.NVMLError as error:
            missing = str(error).lower() in ("not supported", "function not found")
            return "not supported" if missing else f"not readable: {error}"
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    return ask


def _gpu(ask, index: int, log: str | None) -> dict:
    gpu = ask("nvmlDeviceGetHandleByIndex", index)
    if isinstance(gpu, str):
        return {"index": index, "not_read": gpu}
    bus = ask("nvmlDeviceGetPciInfo", gpu)
    bus_id = getattr(bus, "busId", bus)
    pci = pci_address(bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else bus_id) or bus_id
    memory = ask("nvmlDeviceGetMemoryInfo", gpu)
    return {
        "index": index,
        "pci": pci,
        "name": ask("nvmlDeviceGetName", gpu),
        "uuid": ask("nvmlDeviceGetUUID", gpu),
        "driver": ask("nvmlSystemGetDriverVersion"),
        "memory_total_bytes": getattr(memory, "total", memory),
        "pcie": {
            "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
            "generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
            "width": ask("nvmlDeviceGetCurrPcieLinkWidth", gpu),
            "width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", gpu),
        },
        "clocks_MHz": {
            "sm": ask("nvmlDeviceGetClockInfo", gpu, _SM),
            "sm_max": ask("nvmlDeviceGetMaxClockInfo", gpu, _SM),
            "memory": ask("nvmlDeviceGetClockInfo", gpu, _MEMORY),
            "memory_max": ask("nvmlDeviceGetMaxClockInfo", gpu, _MEMORY),
        },
        "throttle": _throttle(ask, gpu),
        "ecc": {
            "corrected": ask("nvmlDeviceGetTotalEccErrors", gpu, _CORRECTED, _VOLATILE),
            "uncorrected": ask("nvmlDeviceGetTotalEccErrors", gpu, _UNCORRECTED, _VOLATILE),
        },
        "nvlink": _nvlink(ask, gpu),
        "xids": "not readable" if log is None else _xids(log, pci),
    }


def _throttle(ask, gpu) -> list[str] | str:
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if reasons == "not supported":
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)  # its name before driver 535
    if isinstance(reasons, str):
        return reasons
    bits = [bit for bit in range(64) if reasons >> bit & 1]
    return [_CLOCK_REASONS[bit] if bit < len(_CLOCK_REASONS) else f"bit {bit}" for bit in bits]


def _nvlink(ask, gpu) -> dict | str:
    states = [ask("nvmlDeviceGetNvLinkState", gpu, link) for link in range(_MAX_LINKS)]
    links = [link for link, state in enumerate(states) if not isinstance(state, str)]
    if not links:
        return states[0]
    version = ask("nvmlDeviceGetNvLinkVersion", gpu, links[0])
    return {"links": len(links), "active": sum(states[link] for link in links), "version": version}


def _xids(log: str, pci: str) -> dict[str, int]:
    counts = {}
    for address, xid in _XID.findall(log):
        if pci_address(address) == pci:
            counts[xid] = counts.get(xid, 0) + 1
    return counts
