"""Starting real runs from tests, and reaching into them while they go."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMBENCH = [sys.executable, "-m", "commbench"]


def clean_environment(**extra) -> dict:
    """This process's environment without a launcher's variables."""
    launcher = ("SLURM_", "OMPI_", "PMI", "PRTE_", "MPI_LOCAL")
    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(launcher) and k not in names}
    return kept | extra


def commbench(*arguments, timeout=120, **environment) -> subprocess.CompletedProcess:
    """Run the command line to its end."""
    return subprocess.run(
        [*COMMBENCH, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=clean_environment(**environment),
    )


def start(*arguments, **environment) -> subprocess.Popen:
    """Start the command line and return at once."""
    return subprocess.Popen(
        [*COMMBENCH, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(**environment),
        # A job in the background of a shell ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def records(run_dir: Path) -> list[dict]:
    """All complete records of all launches of a run so far."""
    lines = []
    for path in sorted(Path(run_dir).glob("launch-*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                lines.append(json.loads(line))
    return lines


def points(run_dir: Path) -> list[dict]:
    return [record for record in records(run_dir) if record["record"] == "point"]


def wait_for(condition, timeout=60):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def rank_pids(run_dir: Path) -> dict[int, int]:
    """{rank: pid} of the newest launch, once its header is there."""
    headers = wait_for(lambda: [r for r in records(run_dir) if r["record"] == "header"])
    return {rank["rank"]: rank["pid"] for rank in headers[-1]["ranks"]}


def alive(pid: int) -> bool:
    """True while a process runs; a zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Silent:
    """A view that keeps what it is told."""

    def __init__(self):
        self.messages = []

    def header(self, record):
        pass

    def point(self, sample):
        pass

    def message(self, text):
        self.messages.append(text)


def run_in_process(tables: dict, out: Path, ranks: int, backend="gloo", view=None) -> tuple[int, str]:
    """Measure a suite with ranks forked from the test itself, so that what a test has patched is patched in them."""
    from commbench.cli.planning import plan_suite
    from commbench.launch.local import LocalSite
    from commbench.launch.run import execute
    from commbench.suite.schema import check_suite

    plan = plan_suite(check_suite(tables, "test"), [backend], [0] * ranks, joined=False)
    out.mkdir(parents=True, exist_ok=True)
    plan.save(out / "plan.json")
    return execute(plan, out, LocalSite(), view or Silent())
