"""Times on rank counts that the fit never saw: trained on few ranks, held against many.

    python tests/benchmarks/rank_holdout.py [CSV ...] [--op all_gather] [--per-node 4] [--train-ranks 128]

Each CSV has the columns that `commbench fit` reads (collective, nodes or gpus_per_node, nranks, size_bytes,
time_us_out_of_place, time_us_in_place; the smaller placement is the time). Without one, tests/data/perlmutter_a100_nccl.csv.
Everything is chosen on the training rows: the form of the model, its parameters and the width of its intervals. Two
trainings are shown: on all values of ranks per node, and on that of the test alone.
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from commbench.errors import CommbenchError
from commbench.models.family import fit_family
from commbench.models.prediction import predict_many, regime_for
from commbench.models.table import read_series

DATA = Path(__file__).parent.parent / "data" / "perlmutter_a100_nccl.csv"
PER_NODE, TRAIN_RANKS = 4, 128
MAPE_AT_MOST = {"all_gather": 9.0, "all_reduce": 8.0}  # percent, for these two
COVERED_AT_LEAST, HALF_WIDTH_AT_MOST = 90.0, 30.0  # percent


def figures(train, test) -> dict[str, float]:
    """Percent: mean absolute error, intervals that hold the measured time, median, mean and largest half-width; seconds
    of the fit; and the form."""
    begin = perf_counter()
    model = fit_family(train)
    seconds = perf_counter() - begin
    regime = regime_for(model, int(test.ranks[0]), int(test.nodes[0]))
    time_us, low_us, high_us = predict_many(model, regime, test.ranks, test.nodes, test.size_bytes)
    half = 100 * (high_us - low_us) / 2 / time_us
    return {
        "mape": 100 * float(np.mean(np.abs(time_us / test.time_us - 1))),
        "covered": 100 * float(np.mean((low_us <= test.time_us) & (test.time_us <= high_us))),
        "half_median": float(np.median(half)),
        "half_mean": float(np.mean(half)),
        "half_max": float(half.max()),
        "seconds": seconds,
        "form": regime.choice + " of " + ", ".join(piece.algorithm for piece in regime.pieces),
    }


def verdict(told: dict[str, float], error_at_most: float | None) -> str:
    """ "pass", "fail", or "not compared" where there is no bar."""
    if error_at_most is None:
        return "not compared"
    covered, narrow = told["covered"] >= COVERED_AT_LEAST, told["half_median"] <= HALF_WIDTH_AT_MOST
    return "pass" if told["mape"] <= error_at_most and covered and narrow else "fail"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="*", type=Path, default=[DATA])
    parser.add_argument("--op", action="append", help="only this operation (may be given more than once)")
    parser.add_argument("--per-node", type=int, default=PER_NODE)
    parser.add_argument("--train-ranks", type=int, default=TRAIN_RANKS)
    given = parser.parse_args()
    failed = False
    for path in given.csv:
        for series in read_series([path]):
            op = series.label["op"]
            if given.op and op not in given.op:
                continue
            test = series.select((series.ranks > given.train_ranks) & (series.per_node == given.per_node)).medians()
            train = series.select(series.ranks <= given.train_ranks)
            if not len(test):
                print(f"not compared: {series.name} has no rows of more than {given.train_ranks} ranks", flush=True)
                continue
            for whose, rows in (
                ("all ranks per node", train),
                (f"{given.per_node} ranks per node alone", train.select(train.per_node == given.per_node)),
            ):
                try:
                    told = figures(rows, test)
                except CommbenchError as error:
                    print(f"not determined: {series.name}, trained on {whose}: {error}", flush=True)
                    failed = True
                    continue
                bar = MAPE_AT_MOST.get(op) if (given.per_node, given.train_ranks) == (PER_NODE, TRAIN_RANKS) else None
                judged = verdict(told, bar)
                failed |= judged == "fail"
                print(
                    f"{judged}: {series.name}, {len(rows)} rows of at most {given.train_ranks} ranks, {whose} -> "
                    f"{len(test)} rows of {', '.join(map(str, sorted(set(test.ranks.tolist()))))} ranks\n"
                    f"      error {told['mape']:.1f} % ({f'at most {bar:g}' if bar else 'no bar'}), intervals hold "
                    f"{told['covered']:.0f} % (at least {COVERED_AT_LEAST:.0f}), half-width median "
                    f"{told['half_median']:.0f} % (at most {HALF_WIDTH_AT_MOST:.0f}), mean {told['half_mean']:.0f} %, "
                    f"largest {told['half_max']:.0f} %; {told['form']}; fitted in {told['seconds']:.1f} s",
                    flush=True,
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
