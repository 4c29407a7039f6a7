"""`python -m commbench.lab.switch NAME`: the switch of a lab of the latency form, one process.

Each rank's eth0 is a TAP device whose other end is here. Frames keep their virtio-net header, so that TCP hands over
64 KB at once and plain Python is fast enough. A connection to its socket makes it read lab.json again.
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
from time import perf_counter

from commbench.lab import state
from commbench.lab.clocks import Clocks
from commbench.lab.frames import is_pure_ack, target, wire_bytes
from commbench.lab.layout import Lab
from commbench.lab.namespaces import inside

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 1, 2, 4
_PR_SET_TIMERSLACK = 29
_PRIORITY = 50
_FRAME_BYTES = 70_000
_AT_ONCE = 8  # frames of one port before the others get their turn


def open_tap(namespace: str) -> int:
    """Our end of the eth0 in `namespace`."""
    with inside(namespace):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
        fcntl.ioctl(tap, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
    return tap


def serve(lab: Lab, control: socket.socket) -> None:
    """Switch until a signal ends this process, or the lab's files are gone."""
    taps = [open_tap(rank.namespace) for rank in lab.ranks()]
    rank_of_tap = {tap: rank for rank, tap in enumerate(taps)}
    rank_of_mac = {bytes.fromhex(rank.mac.replace(":", "")): rank.rank for rank in lab.ranks()}
    clocks, watched = Clocks(lab), [*taps, control]
    pid_file = state.folder(lab.name) / "switch.pid"
    control.listen()
    while True:
        for rank, frame in clocks.arrived(perf_counter()):
            try:
                os.write(taps[rank], frame)
            except OSError:  # the port is down or full: the frame is lost, as on any network
                pass
        due_s = clocks.due_s()
        wait_s = 1.0 if due_s is None else max(0.0, due_s - perf_counter())
        readable = select.select(watched, [], [], wait_s)[0]
        if not readable and due_s is None and not pid_file.exists():  # the lab was taken down before it knew of us
            return
        for ready in readable:
            if ready is control:
                _reload(lab.name, control, clocks)
                continue
            for _ in range(_AT_ONCE):
                try:
                    frame = os.read(ready, _FRAME_BYTES)
                except BlockingIOError:
                    break
                to = rank_of_mac.get(target(frame))
                if to is not None:
                    free = is_pure_ack(frame)
                    clocks.send(perf_counter(), rank_of_tap[ready], to, wire_bytes(frame), frame, free)


def _reload(name: str, control: socket.socket, clocks: Clocks) -> None:
    caller, _ = control.accept()
    with caller:
        found = state.load(name)
        if found:
            clocks.change(found[0])
            caller.send(b"done")


def main() -> None:
    lab, _ = state.load(sys.argv[1])
    place = state.folder(lab.name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    (place / "switch.pid").write_text(str(os.getpid()))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake when asked to, not 50 us later
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(place / "switch.socket"))
        serve(lab, control)


if __name__ == "__main__":
    main()
