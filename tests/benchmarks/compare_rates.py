"""How often `commbench compare` calls unchanged code slower, and how often it finds a planted slow-down of 10 %.

    python tests/benchmarks/compare_rates.py            simulated: pairs of 5 launches that differ by 3 %
    python tests/benchmarks/compare_rates.py --real     40 launches of a few points on this machine, split 200 times

Simulated launches differ in four ways: as a whole, each operation by itself, each point by itself, or half and half.
Bars: below 5 % of the comparisons of unchanged code exit 1; at least 90 % find the operation that was slowed.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from judged import held  # noqa: E402
from measured import sample  # noqa: E402

from commbench.acceptance.compare import compare  # noqa: E402
from commbench.results.store import load_run  # noqa: E402

PAIRS, LAUNCHES, SPREAD, SLOWER = 200, 5, 0.03, 1.10
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SIZES = [2**k for k in range(10, 25, 2)]


def launch_factors(kind: str, rng) -> np.ndarray:
    """Logarithms (operations, sizes) by which one launch is off, of standard deviation SPREAD in sum."""
    whole, op, point = {
        "as a whole": (1, 0, 0), "operations": (0, 1, 0), "points": (0, 0, 1), "half whole, half points": (0.5, 0, 0.5),
    }[kind]  # fmt: skip
    parts = ((whole, ()), (op, (len(OPS), 1)), (point, (len(OPS), len(SIZES))))
    return sum(rng.normal(0, SPREAD * share**0.5, shape) * np.ones((len(OPS), len(SIZES))) for share, shape in parts)


def simulated(kind: str, rng, slow: str | None):
    rows = []
    for launch in range(1, LAUNCHES + 1):
        factors = np.exp(launch_factors(kind, rng))
        for i, op in enumerate(OPS):
            for j, size in enumerate(SIZES):
                time = (20 + size * 1e-3) * factors[i, j] * (SLOWER if op == slow else 1)
                rows.append(sample(time, size, launch, op=op, samples=1, noise=0))
    return held(rows)


def of_simulations() -> None:
    print(
        f"{PAIRS} pairs of {LAUNCHES} launches that differ by {SPREAD:.0%}, {len(OPS)} operations of {len(SIZES)} sizes"
    )
    for kind in ("as a whole", "operations", "points", "half whole, half points"):
        rng = np.random.default_rng(1)
        alarms = sum(compare(simulated(kind, rng, None), simulated(kind, rng, None)).code for _ in range(PAIRS))
        found = [
            {change.op for change in compare(simulated(kind, rng, None), simulated(kind, rng, OPS[1])).regressed}
            for _ in range(PAIRS)
        ]
        hit, beside = sum(OPS[1] in ops for ops in found), sum(bool(ops - {OPS[1]}) for ops in found)
        print(
            f"  launches differ {kind:24} false alarms {alarms / PAIRS:6.1%}   10 % on {OPS[1]} found "
            f"{hit / PAIRS:6.1%}, another operation blamed beside it {beside / PAIRS:.1%}"
        )


def of_this_machine(launches: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "commbench", "run", str(_suite(Path(folder))), "--backend", "gloo", "-n", "2"]
        command += ["--launches", str(launches), "--out", f"{folder}/run", "--no-report"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [row for row in load_run(Path(folder) / "run").samples() if row.status == "ok"]
    medians = {}
    for row in rows:
        medians.setdefault(row.point.id, []).append(np.median(row.samples_us))
    spread = np.median([np.std(np.log(times), ddof=1) for times in medians.values()])
    rng, alarms, found = np.random.default_rng(1), 0, 0
    for _ in range(PAIRS):
        chosen = rng.permutation(np.arange(1, launches + 1))[: 2 * LAUNCHES]
        a, b = ([row for row in rows if row.launch in side] for side in (chosen[:LAUNCHES], chosen[LAUNCHES:]))
        alarms += compare(held(a), held(b)).code
        slowed = [
            replace(r, samples_us=tuple(SLOWER * t for t in r.samples_us)) if r.point.op == OPS[1] else r for r in b
        ]
        found += any(change.op == OPS[1] for change in compare(held(a), held(slowed)).regressed)
    print(
        f"{launches} launches here, {len(medians)} points, spread between launches {spread:.1%} (median of the points); "
        f"{PAIRS} splits {LAUNCHES} : {LAUNCHES}: false alarms {alarms / PAIRS:.1%}, 10 % found {found / PAIRS:.1%}"
    )


def _suite(folder: Path) -> Path:
    path = folder / "few.toml"
    path.write_text(
        'name = "few"\n[settings]\nbudget_s = 0.2\nwarmup_s = 0.05\n'
        '[[measure]]\nop = ["all_reduce", "all_gather", "broadcast"]\nsize = ["64K", "1M"]\n'
    )
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="launches on this machine in place of simulated ones")
    parser.add_argument("--launches", type=int, default=40, help="how many launches --real takes")
    chosen = parser.parse_args()
    of_this_machine(chosen.launches) if chosen.real else of_simulations()
