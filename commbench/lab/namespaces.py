"""Entering network namespaces, and finding the processes in them. Needs root; Linux only."""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import time
from contextlib import contextmanager
from pathlib import Path

NETNS = Path("/run/netns")  # where `ip netns add` keeps them
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE, _MNT_DETACH = 0x1000, 0x4000, 0x80000, 2
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments) -> None:
    """A system call of libc. Raises OSError when it fails."""
    if getattr(_libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _mount(source: str, target: Path | str, kind: str | None, flags: int) -> None:
    _call("mount", source.encode(), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags), None)


def _join(path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


@contextmanager
def inside(namespace: str):
    """This thread in the network namespace `namespace`, and back."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _join(NETNS / namespace)
        yield
    finally:
        _call("setns", own, _CLONE_NEWNET)
        os.close(own)


def move_to(namespace: str, host: str, hosts_file: Path, sys_folder: Path) -> None:
    """This process for good on the node `host`: its network, its host name, its /etc/hosts and its /sys.

    `sys_folder` is an empty folder. Mounts are this process's own; /sys shows the network devices of the namespace.
    """
    _join(NETNS / namespace)
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWUTS)
    _mount("none", "/", None, _MS_REC | _MS_SLAVE)
    socket.sethostname(host)
    _mount(str(hosts_file), "/etc/hosts", None, _MS_BIND)
    _mount("sysfs", sys_folder, "sysfs", 0)
    if Path("/sys/fs/cgroup").is_dir():  # the new sysfs comes without the cgroups, from which limits are read
        _mount("/sys/fs/cgroup", sys_folder / "fs/cgroup", None, _MS_BIND | _MS_REC)
    _mount(str(sys_folder), "/sys", None, _MS_BIND | _MS_REC)
    _call("umount2", os.fsencode(sys_folder), _MNT_DETACH)  # free for a process that enters from here


def runs(namespace: str, device: str) -> bool:
    """Whether a network device is up and has seen its carrier."""
    with inside(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", device.encode(), 0))
    return bool(struct.unpack_from("H", answer, 16)[0] & _IFF_RUNNING)


def missing(namespaces: list[str]) -> list[str]:
    """Those of `namespaces` that do not exist."""
    return [name for name in namespaces if not (NETNS / name).exists()]


def processes_in(namespaces: list[str]) -> list[int]:
    """Pids of the processes that live in any of `namespaces`."""
    wanted = {os.stat(NETNS / name).st_ino for name in namespaces if (NETNS / name).exists()}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.stat(entry / "ns/net").st_ino in wanted:
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile
                pass
    return found


def end_processes(namespaces: list[str], patience_s: float = 2.0) -> int:
    """End what lives in `namespaces`, by SIGTERM, then by SIGKILL; how many there were."""
    began, ended = time.monotonic(), set()
    while pids := processes_in(namespaces):
        late = time.monotonic() > began + patience_s
        for pid in pids:
            if late or pid not in ended:
                ended.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except ProcessLookupError:
                    pass
        time.sleep(0.05)
    return len(ended)
