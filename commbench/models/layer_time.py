"""What the calls of a layer should take by models of the same run's collectives, beside what they took."""

from collections import defaultdict

from commbench.models.pieces import MIN_POINTS, Pieces, fit_pieces, predict
from commbench.results.metrics import time_us
from commbench.results.records import Sample

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_BEYOND = 2.0  # times the sizes that were measured


def collective_curves(samples: list[Sample]) -> dict[tuple, Pieces]:
    """A curve over the size for each (backend, op, ranks, nodes) that has sizes enough: the library's own choice, out
    of place, one call at a time."""
    times = defaultdict(list)
    for sample in samples:
        point, taken = sample.point, time_us(sample)
        usual = point.choice == "library" and point.timing == "isolated" and not point.in_place
        if point.op in COLLECTIVES and usual and taken and point.size_bytes and sample.status == "ok":
            times[point.backend, point.op, point.ranks, point.nodes].append((point.size_bytes, taken))
    enough = {key: pairs for key, pairs in times.items() if len({size for size, _ in pairs}) >= MIN_POINTS}
    return {key: fit_pieces(*zip(*pairs, strict=True)) for key, pairs in enough.items()}


def predicted_comm_us(sample: Sample, curves: dict[tuple, Pieces]) -> float | None:
    """Time of a layer's counted calls one after another, each of the mean size of its kind.

    None where a call has no curve for its backend and group, or its size is not within twice what was measured.
    """
    total = 0.0
    for name, (calls, size_bytes) in sample.counted.items():
        wire, _, op = name.rpartition(".")
        curve = curves.get((sample.point.backend, op, *sample.wires.get(wire, (0, 0))))
        size = size_bytes / calls if calls else 0.0
        if curve is None or not curve.size_bytes[0] / _BEYOND <= size <= curve.size_bytes[-1] * _BEYOND:
            return None
        total += calls * float(predict(curve, [size])[0])
    return total or None
