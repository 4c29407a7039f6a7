import errno
import json
import os
import sys
from typing import ClassVar

import pytest
from fake_sysfs import DGX_H100_GPUS, add_gpu, dgx_h100, write

from commbench.world import topology
from commbench.world.inventory import infiniband, node_inventory
from commbench.world.nvml import gpu_inventory, gpus, kernel_log

GIB = 2**30
NO_LIMIT = 9223372036854771712  # of memory, as cgroup v1 writes it


@pytest.fixture
def procfs(tmp_path):
    proc = tmp_path / "proc"
    write(proc / "cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480CL\nphysical id\t: 0\n")
    write(
        proc / "meminfo",
        "MemTotal:       2113402596 kB\nMemFree:   12 kB\nMemAvailable:   2000000000 kB\nHugePages_Total:   0\n",
    )
    write(proc / "self/cgroup", "0::/")
    return proc


def test_a_dgx_h100(tmp_path, procfs):
    sysfs = dgx_h100(tmp_path / "sys")
    write(sysfs / "class/infiniband/mlx5_10/ports/1/counters/symbol_error", 12)
    write(sysfs / "class/infiniband/mlx5_10/ports/1/hw_counters/out_of_sequence", 3)
    node = node_inventory(sysfs, procfs)
    assert (node["host"], node["kernel"]) == (os.uname().nodename, os.uname().release)
    assert (node["cpu"], node["sockets"]) == ("Intel(R) Xeon(R) Platinum 8480CL", 2)
    assert node["cores"] == len(os.sched_getaffinity(0))
    assert node["numa"] == {"0": "0-3", "1": "4-7"}
    assert node["memory_total_bytes"] == 2113402596 * 1024 and node["memory_available_bytes"] == 2000000000 * 1024
    assert (node["cpu_quota"], node["memory_limit_bytes"]) == (None, None)
    assert [hca["name"] for hca in node["infiniband"]] == [f"mlx5_{i}" for i in range(12)]
    assert node["infiniband"][10] == {
        "name": "mlx5_10", "fw_ver": "28.39.1002", "hca_type": "MT4129", "board_id": "MT_0000000838",
        "netdevs": ["ibp206s0"], "pci": "0000:ce:00.0", "numa": 1,
        "pcie": {"speed": "32.0 GT/s PCIe", "speed_max": "32.0 GT/s PCIe", "width": 16, "width_max": 16},
        "ports": [{
            "port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate": "400 Gb/sec (4X NDR)", "rate_Gbps": 400.0,
            "link_layer": "InfiniBand", "errors": {"symbol_error": 12, "out_of_sequence": 3},
        }],
    }  # fmt: skip
    names = [net["name"] for net in node["net"]]
    assert len(names) == 13 and "lo" not in names and "docker0" not in names
    onboard = next(net for net in node["net"] if net["name"] == "eno3")
    assert (onboard["speed_Mbps"], onboard["driver"], onboard["mtu"], onboard["pci"]) == (
        10000,
        "ixgbe",
        4092,
        "0000:05:00.0",
    )
    assert json.loads(json.dumps(node, allow_nan=False)) == node


def test_what_is_wrong_with_a_card_is_told(tmp_path):
    sysfs = dgx_h100(tmp_path)
    port = sysfs / "class/infiniband/mlx5_3/ports/1"
    write(port / "state", "1: DOWN")
    write(port / "phys_state", "3: Disabled")
    write(port / "rate", "10 Gb/sec (4X SDR)")
    write(sysfs / "class/infiniband/mlx5_3/device/current_link_width", 8)
    write(sysfs / "class/infiniband/mlx5_3/device/current_link_speed", "16.0 GT/s PCIe")
    write(sysfs / "class/infiniband/mlx5_3/fw_ver", "28.36.1010")
    card = infiniband(sysfs)[3]
    assert (card["ports"][0]["state"], card["ports"][0]["phys_state"], card["ports"][0]["rate_Gbps"]) == (
        "DOWN",
        "Disabled",
        10,
    )
    assert (card["pcie"]["width"], card["pcie"]["width_max"], card["pcie"]["speed"]) == (8, 16, "16.0 GT/s PCIe")
    assert card["fw_ver"] == "28.36.1010"


