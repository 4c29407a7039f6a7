"""The loop: a step is shared, timed, checked, and its lines are written, before the next one begins.

Every rank runs `measure`. Rank 0 alone draws the steps and writes; whatever decides what happens next is either
reduced over all ranks (so all hold the same number) or decided by rank 0 and shared, and always outside timed regions.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from commbench.ops import OPS, algorithms
from commbench.ops.op import Op, call_of
from commbench.ops.prepared import Buffers, Prepared
from commbench.results.plan import Settings
from commbench.results.records import Point, Sample
from commbench.timing import cores, stopwatch
from commbench.timing.stop_rule import StopRule
from commbench.world import splits
from commbench.world.progress import CHECK, EXCHANGE, FILL, TIMED, WARMUP

_MOST_OF_A_SOAK = 1_000_000  # samples: 10 MB of its line in the journal


@dataclass(frozen=True)
class Facts:
    """What a launch knows about all of its rows; rank 0 alone needs it."""

    launch: int
    oversubscribed: bool
    binding_us: float | None
    node_of: list[int]
    seen: dict  # "op size_bytes" or "op" -> [algorithm, protocol], as a probe launch of the whole world saw it
    foreign_cores: float | None = None  # set for each step


def measure(world, steps: Iterable, journal, settings: Settings, facts: Facts, mark) -> None:
    """Measure the steps that rank 0 draws, and write their lines.

    `steps` yields (number, points) and is read on rank 0 only; `mark` is this rank's progress row.
    """
    buffers = Buffers(world)
    drawn = iter(steps) if world.rank == 0 else None
    while True:
        mark.phase(EXCHANGE)
        message = world.share(_next_message(drawn, journal, facts) if world.rank == 0 else None)
        if message is None:
            return
        points = [Point.from_json(data) for data in message["points"]]
        mark.phase(FILL, step=message["number"], allowance_s=_pass_s(points))
        samples = _run_step(world, points, buffers, settings, facts, mark)
        if world.rank == 0:
            journal.write(*(sample.to_json() for sample in samples))


def _next_message(drawn, journal, facts: Facts) -> dict | None:
    """The next step to run, after the lines of points that are known not to run."""
    for number, points in drawn:
        if points[0].status == "ok":
            return {"number": number, "points": [point.to_json() for point in points]}
        for point in points:
            skipped = Sample(point, facts.launch, now(), status=point.status, reason=point.reason)
            journal.write(skipped.to_json())
    return None


def _run_step(world, points, buffers, settings: Settings, facts: Facts, mark) -> list[Sample]:
    started_at = now()
    if points[0].kind == "layer":
        from commbench.measure_layer import run_layer_step  # loads torch, which a rank under MPI may do without

        def stopwatch_of(run):
            return _stopwatch(world, run, "isolated", 1, settings, mark)

        return run_layer_step(world, points, settings, facts, mark, started_at, stopwatch_of)
    op = OPS[points[0].op]
    groups = [list(point.members) for point in points]
    mine = next((i for i, members in enumerate(groups) if world.rank in members), None)
    group = world.split(groups)
    prepared = Prepared(world, group, points[mine], buffers) if mine is not None else None
    if prepared:
        prepared.refill()
    run = prepared.run if prepared else _nothing
    counts = mine is not None and (op.clock_ranks is None or prepared.rank in op.clock_ranks(prepared.call))
    if op.by_matrix and (refusal := _disagreement(world, group, prepared)):
        return [Sample(point, facts.launch, started_at, status="error", reason=refusal) for point in points]

    mark.phase(WARMUP)
    warmup, call_s = _warm_up(world, run, settings, mark)
    batch = points[0].batch
    take = _stopwatch(world, run, points[0].timing, batch, settings, mark)
    before = cores.used()
    rule = _stop_rule(points[0], settings)
    timed = _time(world, take, len(points), mine if counts else None, rule, call_s, batch, mark)

    used = [None if None in pair else pair[1] - pair[0] for pair in zip(before, cores.used(), strict=True)]
    mark.phase(CHECK, allowance_s=10 * call_s + settings.checks * _pass_s(points))
    wrong, error_max = _check(world, prepared, run, settings.checks)

    mark.phase(EXCHANGE)
    messages = op.messages(prepared.call) if prepared else 1
    mine_row = {
        "median": float(np.median(timed.own)) / messages if counts else None,
        "slowest": timed.slowest, "used": used, "wrong": wrong, "error": error_max,
        "aligned": prepared.aligned if prepared else True,
    }  # fmt: skip
    rows = world.gather(mine_row)
    if rows is None:
        return []
    foreign = cores.foreign_cores([(node, *row["used"]) for node, row in zip(facts.node_of, rows, strict=True)])
    facts = replace(facts, foreign_cores=foreign)
    return [
        _sample(op, point, [rows[m] for m in point.members], timed, i, warmup, started_at, world.clock, facts)
        for i, point in enumerate(points)
    ]


def _disagreement(world, group, prepared: Prepared | None) -> str | None:
    """Why an exchange by matrix would hang: two ranks whose tables differ. The same on every rank."""
    if prepared is None:
        return splits.disagreement(world, None, (), (), ())
    matrix, rank = prepared.call.matrix, prepared.rank
    receives = [row[rank] for row in matrix]
    return splits.disagreement(world, group, prepared.point.members, matrix[rank], receives)


def _pass_s(points) -> float:
    """Seconds that a slow host may take to fill or to check the buffers of a step: 100 MB/s, pages touched first."""
    return sum(max(point.send_bytes, point.recv_bytes) for point in points) / 1e8


def _nothing() -> None:
    """The call of a rank that belongs to no group of the step."""


def _warm_up(world, run, settings: Settings, mark) -> tuple[int, float]:
    """(calls made, seconds per call on the slowest rank). At most `warmup` calls and about `warmup_s` seconds."""

    def timed(calls: int) -> float:
        world.align()
        begin = time.perf_counter()
        for i in range(calls):
            mark.call(i)
            run()
        world.finish()
        seconds = float(world.reduce(np.array([time.perf_counter() - begin]), "max")[0])
        return seconds / max(calls, 1)

    first_s = timed(1)
    rest = max(0, min(settings.warmup - 1, int(settings.warmup_s / max(first_s, 1e-9)))) if settings.warmup else 0
    return 1 + rest, timed(rest) if rest else first_s


def _stopwatch(world, run, timing: str, batch: int, settings: Settings, mark):
    """The function that takes k samples on this rank and returns their durations in microseconds."""
    clock = stopwatch
    if world.clock == "cuda_event":
        from commbench.timing import cuda as clock

        if settings.graph:
            run = clock.captured(run, settings.graph)
            replays = max(1, batch // settings.graph)
            return lambda k: clock.streaming(run, world.align, k, replays, mark.call) / settings.graph
    if timing == "isolated":
        return lambda k: clock.isolated(run, world.align, k, mark.call)
    return lambda k: clock.streaming(run, world.align, k, batch, mark.call)


@dataclass
class _Timed:
    """samples and spreads per group (maximum, and maximum minus minimum over ranks), this rank's own durations."""

    samples: list[list[float]]
    spreads: list[list[float]]
    own: list[float]
    slowest: int = 0
    stop_reason: str = ""


