"""Layers in the loop: built on their groups, counted, checked, then timed whole and in parts, by turns.

The whole, its computation alone, its calls alone and its further parts take their samples in alternating blocks, so
that a machine that drifts drifts for all of them.
"""

import gc
import os
import time
from dataclasses import replace

import numpy as np
import torch

from commbench.layers import load
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.wire import Tape, Wire
from commbench.results.records import Point, Sample
from commbench.timing import cores
from commbench.timing.stop_rule import StopRule
from commbench.world.progress import CHECK, EXCHANGE, TIMED, WARMUP

WHOLE, COMPUTE, COMM = "together", "compute", "comm"
_BLOCK = 8  # samples of one run before the next run has its turn
_BUILD_S = 60  # what building, checking and warming up a layer may take


def run_layer_step(world, points: list[Point], settings, facts, mark, started_at: str, stopwatch_of) -> list[Sample]:
    """Measure the layers of one step (groups of ranks at the same time); the samples on rank 0, [] elsewhere.

    stopwatch_of(run): the function that takes k samples of `run` on this rank, see measure.py.
    """
    record = load(points[0].op)
    node_of = world.share(facts.node_of if world.rank == 0 else None)
    mine = next((i for i, point in enumerate(points) if world.rank in point.members), None)
    mark.phase(WARMUP, allowance_s=_BUILD_S)
    tape, wires, groups = _wires(world, record, points)
    built = place = counted = None
    runs = {}
    if mine is not None:
        if world.clock == "host":  # as many threads as there are cores for each rank of this node
            sharing = node_of.count(node_of[world.rank])
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // sharing))
        point = points[mine]
        place = Place(point.members.index(world.rank), point.ranks)
        built = record.build(wires, point.params, place, "cuda" if world.clock == "cuda_event" else "cpu")
        counted = tape.record(built.step)
        runs = _runs(built, tape)
    mark.phase(CHECK, allowance_s=_BUILD_S)
    wrong, error = built.check() if built and settings.checks else (None, None)
    gc.collect()
    names = _agreed(world, list(runs))
    watches = {name: stopwatch_of(runs.get(name, _nothing)) for name in names}
    mark.phase(WARMUP, allowance_s=_BUILD_S)
    warmup = min(settings.warmup, 3)
    for name in names if warmup else ():
        watches[name](warmup)
    if built:
        built.sampling()
    before = cores.used()
    samples, own, slowest, reason = _time(world, watches, len(points), mine, settings, mark)
    used = [None if None in pair else pair[1] - pair[0] for pair in zip(before, cores.used(), strict=True)]

    mark.phase(EXCHANGE)
    rows = world.gather({
        "median": float(np.median(own)) if built else None, "slowest": slowest, "used": used, "wrong": wrong,
        "error": error, "counted": counted, "wires": _places(groups, node_of), "facts": built.facts() if built else {},
        "wanted": record.traffic(points[mine].params, place) if built else None,
        "flops": record.flops(points[mine].params, place) if built else 0.0,
    })  # fmt: skip
    if rows is None:
        return []
    foreign = cores.foreign_cores([(node, *row["used"]) for node, row in zip(node_of, rows, strict=True)])
    base = dict(launch=facts.launch, started_at=started_at, clock=world.clock, warmup=warmup, stop_reason=reason,
                oversubscribed=facts.oversubscribed, foreign_cores=None if foreign is None else round(foreign, 2),
                binding_us=facts.binding_us)  # fmt: skip
    return [
        _sample(Sample(point, **base), [rows[m] for m in point.members], {name: samples[name][i] for name in names})
        for i, point in enumerate(points)
    ]


def _nothing() -> None:
    """The run of a rank that belongs to no group of the step."""


def _places(groups: dict[str, list[int]], node_of: list[int]) -> dict[str, list[int]]:
    return {name: [len(ranks), len({node_of[rank] for rank in ranks})] for name, ranks in groups.items()}


