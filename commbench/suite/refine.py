"""More sizes around the breaks of the curves that a run has measured."""

from collections import defaultdict
from dataclasses import replace

from commbench.results.metrics import time_us
from commbench.results.plan import Plan
from commbench.results.records import Point
from commbench.results.store import Run
from commbench.suite.expand import at_size

_FOLLOWS_SIZE = {"requested_bytes", "matrix", "sent", "received", "pieces"}


def refined(run: Run) -> tuple[Plan, int]:
    """(the plan of `run` with more steps at its end, how many breaks they surround); it is not to be refined again.

    A curve is one series over the sizes, from the medians of all launches. Groups of a split stay in one step, so each
    gets the sizes that any of them needs.
    """
    from commbench.models.pieces import fit_pieces, refine_sizes

    times = defaultdict(list)
    for sample in run.samples():
        if sample.status == "ok" and sample.point.size_bytes and time_us(sample):
            times[_series(sample.point)].append((sample.point.size_bytes, time_us(sample)))
    steps, breaks, known = [], 0, {point.id for point in run.plan.points()}
    for step in {tuple(map(_series, step)): step for step in run.plan.steps if step[0].status == "ok"}.values():
        curves = [fit_pieces(*zip(*times[_series(point)], strict=True)) for point in step if times[_series(point)]]
        breaks += sum(len(curve.breaks) for curve in curves)
        node_of = _node_of(run, step[0].world_size)
        for size in sorted({size for curve in curves for size in refine_sizes(curve)}):
            points = tuple(at_size(point, size, node_of) for point in step)
            if points[0].id not in known and all(point.status == "ok" for point in points):
                known |= {point.id for point in points}
                steps.append(points)
    return replace(run.plan, steps=(*run.plan.steps, *steps), refine=False, refined=len(steps)), breaks


def _series(point: Point) -> tuple:
    """All that points of one curve have in common."""
    own = tuple(sorted((key, value) for key, value in point.params.items() if key not in _FOLLOWS_SIZE))
    return (
        point.op, point.backend, point.choice, point.world_size, point.members, point.dtype, point.redop, point.root,
        point.in_place, point.timing, point.batch, point.over_ranks, own,
    )  # fmt: skip


def _node_of(run: Run, world_size: int) -> list[int]:
    """The node of each rank, as a launch of that many ranks has told it."""
    headers = [launch.header for launch in run.launches if len(launch.header.get("ranks", ())) == world_size]
    return [place["node"] for place in headers[-1]["ranks"]]
