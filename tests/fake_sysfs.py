"""Builds what /sys looks like on well-known machines, with relative links as the kernel makes them."""

import os
from pathlib import Path

# GPU, compute card beside it on one PCIe switch, host bridge: PCI bus numbers of a DGX H100.
DGX_H100 = (
    ("1b", "18", "mlx5_0", "15"), ("43", "40", "mlx5_3", "37"),
    ("52", "4f", "mlx5_4", "48"), ("61", "5e", "mlx5_5", "59"),
    ("9d", "9a", "mlx5_6", "97"), ("c3", "c0", "mlx5_9", "b7"),
    ("d1", "ce", "mlx5_10", "c7"), ("df", "dc", "mlx5_11", "d7"),
)  # fmt: skip
DGX_H100_GPUS = [f"0000:{gpu}:00.0" for gpu, *_ in DGX_H100]
_DGX_H100_STORAGE = (
    ("29", "0", "mlx5_1", "26"),
    ("29", "1", "mlx5_2", "26"),
    ("aa", "0", "mlx5_7", "a7"),
    ("aa", "1", "mlx5_8", "a7"),
)


def write(path: Path, text) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
    return path


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def add_device(sysfs: Path, path: str, vendor: str, kind: str, numa: int = 0, width: int = 16) -> Path:
    """A PCI device at `path`, the folders below /sys/devices from the host bridge on."""
    device = sysfs / "devices" / path
    files = {"vendor": vendor, "class": kind, "numa_node": numa, "current_link_width": width, "max_link_width": 16}
    files |= {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    for name, text in files.items():
        write(device / name, text)
    link(sysfs / "bus/pci/devices" / device.name, device)
    return device


def add_gpu(sysfs: Path, path: str, numa: int = 0) -> Path:
    return add_device(sysfs, path, "0x10de", "0x030200", numa)


def add_hca(
    sysfs: Path, path: str, name: str, numa: int = 0, netdev: str | None = None, rate: str = "400 Gb/sec (4X NDR)"
) -> Path:
    """An RDMA device with one active port, and the network interface that belongs to it."""
    device = add_device(sysfs, path, "0x15b3", "0x020700", numa)
    hca = device / "infiniband" / name
    for file, text in {"fw_ver": "28.39.1002", "hca_type": "MT4129", "board_id": "MT_0000000838"}.items():
        write(hca / file, text)
    port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate, "link_layer": "InfiniBand"}
    for file, text in port.items():
        write(hca / "ports/1" / file, text)
    link(hca / "device", device)
    link(sysfs / "class/infiniband" / name, hca)
    if netdev:
        add_net(sysfs, device, netdev, "mlx5_core", 400000)
    return hca


def add_net(sysfs: Path, device: Path, name: str, driver: str, speed: int) -> Path:
    net = device / "net" / name
    for file, text in {"speed": speed, "operstate": "up", "mtu": 4092}.items():
        write(net / file, text)
    (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    if not (device / "driver").exists():
        link(device / "driver", sysfs / "bus/pci/drivers" / driver)
    link(net / "device", device)
    link(sysfs / "class/net" / name, net)
    return net


def add_cpus(sysfs: Path, nodes: dict[int, tuple[int, int]]) -> None:
    """Sockets that are NUMA nodes: {node: (first CPU, last CPU)}."""
    for node, (first, last) in nodes.items():
        write(sysfs / f"devices/system/node/node{node}/cpulist", f"{first}-{last}")
        for cpu in range(first, last + 1):
            write(sysfs / f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", node)


def dgx_h100(sysfs: Path) -> Path:
    """8 GPUs, each with a ConnectX-7 on its own switch, and two dual-port storage cards on root ports; 2 sockets."""
    add_cpus(sysfs, {0: (0, 3), 1: (4, 7)})
    for gpu, nic, name, bridge in DGX_H100:
        numa, bus = int(int(bridge, 16) >= 0x80), int(bridge, 16)
        switch = f"pci0000:{bridge}/0000:{bridge}:01.0/0000:{bus + 1:02x}:00.0"
        add_hca(sysfs, f"{switch}/0000:{bus + 2:02x}:00.0/0000:{nic}:00.0", name, numa, f"ibp{int(nic, 16)}s0")
        add_gpu(sysfs, f"{switch}/0000:{bus + 2:02x}:01.0/0000:{gpu}:00.0", numa)
    for bus, function, name, bridge in _DGX_H100_STORAGE:
        path = f"pci0000:{bridge}/0000:{bridge}:01.0/0000:{bus}:00.{function}"
        add_hca(sysfs, path, name, int(int(bridge, 16) >= 0x80), f"ibp{int(bus, 16)}s0f{function}")
    bmc = add_device(sysfs, "pci0000:00/0000:00:1c.0/0000:03:00.0", "0x1a03", "0x030000")  # the console's VGA is no GPU
    (bmc / "drm").mkdir()
    onboard = add_device(sysfs, "pci0000:00/0000:00:1d.0/0000:05:00.0", "0x8086", "0x020000")
    add_net(sysfs, onboard, "eno3", "ixgbe", 10000)
    for name in ("lo", "docker0"):
        write(sysfs / "devices/virtual/net" / name / "mtu", 1500)
        link(sysfs / "class/net" / name, sysfs / "devices/virtual/net" / name)
    return sysfs