def _wires(world, record: Layer, points: list[Point]) -> tuple[Tape, dict[str, Wire], dict[str, list[int]]]:
    """The tape, the wires of this rank and the world ranks of each. Every rank takes part in making all groups, in one
    order."""
    tape, wires, of_wire = Tape(), {}, {}
    grids = [record.grids(point.params, point.ranks) for point in points]
    for name in grids[0]:
        own = [group for grid in grids for group in grid[name]]
        groups = [[p.members[i] for i in group] for p, grid in zip(points, grids) for group in grid[name]]
        group = world.split(groups)
        if group is not None:
            members, of_wire[name] = next(pair for pair in zip(own, groups) if world.rank in pair[1])
            wires[name] = Wire(group, tape, name, members)
    return tape, wires, of_wire


def _runs(built: Built, tape: Tape) -> dict:
    apart = built.computes and bool(tape.counts)
    replay = tape.replay() if apart else None
    tape.stop()

    def compute():
        tape.on = False
        built.step()
        tape.on = True

    return {WHOLE: built.step, **({COMPUTE: compute, COMM: replay} if apart else {}), **built.parts}


def _agreed(world, names: list[str]) -> list[str]:
    rows = world.gather(names)
    return world.share(max(rows, key=len) if world.rank == 0 else None)


def _time(world, watches: dict, groups: int, mine: int | None, settings, mark):
    """(samples per run and group, this rank's own durations of the whole, how often it was slowest, why it ended)."""
    samples = {name: [[] for _ in range(groups)] for name in watches}
    rule = StopRule(settings.target, settings.budget_s, settings.max_samples, settings.iters)
    own, slowest, call_s, begin, order = [], 0, 0.0, time.perf_counter(), list(watches)
    while True:
        decision = None
        if world.rank == 0:
            count, reason = rule.next_block(samples[WHOLE], time.perf_counter() - begin, call_s)
            decision = min(count, _BLOCK if samples[WHOLE][0] else 1), reason  # the first sample tells what one costs
        count, reason = world.share(decision)
        if not count:
            return samples, own, slowest, reason
        for name in order:
            mark.phase(TIMED, allowance_s=10 * call_s or _BUILD_S)
            durations = watches[name](count)
            table = np.full((groups, count), -np.inf)
            if mine is not None:
                table[mine] = durations
            table = world.reduce(table, "max")
            for g in range(groups):
                samples[name][g] += table[g].tolist()
            if name == WHOLE and mine is not None:
                own += durations.tolist()
                slowest += int(np.count_nonzero(durations >= table[mine]))
        gc.collect()  # the interpreter's own collections are off while samples are taken
        order.reverse()
        call_s = sum(float(np.median(samples[name])) for name in watches) / 1e6


def _sample(sample: Sample, rows: list[dict], samples: dict[str, list[float]]) -> Sample:
    wrong = [row["wrong"] for row in rows if row["wrong"] is not None]
    error = max((row["error"] for row in rows if row["error"] is not None), default=None)
    miscounted = next((rank for rank, row in enumerate(rows) if row["counted"] != row["wanted"]), None)
    reasons = [f"{sum(wrong)} wrong tensors"] if sum(wrong) else []
    if miscounted is not None:
        row = rows[miscounted]
        reasons.append(f"rank {miscounted} of the group called {row['counted']}, by formula {row['wanted']}")
    return replace(
        sample,
        samples_us=_rounded(samples.pop(WHOLE)),
        parts_us={name: _rounded(values) for name, values in samples.items()},
        rank_median_us=_rounded(row["median"] for row in rows),
        slowest_count=tuple(row["slowest"] for row in rows),
        wrong=sum(wrong) if wrong else None,
        error_max=error if error is not None and np.isfinite(error) else None,
        flops=max(row["flops"] for row in rows),
        counted=rows[0]["counted"],
        wires=rows[0]["wires"],
        rank_facts={name: [row["facts"].get(name) for row in rows] for name in rows[0]["facts"]},
        status="wrong" if reasons else "ok",
        reason="; ".join(reasons),
    )


def _rounded(values) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)
