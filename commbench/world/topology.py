"""Where a rank sits in its machine: NUMA node, PCIe switch, and the network card nearest to its GPU (its rail).

The PCI bus is a tree, and /sys/devices shows it as folders: host bridge (pci0000:15), root port, upstream and
downstream port of each switch, device. The longer the common path of two devices, the nearer they are.
"""

import os
import re
from pathlib import Path

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2})(?:\.([0-7]))?")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_GPU_VENDORS = ("0x10de", "0x1002")  # NVIDIA, AMD
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, other display, accelerator


def rank_place(local_rank: int, device: str = "cpu", sysfs=Path("/sys"), identify=None) -> dict:
    """What places a rank: host, pid, local_rank, device ("cpu" or "cuda:3"), device_id, device_name, numa, switch,
    rail, nic, nic_path, pci_path. What is not known is None.

    device_id is the GPU's PCI address, or its UUID where torch does not tell the address; switch is the PCI address of
    the switch the GPU hangs on; rail, nic and nic_path are as in `rails`; pci_path is the way from the host bridge down
    to the GPU, "pci0000:15/0000:15:01.0/0000:16:00.0", from which `relation` tells how far two are apart. A rank on
    processors has a numa only if all cores it may use lie in one. `identify` is cuda_identity unless given; it is asked
    only for a GPU.
    """
    place = {"host": os.uname().nodename, "pid": os.getpid(), "local_rank": local_rank, "device": device}
    if device == "cpu":
        unknown = dict.fromkeys(("device_id", "device_name", "switch", "rail", "nic", "nic_path", "pci_path"))
        return {**place, **unknown, "numa": _numa_of_affinity(sysfs)}
    pci, uuid, name = (identify or cuda_identity)(int(device.partition(":")[2]))
    nearest = rails(_hcas(sysfs), sysfs).get(pci, {})
    return {
        **place,
        "device_id": pci or uuid,
        "device_name": name,
        "numa": number(read(Path(sysfs) / "bus/pci/devices" / pci / "numa_node")) if pci else None,
        "switch": pci_switch(pci, sysfs) if pci else None,
        "rail": nearest.get("rail"),
        "nic": nearest.get("nic"),
        "nic_path": nearest.get("path"),
        "pci_path": "/".join(pci_path(pci, sysfs)) or None if pci else None,
    }


def cuda_identity(index: int, procfs=Path("/proc")) -> tuple[str | None, str | None, str]:
    """(PCI address, UUID, name) of the GPU that torch calls `index`, which counts the visible ones only.

    Initialises CUDA: a rank calls it once its device is set. Only newer versions of torch tell the PCI address; else it
    is the folder of /proc/driver/nvidia/gpus that has the same UUID. Unverified until a GPU has run it.
    """
    import torch

    found = torch.cuda.get_device_properties(index)
    uuid = f"GPU-{found.uuid}" if hasattr(found, "uuid") else None
    if hasattr(found, "pci_bus_id"):
        pci = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    else:
        pci = _pci_of_uuid(uuid, procfs)
    return pci, uuid, found.name


