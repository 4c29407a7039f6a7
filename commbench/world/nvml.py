"""The GPUs of a node as NVML tells of them. Unverified until a GPU has run it; nothing here initialises CUDA.

What NVML does not tell is a phrase that says so: one silent sensor must not keep a run from starting.
"""

import ctypes
import re
from pathlib import Path

from commbench.world.inventory import place
from commbench.world.topology import gpu_addresses, pci_address, read

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")

# Bits of nvmlDeviceGetCurrentClocksEventReasons, in the order of nvml.h.
_CLOCK_REASONS = (
    "GPU idle", "application clocks setting", "software power cap", "hardware slowdown", "sync boost",
    "software thermal slowdown", "hardware thermal slowdown", "hardware power brake", "display clock setting",
)  # fmt: skip
_LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")  # as nvmlNvLinkErrorCounter_t numbers them
_SM, _MEMORY, _CORRECTED, _UNCORRECTED, _VOLATILE, _MAX_LINKS = 1, 2, 0, 1, 0, 36  # as nvml.h numbers them


def gpus(sysfs=Path("/sys")) -> list[dict]:
    """The GPUs of this node by NVML; where NVML cannot be asked, those on the PCI bus with the reason in `not_read`."""
    try:
        import pynvml
    except ImportError:
        return _unread(sysfs, "nvidia-ml-py is not installed; add it with: pip install nvidia-ml-py")
    return gpu_inventory(pynvml, sysfs, kernel_log())


def gpu_inventory(nvml, sysfs, log: str | None) -> list[dict]:
    """What `nvml` (the module pynvml) tells of each GPU; a query that fails leaves "not supported" or the error there.

    `nvlink.version` is NVML's own count (6 is NVLink 4.0), `nvlink.peers` how many active links lead to which PCI
    address (another GPU's, or a switch's), `ecc` holds the volatile counts, `throttle` what holds the clocks down now,
    `xids` how often `log`, the kernel's log, has each XID ("not readable" without a log).
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


def _unread(sysfs, reason: str) -> list[dict]:
    devices = [Path(sysfs) / "bus/pci/devices" / pci for pci in gpu_addresses(sysfs)]
    nvidia = {device: read(device / "vendor") == "0x10de" for device in devices}
    return [{**place(d), "not_read": reason if nvidia[d] else "NVML knows GPUs of NVIDIA only"} for d in devices]


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
    bus_id = _bus_id(ask("nvmlDeviceGetPciInfo", gpu))
    pci = pci_address(bus_id) or bus_id
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
    errors = {name: _of_links(ask, gpu, links, number) for number, name in enumerate(_LINK_ERRORS)}
    active = [link for link in links if states[link]]
    peers = _peers(ask, gpu, active)
    return {"links": len(links), "active": len(active), "version": version, "peers": peers, "errors": errors}


def _peers(ask, gpu, links: list[int]) -> dict[str, int] | str:
    """{PCI address at the other end: links}; the first answer that is no address in its place."""
    counts: dict[str, int] = {}
    for link in links:
        bus_id = _bus_id(ask("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link))
        pci = pci_address(bus_id)
        if pci is None:
            return bus_id
        counts[pci] = counts.get(pci, 0) + 1
    return counts


def _bus_id(info) -> str:
    """The address in an nvmlPciInfo_t, or the phrase that stands in its place."""
    bus_id = getattr(info, "busId", info)
    return bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else str(bus_id)


def _of_links(ask, gpu, links: list[int], number: int) -> int | str:
    """An error counter, added up over the links; the first answer that is no number in its place."""
    counts = [ask("nvmlDeviceGetNvLinkErrorCounter", gpu, link, number) for link in links]
    return next((count for count in counts if isinstance(count, str)), None) or sum(counts)


def _xids(log: str, pci: str) -> dict[str, int]:
    counts = {}
    for address, xid in _XID.findall(log):
        if pci_address(address) == pci:
            counts[xid] = counts.get(xid, 0) + 1
    return counts
