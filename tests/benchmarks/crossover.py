"""A fitted crossover held against measurements on both sides of it: Open MPI's recursive doubling and ring, forced.

One run of several launches is fitted; then a second run measures in the middle of each stretch of sizes between the
crossovers. The faster one must be the one that the fit names, on all sides. `python tests/benchmarks/crossover.py [RANKS]`.
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

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(folder / "fit", ranks, "512..256K*2", LAUNCHES)
        (found,) = contests(read_series([str(folder / "fit")]))
        print(f"fitted on {ranks} ranks, {found.found.label}: {found.sentence}", flush=True)
        if not found.found.crossings:
            print("not determined: the fit names no crossover")
            return 1
        regions = [(low, high, who) for low, high, who in found.found.regions if who]
        sizes = {int(np.sqrt(low * high)) // 4 * 4: who for low, high, who in regions}
        second = run(folder / "sides", ranks, ",".join(map(str, sizes)), LAUNCHES)
        missed = 0
        for size, expected in sizes.items():
            times = {
                name: [time_us(s) for s in second.samples() if (s.point.algorithm, s.point.size_bytes) == (name, size)]
                for name in (FIRST, SECOND)
            }
            medians = {name: float(np.median(values)) for name, values in times.items()}
            fastest = min(medians, key=medians.get)
            missed += fastest != expected
            told = ", ".join(f"{name} {value:.2f} us" for name, value in medians.items())
            print(f"{'pass' if fastest == expected else 'fail'}: at {size} bytes {expected} should win: {told}")
        return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "2"))
