"""Starting a program as the ranks of a lab, through what an ordinary launcher gives it."""

import os
import signal
import subprocess
import sys
import time

from commbench.errors import worst
from commbench.lab.layout import Lab, Rank
from commbench.lab.told import VARIABLE

_PORT = 29500
_GRACE_S = 5.0  # for the others to end by themselves after one has failed
# A lab started from inside a job must not take that job's ranks for its own.
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = ("SLURM_", "OMPI_COMM_WORLD_", "PMI_", "TORCHELASTIC_")


def variables(lab: Lab, rank: Rank) -> dict[str, str]:
    """What torchrun would set for `rank`."""
    return {
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(lab.size),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(lab.ranks_per_node),
        **meeting(lab),
    }


def meeting(lab: Lab) -> dict[str, str]:
    """Where the ranks meet, by which interface, and that it is a lab; the same for all."""
    return {
        VARIABLE: lab.name,
        "MASTER_ADDR": lab.host(0),
        "MASTER_PORT": str(_PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def entering(lab: Lab, where: str, command: list[str]) -> list[str]:
    """The command line that runs `command` in the lab, see enter.py. "commbench" is the one of this Python."""
    if command[0] == "commbench":
        command = [sys.executable, "-m", "commbench", *command[1:]]
    return [sys.executable, "-m", "commbench.lab.enter", lab.name, where, *command]


def run(lab: Lab, command: list[str], realtime: bool = False) -> int:
    """Run `command` once for each rank of the lab; the worst of their exit codes.

    `realtime`: at the kernel's lowest real-time priority, so that other programs do not delay them.
    """
    processes = [
        subprocess.Popen(
            entering(lab, str(rank.rank), command),
            env={**inherited(), **variables(lab, rank)},
            stdin=subprocess.DEVNULL,
            preexec_fn=_realtime if realtime else None,
        )
        for rank in lab.ranks()
    ]
    return until_ended(processes)


def inherited() -> dict[str, str]:
    """This process's environment without the variables of a launcher."""
    return {k: v for k, v in os.environ.items() if k not in _LAUNCHER and not k.startswith(_LAUNCHERS)}


def _realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def until_ended(processes: list[subprocess.Popen]) -> int:
    """Wait for all; when one has failed and the others go on for long, end them. The worst exit code."""
    deadline = None
    try:
        while any(process.poll() is None for process in processes):
            if deadline is None and any(process.poll() for process in processes):
                deadline = time.monotonic() + _GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(0.02)
    finally:
        _end(processes)
    return worst(process.poll() for process in processes)


def _end(processes: list[subprocess.Popen]) -> None:
    """SIGTERM, five seconds to obey, SIGKILL."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.02)
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