def test_garbage_and_missing_files_are_none(tmp_path):
    sysfs = dgx_h100(tmp_path)
    hca = sysfs / "class/infiniband/mlx5_0"
    write(hca / "ports/1/rate", b"\xff\xfe\x00 Gb/sec")
    write(hca / "ports/1/state", "")
    (hca / "ports/1/phys_state").unlink()
    (hca / "ports/x").mkdir()
    (hca / "fw_ver").unlink()
    (hca / "fw_ver").mkdir()
    write(hca / "device/current_link_width", "Unknown")
    write(hca / "device/numa_node", "-1")
    card = infiniband(sysfs)[0]
    assert (card["fw_ver"], card["numa"], card["pcie"]["width"]) == (None, None, None)
    [port] = card["ports"]
    assert (port["rate_Gbps"], port["state"], port["phys_state"]) == (None, None, None)
    json.dumps(card).encode()


def test_a_file_that_refuses_leaves_the_rest(tmp_path, procfs, monkeypatch):
    sysfs = dgx_h100(tmp_path / "sys")

    def selective(path, *mode):
        if path.name in ("speed", "fw_ver"):  # a link that is down answers `speed` with EINVAL
            raise OSError(errno.EINVAL if path.name == "speed" else errno.EACCES, "refused")
        return open(path, *mode)

    monkeypatch.setattr(topology, "open", selective, raising=False)
    node = node_inventory(sysfs, procfs)
    assert {net["speed_Mbps"] for net in node["net"]} == {None} and {net["operstate"] for net in node["net"]} == {"up"}
    assert {hca["fw_ver"] for hca in node["infiniband"]} == {None} and node["infiniband"][0]["hca_type"] == "MT4129"


def test_a_machine_that_tells_nothing(tmp_path):
    node = node_inventory(tmp_path / "sys", tmp_path / "proc")
    assert node["cores"] >= 1 and (node["infiniband"], node["net"], node["numa"]) == ([], [], {})
    assert {node[key] for key in ("cpu", "sockets", "cpu_quota", "memory_total_bytes", "memory_limit_bytes")} == {None}


def test_an_arm_processor_has_numbers_for_a_name(tmp_path):
    write(tmp_path / "cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n")
    assert node_inventory(tmp_path, tmp_path)["cpu"] == "CPU implementer 0x41, CPU part 0xd4f"


@pytest.mark.parametrize(
    "cgroup, files, quota, limit",
    [
        (
            "0::/a/b",
            {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000",
             "a/memory.max": 8 * GIB, "a/b/memory.max": "max"},
            1.5, 8 * GIB,
        ),
        (
            "0::/a/b",
            {"a/cpu.max": "800000 100000", "a/b/cpu.max": "200000 100000",
             "a/memory.max": 4 * GIB, "a/b/memory.max": 2 * GIB},
            2, 2 * GIB,
        ),
        ("0::/../../host/path", {"cpu.max": "100000 50000", "memory.max": GIB}, 2, GIB),
        (
            "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/",
            {"cpu/job/cpu.cfs_quota_us": 400000, "cpu/job/cpu.cfs_period_us": 100000, "cpu/cpu.cfs_quota_us": -1,
             "memory/job/memory.limit_in_bytes": 3 * GIB, "memory/memory.limit_in_bytes": NO_LIMIT},
            4, 3 * GIB,
        ),
        ("5:cpu:/\n4:memory:/", {"cpu/cpu.cfs_quota_us": -1, "memory/memory.limit_in_bytes": NO_LIMIT}, None, None),
        ("garbage\n::\n0::/a", {"a/cpu.max": "max", "cpu.max": "lots 5", "a/memory.max": b"\xff"}, None, None),
        ("", {}, None, None),
    ],
)  # fmt: skip
def test_the_limits_of_a_container(tmp_path, cgroup, files, quota, limit):
    write(tmp_path / "proc/self/cgroup", cgroup)
    for name, text in files.items():
        write(tmp_path / "sys/fs/cgroup" / name, text)
    node = node_inventory(tmp_path / "sys", tmp_path / "proc")
    assert (node["cpu_quota"], node["memory_limit_bytes"]) == (quota, limit)


