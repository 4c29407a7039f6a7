"""Labs for the programs beside this file: made fresh, measured through the command line, taken down."""

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from commbench.results.metrics import time_us
from commbench.results.store import load_run

COMMBENCH = [sys.executable, "-m", "commbench"]


@contextmanager
def fresh(name: str, *options: str):
    """A lab made by `commbench lab up OPTIONS`, gone afterwards."""
    subprocess.run([*COMMBENCH, "lab", "up", "--name", name, *options], check=True, stdout=subprocess.DEVNULL)
    try:
        yield name
    finally:
        subprocess.run([*COMMBENCH, "lab", "down", "--name", name], check=True, stdout=subprocess.DEVNULL)


def measured(name: str, *arguments: str, launcher: str = "environment") -> list:
    """The samples of one `commbench run ARGUMENTS` on the lab; all of them are ok and their data was checked.

    Gloo's ranks have real-time priority, so that other programs of the machine do not delay them.
    """
    realtime = ["--realtime"] if launcher == "environment" else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = ["lab", "run", "--name", name, "--launcher", launcher, *realtime, "--", "commbench", "run"]
        done = subprocess.run(
            [*COMMBENCH, *command, *arguments, "--no-report", "--out", str(out)], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"commbench run ended with exit code {done.returncode}: {done.stderr}")
        samples = load_run(out).samples()
    bad = [sample for sample in samples if sample.status != "ok" or sample.wrong != 0]
    if bad:
        sys.exit(f"{bad[0].point.op} of {bad[0].point.size_bytes} bytes: {bad[0].status}, {bad[0].reason}")
    return samples


def payload_MBps(sample) -> float:
    return sample.point.size_bytes / time_us(sample)


def verdict(error: float, bar: float) -> str:
    return "pass" if abs(error) <= bar else "fail"
