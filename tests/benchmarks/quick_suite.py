"""How long the quick suite takes (bar: under 60 s on 2 cores), whether 64 Gloo ranks run a sweep, and how help starts."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMBENCH = [sys.executable, "-m", "commbench"]


def timed(*arguments) -> tuple[float, subprocess.CompletedProcess]:
    begin = time.perf_counter()
    done = subprocess.run([*COMMBENCH, *arguments], capture_output=True, text=True)
    return time.perf_counter() - begin, done


def main() -> None:
    for arguments in (["--help"], ["run", "--help"]):
        took = sorted(timed(*arguments)[0] for _ in range(7))[3]
        print(
            f"{'pass' if took < 0.3 else 'fail'}: commbench {' '.join(arguments)} {took:.3f} s (median of 7, bar 0.3 s)"
        )
    with tempfile.TemporaryDirectory() as folder:
        took, done = timed("run", "quick", "--out", str(Path(folder) / "quick"))
        good = took < 60 and done.returncode == 0
        print(
            f"{'pass' if good else 'fail'}: quick suite and report {took:.1f} s, exit code {done.returncode} (bar 60 s)"
        )
        took, done = timed(
            "run", "all_reduce", "-n", "64", "--size", "8,4K,256K", "--budget", "0.5", "--out", str(Path(folder) / "64")
        )
        print(
            f"{'pass' if done.returncode == 0 else 'fail'}: a sweep on 64 Gloo ranks {took:.1f} s, exit code {done.returncode}"
        )


if __name__ == "__main__":
    main()
