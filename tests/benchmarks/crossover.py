"""A fitted crossover held against measurements on both sides of it: Open MPI's recursive doubling and ring, forced.

One run of several launches is fitted; then a second run measures at a third and at three times the fitted crossover.
The faster one must be the one that the fit names, on both sides. `python tests/benchmarks/crossover.py [RANKS]`.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FIRST, SECOND = "recursive_doubling", "ring"
LAUNCHES = 7


def run(folder: Path, ranks: str, sizes: str, launches: int):
    from commbench.results.store import load_run

    command = [
        sys.executable, "-m", "commbench", "run", "all_reduce", "--backend", "mpi", "--ranks", ranks, "--size", sizes,
        "--algorithm", f"{FIRST},{SECOND}", "--launches", str(launches), "--budget", "0.3", "--no-report",
        "--out", str(folder),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return load_run(folder)


def main(ranks: str) -> int:
    from commbench.models.contest import contests
    from commbench.models.table import read_series
    from commbench.results.metrics import time_us
    from commbench.units import format_size

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(folder / "fit", ranks, "512..256K*2", LAUNCHES)
        (found,) = contests(read_series([str(folder / "fit")]))
        print(f"fitted on {ranks} ranks, {found.found.label}: {found.sentence}", flush=True)
        if len(found.found.crossings) != 1:
            print("not determined: the fit names no single crossover")
            return 1
        crossing = found.found.crossings[0]
        sizes = [int(crossing.size_bytes / 3) // 4 * 4, int(crossing.size_bytes * 3) // 4 * 4]
        second = run(folder / "sides", ranks, ",".join(map(str, sizes)), LAUNCHES)
        missed = 0
        for size, expected in zip(sizes, (crossing.below, crossing.above)):
            times = {
                name: [time_us(s) for s in second.samples() if (s.point.algorithm, s.point.size_bytes) == (name, size)]
                for name in (FIRST, SECOND)
            }
            medians = {name: float(np.median(values)) for name, values in times.items()}
            fastest = min(medians, key=medians.get)
            missed += fastest != expected
            told = ", ".join(f"{name} {value:.1f} us" for name, value in medians.items())
            print(f"{'pass' if fastest == expected else 'fail'}: at {format_size(size)} {expected} should win: {told}")
        return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "2"))
