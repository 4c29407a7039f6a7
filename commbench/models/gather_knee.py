"""The knee of sharded data parallelism: below which bucket do all_gathers of the same volume take longer?

FSDP (arXiv 2304.11277, section 3.2.1, figure 2b) gathers a fixed volume in buckets of ever fewer elements and sees the
total time rise below 33 million elements. That is the figure of one fabric; this finds the one of a run.
"""

from collections import defaultdict
from dataclasses import dataclass

from commbench.results.metrics import time_us
from commbench.results.records import Sample
from commbench.world.dtypes import DTYPES

FOLK_ELEMENTS = 33_000_000
ALLOWED = 0.1  # what a bucket may cost more than the best one


@dataclass(frozen=True)
class Knee:
    """elements: the smallest bucket from which on none costs more than ALLOWED above the best; None where the run does
    not show it, and `reason` says why. curve: (elements of a bucket, time of the whole volume over the best) ascending.
    """

    elements: int | None
    curve: tuple[tuple[int, float], ...]
    reason: str = ""


def knee(times: dict[int, float], allowed: float = ALLOWED) -> Knee:
    """The knee of {elements of a bucket: time for one and the same volume}."""
    best = min(times.values(), default=1.0)
    curve = tuple((elements, times[elements] / best) for elements in sorted(times))
    if len(curve) < 4:
        return Knee(None, curve, f"{len(curve)} bucket sizes show no knee; measure 4 or more")
    slow = [i for i, (_, over) in enumerate(curve) if over > 1 + allowed]
    if not slow:
        return Knee(None, curve, f"it lies below {curve[0][0]:,} elements, the smallest bucket of the run")
    if slow[-1] >= len(curve) - 2:
        return Knee(None, curve, f"it may lie above {curve[-1][0]:,} elements, the largest bucket of the run")
    return Knee(curve[slow[-1] + 1][0], curve)


def gather_knees(samples: list[Sample]) -> dict[tuple, Knee]:
    """The knees of the all_gathers of a run: (backend, group, ranks, dtype, timing) -> Knee.

    A bucket is what the ranks have together after the call, as FSDP counts it. Times that a size has in several
    launches count with the shortest.
    """
    found = defaultdict(dict)
    for sample in samples:
        point, time = sample.point, time_us(sample)
        if point.op != "all_gather" or not time or not point.size_bytes or sample.status != "ok" or point.ranks < 2:
            continue
        elements = point.size_bytes // DTYPES[point.dtype].itemsize
        times = found[point.backend, point.group, point.ranks, point.dtype, point.timing]
        times[elements] = min(time / elements, times.get(elements, float("inf")))
    return {key: knee(times) for key, times in found.items() if len(times) > 1}


def step_knees(samples: list[Sample]) -> dict[tuple, Knee]:
    """The knees of whole steps of the data_parallel layer over its `bucket`: (backend, group, other options) -> Knee.

    What a bucket costs hides behind computation here, so this knee lies lower, or is not there.
    """
    found = defaultdict(dict)
    for sample in samples:
        point, time = sample.point, time_us(sample)
        if point.op != "data_parallel" or not time or sample.status != "ok":
            continue
        others = tuple(sorted((key, value) for key, value in point.params.items() if key != "bucket"))
        times = found[point.backend, point.group, others]
        times[point.params["bucket"]] = min(time, times.get(point.params["bucket"], float("inf")))
    return {key: knee(times) for key, times in found.items() if len(times) > 1}
