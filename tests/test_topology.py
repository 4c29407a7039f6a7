import os
from pathlib import Path

import pytest
from fake_sysfs import DGX_H100_GPUS, add_cpus, add_gpu, add_hca, dgx_h100, write

from commbench.world import topology
from commbench.world.inventory import infiniband
from commbench.world.topology import (
    entries,
    gpu_addresses,
    number,
    pci_address,
    pci_device,
    pci_path,
    pci_switch,
    rails,
    rank_place,
    read,
)


def _rails(sysfs):
    return {gpu: (found["rail"], found["nic"], found["path"]) for gpu, found in rails(infiniband(sysfs), sysfs).items()}


def test_dgx_h100_has_eight_rails_without_its_storage_cards(tmp_path):
    sysfs = dgx_h100(tmp_path)
    cards = ["mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"]
    assert gpu_addresses(sysfs) == DGX_H100_GPUS
    assert _rails(sysfs) == {gpu: (i, cards[i], "PIX") for i, gpu in enumerate(DGX_H100_GPUS)}


def test_lost_cards_leave_their_rails_free(tmp_path):
    sysfs = dgx_h100(tmp_path)
    for name in ("mlx5_4", "mlx5_9"):
        (sysfs / "class/infiniband" / name).unlink()
    found = _rails(sysfs)
    assert DGX_H100_GPUS[2] not in found and DGX_H100_GPUS[5] not in found
    assert [rail for rail, *_ in found.values()] == [0, 1, 3, 4, 6, 7]


def test_cards_with_two_functions_behind_two_levels_of_switches(tmp_path):
    """As the NCCL topology dump of an OCI H100 node has it: leaf switches for GPU and card below a common one."""
    for gpu, first in (("0f", "mlx5_0 mlx5_1"), ("2d", "mlx5_3 mlx5_4")):
        top = int(gpu, 16) - 7
        above = f"pci0000:{top - 2:02x}/0000:{top - 2:02x}:01.0/0000:{top:02x}:00.0"
        leaf = f"{above}/0000:{top + 1:02x}:00.0/0000:{top + 2:02x}:00.0/0000:{top + 3:02x}:00.0"
        for function, name in enumerate(first.split()):
            add_hca(tmp_path, f"{leaf}/0000:{top + 4:02x}:00.{function}", name)
        leaf = f"{above}/0000:{top + 1:02x}:01.0/0000:{top + 5:02x}:00.0/0000:{top + 6:02x}:00.0"
        add_gpu(tmp_path, f"{leaf}/0000:{gpu}:00.0")
    assert _rails(tmp_path) == {"0000:0f:00.0": (0, "mlx5_0", "PXB"), "0000:2d:00.0": (1, "mlx5_3", "PXB")}
    assert pci_switch("0000:0f:00.0", tmp_path) == "0000:0d:00.0"


def test_gpus_on_one_switch_share_out_its_cards(tmp_path):
    """As on an A800 board: two GPUs and two cards a switch, all PIX to each other."""
    for i, bus in enumerate((0x10, 0x30)):
        switch = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        for k in range(2):
            add_gpu(tmp_path, f"{switch}/0000:{bus + 2:02x}:0{k}.0/0000:{bus + 3 + k:02x}:00.0")
            add_hca(
                tmp_path, f"{switch}/0000:{bus + 2:02x}:0{k + 2}.0/0000:{bus + 8 + k:02x}:00.0", f"mlx5_{2 * i + k}"
            )
    assert list(_rails(tmp_path).values()) == [(i, f"mlx5_{i}", "PIX") for i in range(4)]