def rails(nics: list[dict], sysfs=Path("/sys")) -> dict[str, dict]:
    """{PCI address of a GPU: rail, nic, path} for each GPU of the node that shares a host bridge with one of `nics`.

    `nics` are dicts with name and pci. `path` is nvidia-smi's word: PIX (one switch), PXB (several), PHB (host bridge).
    A GPU that reaches every card through the processor's own links (NODE, SYS) has no rail, for nothing tells which it
    will use. GPUs that are equally near to several cards share them out in bus order; NCCL may take all of them.
    Rails are numbered in the order of the GPUs, so storage cards get no number, and where a card is missing its
    number stays free and the others keep theirs.
    """
    gpus = gpu_addresses(sysfs)
    paths = {pci: pci_path(pci, sysfs) for pci in [*gpus, *(nic["pci"] for nic in nics if nic["pci"])]}
    nearest = {gpu: _nearest(paths[gpu], nics, paths) for gpu in gpus}
    chosen = {}
    for gpu in gpus:
        sharing = [other for other in gpus if nearest[other] == nearest[gpu]]
        if nearest[gpu]:
            chosen[gpu] = nearest[gpu][sharing.index(gpu) * len(nearest[gpu]) // len(sharing)]
    order = list(dict.fromkeys(chosen[gpu]["name"] if gpu in chosen else gpu for gpu in gpus))
    return {
        gpu: {"rail": order.index(nic["name"]), "nic": nic["name"], "path": relation(paths[gpu], paths[nic["pci"]])}
        for gpu, nic in chosen.items()
    }


def pci_path(pci: str, sysfs=Path("/sys")) -> tuple[str, ...]:
    """From the host bridge down to the device: ("pci0000:15", "0000:15:01.0", ..., pci); empty where there is none."""
    parts = Path(os.path.realpath(Path(sysfs) / "bus/pci/devices" / pci)).parts
    bridge = next((i for i, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), len(parts))
    return parts[bridge:]


def pci_switch(pci: str, sysfs=Path("/sys")) -> str | None:
    """The upstream port of the PCIe switch that the device hangs on; None where it hangs on a root port."""
    path = pci_path(pci, sysfs)  # ..., upstream port, downstream port, device
    return path[-3] if len(path) >= 5 else None


def gpu_addresses(sysfs=Path("/sys")) -> list[str]:
    """PCI addresses of the NVIDIA and AMD GPUs in the order of the bus, whether or not a driver has them."""
    devices = entries(Path(sysfs) / "bus/pci/devices")
    gpus = [device for device in devices if read(device / "vendor") in _GPU_VENDORS]
    return sorted(device.name for device in gpus if (read(device / "class") or "").startswith(_GPU_CLASSES))


def numa_nodes(sysfs=Path("/sys")) -> dict[str, str]:
    """{number: CPU list as the kernel writes it, such as "0-51,104-155"}; numbers are text, as JSON keys are."""
    nodes = entries(Path(sysfs) / "devices/system/node", r"node\d+")
    return {node.name[4:]: read(node / "cpulist") or "" for node in nodes}


def pci_address(text: str) -> str | None:
    """A PCI address as Linux writes it, "0000:1b:00.0", from NVML's "00000000:1B:00.0" or a log's "0000:1b:00"."""
    match = _PCI.fullmatch(text.strip().lower())
    return f"{int(match[1] or '0', 16):04x}:{match[2]}.{match[3] or 0}" if match else None


def pci_device(path: Path) -> Path | None:
    """The PCI device that the link `path` leads to or is below of; None for what is not on a PCI bus."""
    real = Path(os.path.realpath(path))
    return next((folder for folder in (real, *real.parents) if _PCI.fullmatch(folder.name)), None)


def read(path: Path) -> str | None:
    """The text of a small file without surrounding space; None where it is missing, empty or refuses to be read."""
    try:
        with open(path, "rb") as file:
            return file.read(2**20).decode(errors="replace").strip() or None
    except OSError:
        return None


def number(text: str | None) -> int | None:
    """A whole number from 0 up; None for anything else (the kernel writes -1 for unknown)."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,19}", text) else None


def entries(folder: Path, pattern: str = ".*") -> list[Path]:
    """What a folder holds under names of this pattern, mlx5_2 before mlx5_10; nothing where there is no such folder."""
    try:
        found = [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: [int(p) if i % 2 else p for i, p in enumerate(re.split(r"(\d+)", path.name))])


def _hcas(sysfs) -> list[dict]:
    found = [(hca.name, pci_device(hca / "device")) for hca in entries(Path(sysfs) / "class/infiniband")]
    return [{"name": name, "pci": pci and pci.name} for name, pci in found]


def _nearest(gpu: tuple[str, ...], nics: list[dict], paths: dict) -> list[dict]:
    """The cards with the longest common path, all of those that are equally near; none without a common host bridge."""
    common = [(_common(gpu, paths[nic["pci"]]), nic) for nic in nics if nic["pci"]]
    longest = max((length for length, _ in common), default=0)
    return [nic for length, nic in common if length == longest > 0]


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    return len(os.path.commonprefix([a, b]))


def relation(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    """nvidia-smi's word for the way between two devices whose `pci_path`s these are: PIX, PXB or PHB; None where they
    share no host bridge."""
    common = _common(a, b)
    if common <= 1:
        return "PHB" if common else None
    return "PIX" if max(len(a), len(b)) - common <= 2 else "PXB"  # below one switch: a downstream port and the device


def _numa_of_affinity(sysfs) -> int | None:
    mine = os.sched_getaffinity(0)
    touched = [
        node for node, cpus in numa_nodes(sysfs).items() if any(cpu in part for part in _ranges(cpus) for cpu in mine)
    ]
    return int(touched[0]) if len(touched) == 1 else None


def _ranges(cpus: str) -> list[range]:
    """The ranges in a CPU list, "0-51,104-155"."""
    return [range(int(first), int(last or first) + 1) for first, last in re.findall(r"(\d+)(?:-(\d+))?", cpus)]


def _pci_of_uuid(uuid: str | None, procfs) -> str | None:
    for folder in entries(Path(procfs) / "driver/nvidia/gpus"):
        if uuid and uuid in (read(folder / "information") or ""):
            return pci_address(folder.name)
    return None