def _stop_rule(point: Point, settings: Settings) -> StopRule:
    """A soak goes on for its time, however precise its median is."""
    if soak_s := point.params.get("soak_s"):
        return StopRule(target=-1.0, budget_s=soak_s, max_samples=_MOST_OF_A_SOAK, fixed=settings.iters)
    return StopRule(settings.target, settings.budget_s, settings.max_samples, settings.iters)


def _time(world, take, groups: int, mine: int | None, rule: StopRule, call_s: float, batch: int, mark) -> _Timed:
    """Blocks of samples until the stop rule ends it. `mine`: this rank's group, None where its clock does not count.

    `call_s` is what one call was seen to take; a sample takes `batch` of them.
    """
    timed = _Timed([[] for _ in range(groups)], [[] for _ in range(groups)], [])
    begin = time.perf_counter()
    while True:
        decision = None
        if world.rank == 0:
            decision = rule.next_block(timed.samples, time.perf_counter() - begin, call_s * batch)
        count, reason = world.share(decision)
        if not count:
            timed.stop_reason = reason
            return timed
        mark.phase(TIMED, allowance_s=10 * call_s * batch)
        own = take(count)
        table = np.full((2 * groups, count), -np.inf)
        if mine is not None:
            table[mine], table[groups + mine] = own, -own
        table = world.reduce(table, "max")
        for g in range(groups):
            timed.samples[g] += table[g].tolist()
            timed.spreads[g] += (table[g] + table[groups + g]).tolist()
        if mine is not None:
            timed.slowest += int(np.count_nonzero(own >= table[mine]))
            timed.own += own.tolist()
        call_s = float(np.median(timed.samples)) / 1e6


def _check(world, prepared: Prepared | None, run, times: int) -> tuple[int | None, float | None]:
    """(wrong elements on this rank, largest error) over `times` calls on fresh data; None where nothing is checked."""
    checkable = prepared is not None and prepared.checkable
    wrong, error_max = (0, 0.0) if checkable and times else (None, None)
    for _ in range(times):
        if prepared:
            prepared.refill()
        world.align()
        run()
        world.align()
        if checkable:
            found = prepared.wrong()
            wrong, error_max = wrong + found[0], max(error_max, found[1])
    return wrong, error_max


def _sample(op: Op, point: Point, rows, timed: _Timed, i: int, warmup, started_at, clock, facts: Facts) -> Sample:
    messages = op.messages(call_of(point))
    samples = [value / messages for value in timed.samples[i]]
    medians = [row["median"] for row in rows]
    counted = [median for median in medians if median is not None]
    if point.over_ranks != "max":
        samples = [{"mean": np.mean, "min": np.min, "rank0": lambda m: m[0]}[point.over_ranks](counted)]
    checked = [row["wrong"] for row in rows if row["wrong"] is not None]
    wrong = sum(checked) if checked else None
    errors = [row["error"] for row in rows if row["error"] is not None]
    error_max = max(errors) if errors else None
    algorithm, protocol = algorithms.seen(point, facts.seen)
    return replace(
        Sample(point, facts.launch, started_at),
        clock=clock,
        warmup=warmup,
        samples_us=tuple(round(float(value), 4) for value in samples),
        rank_median_us=tuple(None if m is None else round(m, 4) for m in medians),
        slowest_count=tuple(row["slowest"] for row in rows),
        skew_us=round(float(np.median(timed.spreads[i])), 4) if op.synchronising and len(rows) > 1 else None,
        foreign_cores=None if facts.foreign_cores is None else round(facts.foreign_cores, 2),
        binding_us=facts.binding_us,
        aligned=all(row["aligned"] for row in rows),
        oversubscribed=facts.oversubscribed,
        stop_reason=timed.stop_reason,
        wrong=wrong,
        # An error that is no number (NaN in the output) cannot stand in JSON; the count of wrong elements tells it.
        error_max=error_max if error_max is not None and np.isfinite(error_max) else None,
        algorithm_seen=algorithm,
        protocol_seen=protocol,
        status="wrong" if wrong else "ok",
        reason=f"{wrong} wrong elements" if wrong else "",
    )


def now() -> str:
    """The time of day in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