class FakeNvml:
    """The module pynvml on two H100s; the queries in `broken` raise that error."""

    class NVMLError(Exception):
        pass

    ANSWERS: ClassVar = {
        "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 2, "nvmlDeviceGetHandleByIndex": object(),
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3", "nvmlDeviceGetUUID": "GPU-9c6d",
        "nvmlSystemGetDriverVersion": "550.54.15",
        "nvmlDeviceGetPciInfo": type("Info", (), {"busId": b"00000000:1B:00.0"}),
        "nvmlDeviceGetMemoryInfo": type("Memory", (), {"total": 85520809984}),
        "nvmlDeviceGetCurrPcieLinkGeneration": 4, "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 8, "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetClockInfo": {1: 1410, 2: 2619}, "nvmlDeviceGetMaxClockInfo": {1: 1980, 2: 2619},
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40 | 0x800, "nvmlDeviceGetTotalEccErrors": {0: 3, 1: 0},
        "nvmlDeviceGetNvLinkState": 1, "nvmlDeviceGetNvLinkVersion": 6,
        "nvmlDeviceGetNvLinkErrorCounter": {0: 2, 1: 0, 2: 1, 3: 0},
        "nvmlDeviceGetNvLinkRemotePciInfo": (b"00000000:05:00.0", b"00000000:06:00.0"),  # two switches
    }  # fmt: skip

    def __init__(self, broken=None, absent=()):
        self.broken, self.absent, self.calls = broken or {}, absent, []

    def __getattr__(self, name):
        if name in self.absent or name not in self.ANSWERS:
            raise AttributeError(name)

        def query(*arguments):
            self.calls.append(name)
            if name in self.broken:
                raise self.NVMLError(self.broken[name])
            if name == "nvmlDeviceGetNvLinkState" and arguments[1] >= 18:
                raise self.NVMLError("Invalid Argument")
            if name == "nvmlDeviceGetNvLinkState" and arguments[1] == 7:
                return 0
            answer = self.ANSWERS[name]
            if name == "nvmlDeviceGetNvLinkErrorCounter":
                return answer[arguments[2]]
            if name == "nvmlDeviceGetNvLinkRemotePciInfo":
                return type("Info", (), {"busId": answer[arguments[1] % 2]})
            return answer[arguments[1]] if isinstance(answer, dict) else answer

        return query


LOG = (
    "<4>[ 12.3] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
    "<4>[ 13.0] NVRM: Xid (0000:1b:00): 31, x\n<4>[ 14.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=2\n"
    "<4>[ 15.0] NVRM: Xid (PCI:0000:43:00): 63, y\n<4>[ 16.0] NVRM: Xid (PCI:zz): 1\n"
)


def test_gpus_by_nvml(tmp_path):
    nvml = FakeNvml()
    found = gpu_inventory(nvml, tmp_path, LOG)
    assert [gpu["index"] for gpu in found] == [0, 1]
    assert found[0] == {
        "index": 0, "pci": "0000:1b:00.0", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-9c6d", "driver": "550.54.15",
        "memory_total_bytes": 85520809984,
        "pcie": {"generation": 4, "generation_max": 5, "width": 8, "width_max": 16},
        "clocks_MHz": {"sm": 1410, "sm_max": 1980, "memory": 2619, "memory_max": 2619},
        "throttle": ["software power cap", "hardware thermal slowdown", "bit 11"],
        "ecc": {"corrected": 3, "uncorrected": 0},
        "nvlink": {
            "links": 18, "active": 17, "version": 6, "peers": {"0000:05:00.0": 9, "0000:06:00.0": 8},
            "errors": {"replay": 36, "recovery": 0, "crc_flit": 18, "crc_data": 0},
        },
        "xids": {"79": 2, "31": 1},
    }  # fmt: skip
    assert nvml.calls[-1] == "nvmlShutdown"
    assert json.loads(json.dumps(found)) == found


