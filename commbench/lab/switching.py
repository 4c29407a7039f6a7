"""Starting, telling and ending the switch of a lab of the latency form."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from commbench.errors import MeasureError
from commbench.lab.layout import Lab
from commbench.lab.state import folder

_START_S, _STOP_S = 20.0, 3.0


def need_tun() -> None:
    """Raise MeasureError where the kernel offers no TAP devices."""
    if not Path("/dev/net/tun").exists():
        raise MeasureError(
            "a lab with --delay needs /dev/net/tun, which is not here: `modprobe tun`; without --delay a lab needs none"
        )


def start(lab: Lab) -> None:
    """Start the switch and wait until it switches. Raises MeasureError with its last words when it does not."""
    place = folder(lab.name)
    with open(place / "switch.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "commbench.lab.switch", lab.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if _told(lab.name):
            return
        time.sleep(0.02)
    process.kill()
    process.wait()
    said = (place / "switch.log").read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    raise MeasureError(f"the switch of lab {lab.name} did not start: {said[0]}")


def reload(name: str) -> None:
    """Make the switch take the links as lab.json has them. Raises MeasureError when it is gone."""
    if not _told(name):
        raise MeasureError(f"the switch of lab {name} is gone; `commbench lab up --name {name}` builds the lab anew")


def pid_of(name: str) -> int | None:
    """The switch's process, None where none runs."""
    try:
        pid = int((folder(name) / "switch.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        running = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ValueError):
        return None
    # The number may have gone to another process since.
    return pid if running and words[-3:-1] == [b"commbench.lab.switch", name.encode()] else None


def stop(name: str) -> None:
    """End the switch and wait until it has ended."""
    pid = pid_of(name)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while pid_of(name) == pid:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            deadline += _STOP_S
        time.sleep(0.02)


def _told(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(5)
        try:
            caller.connect(str(folder(name) / "switch.socket"))
            return caller.recv(16) == b"done"
        except OSError:
            return False
