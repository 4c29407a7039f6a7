"""Curves in pieces against published times of NCCL: how near the points they fit, and those they have not seen.

    python tests/benchmarks/fit_curves.py [CSV ...] [--time out_of_place|in_place|smaller] [--unstable DATASET ...]

Each CSV has the columns dataset, collective, size_bytes, time_us_out_of_place and time_us_in_place (one may be empty); the
default is tests/data/nccl_size_time.csv and its out-of-place times, in-place where there are no others. Where both are
printed, their difference says how noisy a time is. Held out: the three largest sizes, and each size between the smallest
and the largest by itself. Nothing of a held-out point is used, its noise neither. An unstable data set is shown apart.
"""

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from commbench.models.pieces import fit_curves, fit_pieces, predict, repeat_noise

DATA = Path(__file__).parent.parent / "data" / "nccl_size_time.csv"
UNSTABLE = "dgx-h100-16-unstable"
IN_SAMPLE_AT_MOST, HELD_OUT_AT_MOST = 1.0, 2.0  # percent, medians over curves
LARGEST = 3


def read(path: Path) -> dict[str, np.ndarray]:
    """Per data set and collective: rows of (size, out of place, in place), NaN where a time is not printed."""
    curves = defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            times = [float(row[f"time_us_{placement}"] or "nan") for placement in ("out_of_place", "in_place")]
            curves[f"{row['dataset']} {row['collective']}"].append((float(row["size_bytes"]), *times))
    return {name: np.array(sorted(rows)) for name, rows in curves.items()}


def times(rows, which):
    first, second = (rows[:, 1], rows[:, 2]) if which != "in_place" else (rows[:, 2], rows[:, 1])
    return np.fmin(first, second) if which == "smaller" else np.where(np.isnan(first), second, first)


def noise(rows):
    return repeat_noise(rows[:, 1], rows[:, 2])


def percent_off(pieces, rows, which):
    return 100 * np.abs(predict(pieces, rows[:, 0]) / times(rows, which) - 1)


def errors(rows, which):
    """Pieces, and mean absolute errors in percent: in sample, the largest sizes held out, each size between held out."""
    pieces = fit_pieces(rows[:, 0], times(rows, which), noise(rows))
    seen, unseen = rows[:-LARGEST], rows[-LARGEST:]
    largest = percent_off(fit_pieces(seen[:, 0], times(seen, which), noise(seen)), unseen, which)
    between = range(1, len(rows) - 1)
    others = [np.delete(rows, i, axis=0) for i in between]
    fits = fit_curves([(r[:, 0], times(r, which)) for r in others], [noise(r) for r in others])
    alone = [percent_off(fit, rows[i : i + 1], which)[0] for i, fit in zip(between, fits)]
    return len(pieces.first), 100 * pieces.mape, largest.mean(), float(np.mean(alone))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="*", type=Path, default=[DATA])
    parser.add_argument("--time", choices=("out_of_place", "in_place", "smaller"), default="out_of_place")
    parser.add_argument("--unstable", nargs="*", default=[UNSTABLE], help="data sets that are not counted")
    given = parser.parse_args()
    told = {name: errors(rows, given.time) for path in given.csv for name, rows in read(path).items()}
    counted = {name: each for name, each in told.items() if name.split()[0] not in given.unstable}
    print("pieces  in sample  largest 3 held out  one size held out   (mean absolute errors, %)")
    for name, (pieces, *off) in sorted(told.items(), key=lambda item: item[1][2]):
        apart = "" if name in counted else "  (unstable, not counted)"
        print(f"{pieces:6d}  {off[0]:9.2f}  {off[1]:18.2f}  {off[2]:17.2f}   {name}{apart}")
    columns = np.array([each[1:] for each in counted.values()])
    worst = max(counted, key=lambda name: counted[name][2])
    failed = False
    for what, column, bar in (("in sample", 0, IN_SAMPLE_AT_MOST), ("largest 3 sizes held out", 1, HELD_OUT_AT_MOST)):
        middle = float(np.median(columns[:, column]))
        failed |= middle > bar
        print(
            f"{'pass' if middle <= bar else 'fail'}: {what}: median over {len(counted)} curves {middle:.3f} % (at most {bar:g})"
        )
    print(f"worst with the largest held out: {worst}, {counted[worst][2]:.1f} %")
    print(f"one size between the others held out: median over curves {np.median(columns[:, 2]):.2f} % (no bar)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