_QUERIES = [
    name
    for name in FakeNvml.ANSWERS
    if name.startswith("nvmlDeviceGet") and name not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
]


@pytest.mark.parametrize("name", [*_QUERIES, "nvmlSystemGetDriverVersion"])
@pytest.mark.parametrize("nvml", [lambda n: FakeNvml({n: "Not Supported"}), lambda n: FakeNvml(absent=(n,))])
def test_one_query_that_is_not_supported_spoils_nothing_else(tmp_path, name, nvml):
    whole, partly = gpu_inventory(FakeNvml(), tmp_path, None)[0], gpu_inventory(nvml(name), tmp_path, None)[0]
    changed = [key for key in whole if whole[key] != partly[key]]
    assert len(changed) == 1 and "not supported" in json.dumps(partly[changed[0]])


def test_errors_of_nvml_are_told(tmp_path):
    lost = FakeNvml(dict.fromkeys(_QUERIES, "GPU is lost"))
    first = gpu_inventory(lost, tmp_path, "")[0]
    assert first["name"] == first["throttle"] == first["nvlink"] == first["pci"] == "not readable: GPU is lost"
    assert first["xids"] == {}
    gone = gpu_inventory(FakeNvml({"nvmlDeviceGetHandleByIndex": "GPU is lost"}), tmp_path, None)
    assert gone == [{"index": i, "not_read": "not readable: GPU is lost"} for i in range(2)]


def test_the_old_name_of_the_clock_reasons(tmp_path, monkeypatch):
    answers = FakeNvml.ANSWERS | {"nvmlDeviceGetCurrentClocksThrottleReasons": 0x80}
    monkeypatch.setattr(FakeNvml, "ANSWERS", answers)
    nvml = FakeNvml(absent=("nvmlDeviceGetCurrentClocksEventReasons",))
    assert gpu_inventory(nvml, tmp_path, None)[0]["throttle"] == ["hardware power brake"]


@pytest.mark.parametrize("name", ["nvmlInit", "nvmlDeviceGetCount"])
def test_without_nvml_the_bus_tells_which_gpus_there_are(tmp_path, name):
    found = gpu_inventory(FakeNvml({name: "Driver Not Loaded"}), dgx_h100(tmp_path), None)
    assert [gpu["pci"] for gpu in found] == DGX_H100_GPUS
    assert all("Driver Not Loaded" in gpu["not_read"] and gpu["pcie"]["width"] == 16 for gpu in found)


def test_without_pynvml(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    add_gpu(tmp_path, "pci0000:15/0000:15:01.0/0000:1b:00.0")
    write(add_gpu(tmp_path, "pci0000:25/0000:25:01.0/0000:2b:00.0") / "vendor", "0x1002")
    assert ["pip install nvidia-ml-py" in gpu["not_read"] for gpu in gpus(tmp_path)] == [True, False]
    assert gpus(tmp_path / "none") == []


def test_the_kernel_log_is_text_or_not_readable():
    log = kernel_log()
    assert log is None or "\0" not in log
    assert gpu_inventory(FakeNvml(), None, None)[0]["xids"] == "not readable"


def test_this_machine():
    node = node_inventory()
    assert node["memory_total_bytes"] >= node["memory_available_bytes"] > 0
    assert node["sockets"] is None or node["sockets"] >= 1
    json.dumps([node, gpus()], allow_nan=False)