def test_only_the_gpu_at_the_cards_host_bridge_has_a_rail(tmp_path):
    """As on a board of 4090s: the card shares a host bridge (PHB) with one GPU, the others reach it through the CPU."""
    for bus in (0x20, 0x40):
        add_gpu(tmp_path, f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0")
    add_hca(tmp_path, "pci0000:40/0000:40:03.0/0000:45:00.0", "mlx5_0")
    assert list(_rails(tmp_path).items()) == [("0000:41:00.0", (1, "mlx5_0", "PHB"))]
    assert pci_switch("0000:41:00.0", tmp_path) is None


def test_a_virtual_machine_with_a_flat_bus_has_no_rails(tmp_path):
    for i in range(2):
        add_gpu(tmp_path, f"LNXSYSTM:00/pci000{i}:00/000{i}:00:00.0")
        add_hca(tmp_path, f"LNXSYSTM:00/pci010{i}:00/010{i}:00:02.0", f"mlx5_{i}")
    assert gpu_addresses(tmp_path) == ["0000:00:00.0", "0001:00:00.0"]
    assert _rails(tmp_path) == {}


def test_soft_rdma_devices_have_no_place_on_the_bus(tmp_path):
    sysfs = dgx_h100(tmp_path)
    write(sysfs / "devices/virtual/infiniband/rxe0/fw_ver", "")
    (sysfs / "class/infiniband/rxe0").symlink_to("../../devices/virtual/infiniband/rxe0")
    assert infiniband(sysfs)[-1]["pci"] is None
    assert len(_rails(sysfs)) == 8


def test_the_place_of_a_gpu_rank(tmp_path):
    sysfs = dgx_h100(tmp_path)
    place = rank_place(5, "cuda:5", sysfs, lambda index: (DGX_H100_GPUS[index], "GPU-1", "NVIDIA H100 80GB HBM3"))
    assert place == {
        "host": os.uname().nodename, "pid": os.getpid(), "local_rank": 5, "device": "cuda:5",
        "device_id": "0000:c3:00.0", "device_name": "NVIDIA H100 80GB HBM3", "numa": 1, "switch": "0000:b8:00.0",
        "rail": 5, "nic": "mlx5_9", "nic_path": "PIX",
        "pci_path": "pci0000:b7/0000:b7:01.0/0000:b8:00.0/0000:b9:01.0/0000:c3:00.0",
    }  # fmt: skip


def test_a_gpu_whose_address_nobody_tells(tmp_path):
    place = rank_place(0, "cuda:0", dgx_h100(tmp_path), lambda index: (None, "GPU-1", "NVIDIA H100"))
    assert place["device_id"] == "GPU-1"
    assert [place[key] for key in ("numa", "switch", "rail", "nic", "nic_path", "pci_path")] == [None] * 6


@pytest.mark.parametrize("cpus, numa", [({1, 2}, 0), ({4, 7}, 1), ({3, 4}, None), ({99}, None)])
def test_the_numa_node_of_a_rank_on_processors(tmp_path, monkeypatch, cpus, numa):
    add_cpus(tmp_path, {0: (0, 3), 1: (4, 7)})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cpus)
    place = rank_place(0, "cpu", tmp_path)
    assert (place["numa"], place["device"], place["rail"], place["device_id"]) == (numa, "cpu", None, None)
    assert place.keys() == rank_place(0, "cuda:0", tmp_path, lambda index: (None, None, "")).keys()


def test_an_empty_sysfs(tmp_path):
    assert gpu_addresses(tmp_path / "none") == [] and rails([], tmp_path / "none") == {}
    assert rank_place(0, "cpu", tmp_path / "none")["numa"] is None
    assert pci_path("0000:1b:00.0", tmp_path) == () and pci_switch("0000:1b:00.0", tmp_path) is None


@pytest.mark.parametrize(
    "text, address",
    [
        ("00000000:1B:00.0", "0000:1b:00.0"), ("0000:b9:00", "0000:b9:00.0"), ("be58:00:02.1", "be58:00:02.1"),
        ("10000:E1:00.0", "10000:e1:00.0"), ("not supported", None), ("", None), ("0000:1b:00.9", None),
    ],
)  # fmt: skip
def test_pci_addresses_of_all_spellings(text, address):
    assert pci_address(text) == address


def test_a_device_is_found_from_what_lies_below_it(tmp_path):
    sysfs = dgx_h100(tmp_path)
    assert pci_device(sysfs / "class/infiniband/mlx5_10").name == "0000:ce:00.0"
    assert pci_device(sysfs / "class/net/lo") is None
    assert pci_path("0000:ce:00.0", sysfs) == (
        "pci0000:c7",
        "0000:c7:01.0",
        "0000:c8:00.0",
        "0000:c9:00.0",
        "0000:ce:00.0",
    )


def test_files_that_cannot_be_read_are_none(tmp_path, monkeypatch):
    write(tmp_path / "speed", "200")
    (tmp_path / "folder").mkdir()
    write(tmp_path / "bytes", b"\xff\xfe41\n")
    assert read(tmp_path / "speed") == "200" and read(tmp_path / "folder") is None and read(tmp_path / "none") is None
    assert read(tmp_path / "bytes") == "\ufffd\ufffd41"

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(topology, "open", refuse, raising=False)
    assert read(tmp_path / "speed") is None


@pytest.mark.parametrize("text", [None, "", "-1", "x", "1.5", "²", "٣", "9" * 5000, "0x10"])
def test_what_is_no_number(text):
    assert number(text) is None


def test_names_are_in_the_order_people_count(tmp_path):
    for name in ("mlx5_10", "mlx5_2", "mlx5_bond_0", "9", "mlx5_1"):
        (tmp_path / name).mkdir()
    assert [path.name for path in entries(tmp_path)] == ["9", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_bond_0"]
    assert entries(Path("/nonexistent")) == []


class _Props:
    name, uuid = "NVIDIA H100", "9c6d4e0a-0000-1111-2222-333344445555"


def test_the_identity_of_a_gpu_with_and_without_the_address_from_torch(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: _Props)
    assert topology.cuda_identity(0, tmp_path) == (None, f"GPU-{_Props.uuid}", "NVIDIA H100")
    write(
        tmp_path / "driver/nvidia/gpus/0000:43:00.0/information",
        f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{_Props.uuid}",
    )
    write(
        tmp_path / "driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-????????"
    )
    assert topology.cuda_identity(0, tmp_path)[0] == "0000:43:00.0"
    newer = type("Newer", (_Props,), {"pci_domain_id": 0, "pci_bus_id": 0xC3, "pci_device_id": 0})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: newer)
    assert topology.cuda_identity(0, tmp_path)[0] == "0000:c3:00.0"
