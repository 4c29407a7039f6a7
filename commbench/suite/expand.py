"""From a suite to the steps of a plan: every combination of its axes as points with all their sizes worked out."""

from dataclasses import replace
from itertools import product

from commbench.errors import UsageError
from commbench.ops import OPS, algorithms
from commbench.ops.capabilities import refusal
from commbench.ops.op import call_of
from commbench.results.records import Point
from commbench.routing.routing import Unreachable
from commbench.suite import traffic
from commbench.suite.groups import NotHere, split_rounds
from commbench.suite.schema import Measure, Suite
from commbench.world.dtypes import DTYPES

_MPI_COUNT = 2**31 - 1


def expand(
    suite: Suite, ranks: int, backends: list[str], node_of: list[int], joined: bool = False
) -> tuple[tuple[Point, ...], ...]:
    """The steps of `suite`; equal points appear once. `ranks` is the world size where a measure names none of its own,
    and rank r lives on node node_of[r] (all on the last one beyond its end).

    `joined`: the world is what a launcher started, so a measure that wants another size is skipped.
    What a backend cannot do becomes a point of status "skip" with the reason. Raises UsageError for a split or a matrix
    that does not fit the world, and when no measure is for any of `backends`.
    """
    steps, seen = [], set()
    for backend in backends:
        for measure in suite.measure:
            if backend not in (measure.backend or backends):
                continue
            world_size = measure.ranks or ranks
            rooted = any(OPS[name].rooted and not OPS[name].group_size for name in measure.op)
            if rooted and max(measure.root) >= world_size:
                last = world_size - 1
                raise UsageError(f"root {max(measure.root)} is not in the world, which has ranks 0 to {last}")
            nodes = node_of + node_of[-1:] * (world_size - len(node_of))
            for step in _steps_of(measure, backend, world_size, nodes):
                if joined and world_size != ranks:
                    reason = f"wants a world of {world_size} ranks, the launcher started {ranks}"
                    step = tuple(_skipped(point, ranks, reason) for point in step)
                ids = tuple(point.id for point in step)
                if ids not in seen:
                    seen.add(ids)
                    steps.append(step)
    if not steps:
        raise UsageError(
            f"nothing would be measured: no [[measure]] of the suite is for backend {' or '.join(backends)}"
        )
    points = [point for step in steps for point in step]
    if all(point.kind == "layer" and point.status == "skip" for point in points):
        raise UsageError(points[0].reason)
    return tuple(steps)


def _steps_of(measure: Measure, backend: str, ranks: int, node_of: list[int]):
    if not measure.layer:
        return _steps(measure, backend, ranks, node_of)
    from commbench.suite.layers import layer_steps  # loads torch

    return layer_steps(measure, backend, ranks, node_of)


def _steps(measure: Measure, backend: str, ranks: int, node_of: list[int]):
    for name, choice, split in product(measure.op, measure.algorithm, measure.split):
        op = OPS[name]
        algorithm, protocol = algorithms.parse(choice)
        axes = product(
            measure.dtype if op.sized else [op.fixed_dtype or "float32"],
            measure.redop if op.reduces else ["none"],
            measure.root if op.rooted else [-1],
            _in_place(measure, op),
            measure.timing,
            measure.window if op.windowed else [1],
            traffic.choices(measure) if op.by_matrix else [None],
            measure.size if op.sized else [0],
        )
        for dtype, redop, root, in_place, timing, window, flow, size in axes:
            for batch in measure.batch if timing == "streaming" else [1]:
                point = Point(
                    op=name,
                    backend=backend,
                    size_bytes=0,
                    world_size=ranks,
                    kind=op.kind,
                    algorithm=algorithm,
                    protocol=protocol,
                    dtype=dtype,
                    redop=redop,
                    root=root,
                    in_place=in_place,
                    timing=timing,
                    batch=batch,
                )
                try:
                    rounds = _rounds(split, op, node_of[:ranks])
                except NotHere as none:
                    yield (_absent(point, split, size, str(none)),)
                    continue
                for groups in rounds:
                    points = [_placed(point, label, own, size, window, flow, measure, node_of) for label, own in groups]
                    # A step is measured or skipped as a whole, so groups that cannot run are a step of their own.
                    for status in ("ok", "skip"):
                        if step := tuple(p for p in points if p.status == status):
                            yield step


