"""The bubble of pipelines whose stages wait, measured on real Gloo ranks, beside its simulation and its formula.

    python tests/benchmarks/pipeline_bubble.py [--ranks 4] [--stage-ms 40] [--steps 6] [--launches 3] [--first] [--page FILE]

Stages sleep in place of computing, so that ranks may outnumber cores. --first asks the kernel to run the ranks before
other programs (needs root): they hardly compute, and without it a busy machine wakes them late. Bar: the median over
launches of 1F1B's and ZB-H1's bubble within 10 % of simulated. --page draws the last measured step of each.
"""

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from layer_ranks import built_on, on_ranks  # noqa: E402

from commbench.layers.pipeline import schedule_of  # noqa: E402
from commbench.schedules.stages_catalogue import NAMES, problem  # noqa: E402

BARRED, WITHIN = ("1f1b", "zb_h1"), 0.10


def measured(world, case: dict, steps: int, first: bool) -> dict:
    built, *_ = built_on(world, "pipeline", case)
    if first:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))
    for _ in range(steps):
        world.align()
        built.step()
    return built.facts()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--stage-ms", type=float, default=40.0)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    times = dict.fromkeys(("forward_us", "input_us", "weight_us"), args.stage_ms * 1e3)
    case = {"work": "wait", "scale": 32, "tokens": 8, "chunks": 2, "micro_batches": args.micro_batches, **times}
    print(f"{args.ranks} ranks, {args.micro_batches} micro-batches, F = B = W = {args.stage_ms:g} ms, "
          f"{args.launches} launches of {args.steps} steps, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(
        f"{'schedule':12} {'formula':>9} {'simulated':>9} {'measured':>9} {'off':>7}   launches; span: simulated, measured"
    )
    missed, figures = [], []
    for name in NAMES:
        if problem(name, args.ranks, args.micro_batches):
            continue
        launches = [on_ranks(args.ranks, measured, case | {"schedule": name}, args.steps, args.first)
                    for _ in range(args.launches)]  # fmt: skip
        told = [
            [max(of_rank[key] for of_rank in ranks) / 1e3
             for key in ("simulated_bubble_us", "bubble_us", "simulated_bubble_of_span_us", "bubble_of_span_us")]
            for ranks in launches
        ]  # fmt: skip
        simulated, bubble, simulated_span, span = (statistics.median(values) for values in zip(*told))
        offs = [row[1] / row[0] - 1 if row[0] else math.nan for row in told]  # DualPipe on 2 ranks has no bubble
        off, each = statistics.median(offs), " ".join(f"{one:+.1%}" for one in offs)
        formula = launches[-1][0].get("formula_bubble_us")
        formula = "-" if formula is None else f"{formula / 1e3:.1f}"
        print(
            f"{name:12} {formula:>9} {simulated:9.1f} {bubble:9.1f} {off:+7.1%}   {each}; {simulated_span:.1f}, {span:.1f}"
        )
        missed += [name] if name in BARRED and abs(off) > WITHIN else []
        schedule = schedule_of(case | {"schedule": name}, args.ranks)
        rows = [np.array(of_rank["timeline_us"]).reshape(-1, 2) / 1e3 for of_rank in launches[-1]]
        figures.append((schedule, rows))
    if args.page:
        write_page(figures, args.page)
    outcome = f"fail: {', '.join(missed)}" if missed else "pass"
    print(f"bar: {' and '.join(BARRED)} within {WITHIN:.0%} of simulated: {outcome}")
    sys.exit(bool(missed))


def write_page(figures, path: Path) -> None:
    import plotly.graph_objects as go

    from commbench.reports.gantt import gantt_figure

    parts = []
    for schedule, rows in figures:
        figure = go.Figure(gantt_figure(schedule, rows, "time, ms"))
        figure.update_layout(title=f"{schedule.name}, measured")
        parts.append(figure.to_html(full_html=False, include_plotlyjs=not parts))
    path.write_text("<!DOCTYPE html><meta charset=utf-8>" + "\n".join(parts))


if __name__ == "__main__":
    main()
