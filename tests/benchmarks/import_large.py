"""A 200 MB NCCL log with one table in it, through `commbench import` (bar: under 10 s and under 500 MB).

python tests/benchmarks/import_large.py [megabytes, default 200]
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASE = next((Path(__file__).parent.parent / "data" / "cases").glob("01-*"))


def write_log(path: Path, size_bytes: int, prefix: str) -> None:
    """Log lines of 16 nodes, and in the middle a table with 20 log lines after each of its rows."""
    rng, written, told = random.Random(1), 0, False
    with open(path, "w") as file:
        while written < size_bytes:
            if not told and written > size_bytes / 2:
                told = True
                for row in CASE.read_text().splitlines(keepends=True):
                    file.write(prefix + row + "".join(_line(rng, prefix) for _ in range(20)))
            block = "".join(_line(rng, prefix) for _ in range(1000))
            file.write(block)
            written += len(block)


def _line(rng: random.Random, prefix: str) -> str:
    node, rank, channel = rng.randrange(16), rng.randrange(128), rng.randrange(32)
    return (
        f"{prefix}node{node:02d}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank % 8}]"
        f" -> {(rank + 1) % 128}[{(rank + 1) % 8}] [send] via NET/IB/{rank % 8}(0)/GDRDMA\n"
    )


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for prefix in ("", "0: "):
        with tempfile.TemporaryDirectory() as folder:
            log, out = Path(folder) / "nccl.log", Path(folder) / "run"
            write_log(log, megabytes * 10**6, prefix)
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "commbench", "import", log, "--out", out], capture_output=True, text=True
            )
            took = time.perf_counter() - began
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            good = done.returncode == 0 and "34 row(s), 68 result(s)" in done.stdout
            within = good and took < 10 and used.ru_maxrss * 1024 < 500e6
            print(
                f"{'pass' if within else 'fail'}: {megabytes} MB, prefix {prefix!r}: {took:.1f} s (processor "
                f"{used.ru_utime + used.ru_stime:.1f} s so far), {used.ru_maxrss * 1024 / 1e6:.0f} MB, exit code "
                f"{done.returncode}, table {'read' if good else 'not read'}"
            )


if __name__ == "__main__":
    main()
