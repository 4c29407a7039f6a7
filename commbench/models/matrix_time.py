"""The time of a traffic matrix from exchanges of equal shares, within nodes and between them.

Equal shares among the ranks of a node give the time as a curve over the bytes that a rank's port moves; equal shares
among the same ranks on the same number of nodes, as a curve over the bytes of a NIC. A matrix then takes as long as
the busiest port would: the busiest rank within its node, or the busiest NIC, in the direction in which it moves more.
Skew that costs more or less than that (waiting, sharing, protocols by message size) shows as a difference.

Single pairs would be a poorer ruler: over TCP Gloo's exchange between two ranks alone runs both directions at once in
some calls and one after the other in others.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commbench.ops import OPS
from commbench.ops.op import call_of
from commbench.results.metrics import load, time_us
from commbench.results.records import Point, Sample
from commbench.world.dtypes import DTYPES

PARTED = 0.2  # of the predicted time: from there on a row says that the two part
_EVEN = 1.01  # max over mean up to which shares count as equal
_SIZES_LEAST = 3


@dataclass(frozen=True)
class Ports:
    """The busiest ports of a matrix, the larger of what it sends and receives: a rank within its node (own share left
    out), a NIC between nodes. `*_who` names the port and the direction."""

    intra_bytes: int
    intra_who: str
    inter_bytes: int
    inter_who: str


@dataclass(frozen=True)
class MatrixTime:
    """The predicted time, and the port that it hangs on."""

    time_us: float
    busiest: str


@dataclass(frozen=True)
class Curve:
    """Median times over rising bytes of the busiest port: a straight line between two sizes, the time of the smallest
    below it, the last line beyond the largest."""

    size_bytes: np.ndarray
    time_us: np.ndarray

    def at(self, size_bytes: int) -> float:
        if size_bytes <= self.size_bytes[-1]:
            return float(np.interp(size_bytes, self.size_bytes, self.time_us))
        slope = np.diff(self.time_us[-2:])[0] / np.diff(self.size_bytes[-2:])[0]
        return float(self.time_us[-1] + max(slope, 0) * (size_bytes - self.size_bytes[-1]))


def ports(matrix_bytes, members, node_of, nic_of) -> Ports:
    """The busiest ports of a matrix of bytes between the world ranks `members`; node_of and nic_of are by world rank.

    A NIC's ports are shared by the ranks with equal (node, NIC).
    """
    moved = np.array(matrix_bytes, dtype=np.int64)
    np.fill_diagonal(moved, 0)
    nodes = np.array([node_of[rank] for rank in members])
    inside = nodes[:, None] == nodes
    nics = [(node_of[rank], nic_of[rank]) for rank in members]
    order = sorted(set(nics), key=nics.index)
    which = np.array([order.index(nic) for nic in nics])
    ranks = [(int((moved * inside).sum(axis)[i]), f"rank {r} {word} within its node")
             for axis, word in _WAYS for i, r in enumerate(members)]  # fmt: skip
    cards = []
    for axis, word in _WAYS:
        total = np.bincount(which, weights=(moved * ~inside).sum(axis), minlength=len(order))
        for (node, nic), value in zip(order, total):
            cards.append((int(value), f"node {node}{f', NIC {nic}' if nic is not None else ''} {word} between nodes"))
    return Ports(*max(ranks, key=lambda port: port[0]), *max(cards, key=lambda port: port[0]))


_WAYS = ((1, "sends"), (0, "receives"))


def moved_bytes(point: Point) -> list[list[int]]:
    """What each rank of the point's group sends to each, in bytes, padding counted. Raises MeasureError where its
    recipe makes another matrix here."""
    op, call, itemsize = OPS[point.op], call_of(point), DTYPES[point.dtype].itemsize
    if op.by_matrix and point.op != "all_to_all_padded":
        return [[cell * itemsize for cell in row] for row in call.matrix]
    return [[op.send(call, rank) // call.world_size * itemsize] * call.world_size for rank in call.everyone]


def curves(samples: list[Sample], node_of, nic_of) -> dict[tuple, Curve]:
    """{(backend, timing, nodes, ranks): time over the bytes of the busiest port}, from the exchanges of equal shares
    (no routers') among these rows: of a rank within one node, of a NIC where there are several."""
    found = defaultdict(list)
    for sample in samples:
        point = sample.point
        if not _even(sample) or not _placed(point, node_of):
            continue
        busiest = ports(moved_bytes(point), point.members, node_of, nic_of)
        size = busiest.intra_bytes if point.nodes == 1 else busiest.inter_bytes
        if size:
            found[point.backend, point.timing, point.nodes, point.ranks].append((size, time_us(sample)))
    return {key: curve for key, rows in found.items() if len((curve := _curve(rows)).size_bytes) >= _SIZES_LEAST}


def _curve(rows: list[tuple[int, float]]) -> Curve:
    sizes = sorted({size for size, _ in rows})
    times = [float(np.median([time for size, time in rows if size == one])) for one in sizes]
    return Curve(np.array(sizes, float), np.array(times))


def _even(sample: Sample) -> bool:
    point = sample.point
    if sample.status != "ok" or not sample.samples_us or point.algorithm != "library" or point.in_place:
        return False
    if "routing" in point.params:  # what is to be predicted is no part of what it is predicted from
        return False
    if point.op == "all_to_all":
        return True
    found = load(sample) if point.op == "all_to_all_v" else None
    return found is not None and max(found["sent_max_over_mean"], found["received_max_over_mean"]) <= _EVEN


def _placed(point: Point, node_of) -> bool:
    """Whether it is known where its ranks are, and how wide its elements."""
    known = bool(point.members) and 0 <= min(point.members) and max(point.members) < len(node_of)
    return known and point.ranks == len(point.members) and point.nodes > 0 and point.dtype in DTYPES


def matrix_time(point: Point, fitted: dict[tuple, Curve], node_of, nic_of) -> MatrixTime | None:
    """What a point's matrix should take by the curves of `curves`; None where they do not hold what it needs: the
    curve of one node with as many ranks, and of as many ranks on as many nodes, for the parts that are not empty."""
    if not _placed(point, node_of):
        return None
    busiest = ports(moved_bytes(point), point.members, node_of, nic_of)
    per_node = point.ranks // point.nodes
    parts = []
    for nodes, ranks, size, who in (
        (1, per_node, busiest.intra_bytes, busiest.intra_who),
        (point.nodes, point.ranks, busiest.inter_bytes, busiest.inter_who),
    ):
        if not size:
            continue
        curve = fitted.get((point.backend, point.timing, nodes, ranks))
        if curve is None:
            return None
        parts.append(MatrixTime(curve.at(size), who))
    return max(parts, key=lambda part: part.time_us, default=None)


def parted(measured_us: float, predicted_us: float) -> float | None:
    """How far the measured time lies from the predicted one, as a share of that; None within PARTED of it."""
    off = measured_us / predicted_us - 1
    return off if abs(off) > PARTED else None