def _absent(point: Point, split: str, size: int, reason: str) -> Point:
    """The row for groups that this world does not have."""
    return replace(point, group=split, params={"requested_bytes": size}, status="skip", reason=reason)


def _skipped(point: Point, ranks: int, reason: str) -> Point:
    """A point for a world that is not there, as a row of the one that is; it keeps an id of its own."""
    params = {**point.params, "wanted_world_size": point.world_size}
    return replace(point, world_size=ranks, params=params, status="skip", reason=reason)


def _in_place(measure: Measure, op) -> list[bool]:
    """The wanted placements; in-place is left out where the operation has none, unless nothing else was asked for."""
    if op.in_place is None and False in measure.in_place:
        return [False]
    return list(dict.fromkeys(measure.in_place))


def _rounds(split: str, op, node_of: list[int]):
    ranks = len(node_of)
    if op.group_size == 2 and split == "all" and ranks > 2:
        return [[(f"0,{ranks - 1}", (0, ranks - 1))]]  # the pair that is farthest apart in most rank orders
    return split_rounds(split, node_of)


def _placed(point: Point, label: str, members, size: int, window: int, flow, measure: Measure, node_of) -> Point:
    """The point on one group of a split. `flow`: its traffic, where it follows a matrix (suite/traffic.py)."""
    op, n = OPS[point.op], len(members)
    nodes = len({node_of[rank] for rank in members})
    params = {"align_bytes": measure.align} if measure.align > 1 else {}
    if op.windowed:
        params["window"] = window
    if measure.soak_s:
        params["soak_s"] = measure.soak_s
    scope = "intra" if nodes == 1 else "inter" if nodes == n else "mixed"
    point = replace(point, group=label, members=members, ranks=n, nodes=nodes, scope=scope, params=params)
    if op.by_matrix:
        try:
            params |= traffic.params_of(measure, flow, [node_of[rank] for rank in members])
        except Unreachable as bound:
            asked = {key: value for key, value in flow.items() if value not in ("linear", "selection")}
            params |= asked | {"requested_bytes": size}
            return replace(point, status="skip", reason=str(bound))
    return at_size(point, size, node_of)


def at_size(point: Point, size: int, node_of: list[int]) -> Point:
    """`point` with `size` bytes asked for: its counts, its bytes, and whether it can be measured at all.

    A traffic matrix of whatever size gives the shares of the new one.
    """
    op, n, itemsize = OPS[point.op], point.ranks, DTYPES[point.dtype].itemsize
    count = op.count(size // itemsize, n)
    if op.count(itemsize * n, n) != itemsize * n:  # an operation on blocks: nccl-tests rounds blocks, not whole buffers
        count -= count % max(1, point.params.get("align_bytes", 1) // itemsize)
    params = {**point.params, "requested_bytes": size} if op.sized else dict(point.params)
    if op.by_matrix:
        params |= traffic.at_size(point.params, n, count)
    point = replace(point, params=params, count=count)
    reason = refusal(point.backend, point.op, point.dtype, point.redop, point.in_place, n)
    if reason is None and op.group_size and n > op.group_size:
        reason = f"{op.name} runs between {op.group_size} ranks, the group has {n}"
    if reason is None and point.root >= n:
        reason = f"root {point.root} is not in the group, which has ranks 0 to {n - 1}"
    call = call_of(point)
    if reason is None and point.backend == "mpi" and _elements_of_one_call(op, call, point) > _MPI_COUNT:
        reason = (
            f"one MPI call takes at most {_MPI_COUNT} elements (its counts are C ints); a wider dtype moves more bytes"
        )
    if reason is None:
        reason = algorithms.refusal(point, [node_of[rank] for rank in point.members])
    if reason is not None:
        return replace(point, status="skip", reason=reason)
    size_bytes = op.size(call) * itemsize
    return replace(
        point,
        params=params | algorithms.params(point, [node_of[rank] for rank in point.members], size_bytes),
        size_bytes=size_bytes,
        send_bytes=max(op.send(call, rank) for rank in range(n)) * itemsize,
        recv_bytes=max(op.recv(call, rank) for rank in range(n)) * itemsize,
    )


def _elements_of_one_call(op, call, point: Point) -> int:
    """The largest count, or offset between blocks, that a call hands to MPI."""
    whole = op.by_matrix or point.algorithm.startswith(algorithms.OWN)
    return op.size(call) if whole else call.count
