"""Figures computed from a sample. Times are microseconds, bandwidths GB/s with G = 10^9."""

import numpy as np

from commbench.ops import OPS
from commbench.results.records import Point, Sample
from commbench.routing.matrices import max_over_mean
from commbench.routing.recipe import sums
from commbench.timing.statistics import median_interval


def time_us(sample: Sample) -> float | None:
    """The median over samples of (by default) the maximum over ranks; None where nothing was measured."""
    return float(np.median(sample.samples_us)) if sample.samples_us else None


def interval_us(sample: Sample) -> tuple[float, float] | None:
    """The 95 % interval of that median within this launch (non-parametric); None below 6 samples."""
    return median_interval(sample.samples_us)


def bandwidth_GBps(sample: Sample, at_us: float | None) -> float | None:
    """algbw: size over the time `at_us`; None for operations without a size, and for layers."""
    if not at_us or not sample.point.size_bytes or sample.point.kind in ("layer", "kernel"):
        return None  # the time of a layer holds its computation
    return sample.point.size_bytes / at_us / 1e3


def algbw_GBps(sample: Sample) -> float | None:
    return bandwidth_GBps(sample, time_us(sample))


def bus_factor(sample: Sample) -> float | None:
    """busbw / algbw as nccl-tests defines it; None for a world of one, where no bus is used, and without a size."""
    op = OPS.get(sample.point.op)
    if op is None or not op.sized or sample.point.ranks < 2:
        return None
    return op.bus_factor(sample.point.ranks)


def busbw_GBps(sample: Sample) -> float | None:
    algbw, factor = algbw_GBps(sample), bus_factor(sample)
    return None if algbw is None or factor is None else algbw * factor


def busbw_interval_GBps(sample: Sample) -> tuple[float, float] | None:
    """The interval of interval_us as bus bandwidths, lowest first."""
    interval, factor = interval_us(sample), bus_factor(sample)
    if interval is None or factor is None or not sample.point.size_bytes:
        return None
    return bandwidth_GBps(sample, interval[1]) * factor, bandwidth_GBps(sample, interval[0]) * factor


def exposed_us(sample: Sample) -> float | None:
    """What the communication of a layer adds to its computation: the median of the whole less that of "compute"."""
    if "compute" not in sample.parts_us:
        return None
    return float(np.median(sample.samples_us) - np.median(sample.parts_us["compute"]))


def overlap(sample: Sample) -> tuple[float, tuple[float, float] | None] | None:
    """(the share of the shorter of computation and communication that hides behind the other, its 95 % interval).

    (t_compute + t_comm - t_together) / min(t_compute, t_comm) of the medians, not clamped: below 0 the two hinder each
    other. The interval is a percentile bootstrap over the samples of this launch; None below 6 samples. None for
    what has no such parts, and for a pipeline, whose whole holds the bubble.
    """
    if not {"compute", "comm"} <= set(sample.parts_us) or "bubble_us" in sample.rank_facts:
        return None
    runs = [np.array(values) for values in (sample.parts_us["compute"], sample.parts_us["comm"], sample.samples_us)]

    def share(compute, comm, together):
        return (compute + comm - together) / np.minimum(compute, comm)

    value = float(share(*(np.median(values) for values in runs)))
    if min(map(len, runs)) < 6:
        return value, None
    drawn = np.random.default_rng(0)
    medians = [np.median(drawn.choice(values, (1000, len(values))), axis=1) for values in runs]
    low, high = np.percentile(share(*medians), [2.5, 97.5])
    return value, (float(low), float(high))


def sent_received(point: Point) -> tuple[list[int], list[int]] | None:
    """What each rank sends and receives by the point's matrix, in elements; None where it has none."""
    n, matrix = len(point.members), point.params.get("matrix")
    if matrix is not None:
        square = isinstance(matrix, list | tuple) and len(matrix) == n and all(_counts(row, n) for row in matrix)
        return sums(matrix) if square else None
    both = point.params.get("sent"), point.params.get("received")
    return both if all(_counts(side, n) for side in both) else None


def _counts(values, n: int) -> bool:
    """Whether these are n whole numbers of at least 0: a journal may come from anywhere."""
    listed = isinstance(values, list | tuple) and len(values) == n
    return listed and all(type(value) is int and value >= 0 for value in values)


def load(sample: Sample) -> dict | None:
    """How uneven a traffic matrix is: `sent_max_over_mean`, `received_max_over_mean` (the own share counted), and
    `busiest_rank`, the rank of the group that sends or receives most; None without a matrix or where nothing moves."""
    both = sent_received(sample.point)
    if both is None or not any(both[0]):
        return None
    most = [max(pair) for pair in zip(*both)]
    return {
        "sent_max_over_mean": max_over_mean(both[0]),
        "received_max_over_mean": max_over_mean(both[1]),
        "busiest_rank": most.index(max(most)),
    }


def flow_words(point: Point) -> str:
    """The generated traffic of a point, "zipf:1.2, balanced:32, copies rank"; "" where it has none."""
    if point.op not in OPS or not OPS[point.op].by_matrix or "routing" not in point.params:
        return ""
    placement, copies = point.params.get("placement"), point.params.get("copies")
    return ", ".join(map(str, filter(None, [point.params["routing"], placement, copies and f"copies {copies}"])))


def load_words(sample: Sample) -> str:
    """The same in words: "sends 1 x, receives 2 x the mean, rank 0 busiest"; "" where there is none."""
    found = load(sample)
    if found is None:
        return ""
    sent, received = found["sent_max_over_mean"], found["received_max_over_mean"]
    return f"sends {sent:.3g} x, receives {received:.3g} x the mean, rank {found['busiest_rank']} busiest"


def copies_input(point: Point) -> bool:
    """True where an out-of-place time holds a copy from send to receive buffer: the library works in place only.

    commbench's own schedules copy as their plan says; that is part of the algorithm.
    """
    if point.algorithm.startswith("own:"):
        return False
    in_place_only = {
        "mpi": {"broadcast"},
        "nccl": {"reduce", "broadcast"},
        "gloo": {"all_reduce", "reduce", "broadcast"},
    }
    return not point.in_place and point.op in in_place_only.get(point.backend, ())


IMPLAUSIBLE_GBps = 2000.0  # twice the NVLink rate of a B200: nothing that is built moves as much
BUSY_CORES = 0.3  # what an idle system's own work never reaches


def disturbances(sample: Sample) -> list[str]:
    """What makes the times of a row more than the fabric's own, in a few words each."""
    said = []
    if sample.oversubscribed:
        said.append("oversubscribed")
    if (sample.foreign_cores or 0) >= BUSY_CORES:
        said.append(f"other programs used {sample.foreign_cores:.1f} cores")
    if (algbw_GBps(sample) or 0) > IMPLAUSIBLE_GBps and sample.point.ranks > 1:
        said.append("implausible: over 2 TB/s per rank, so a wait is missing or a unit is wrong")
    return said


def remarks(sample: Sample) -> list[str]:
    """Everything that a reader should know before comparing the row with another."""
    copied = ["copy in the timed call"] if copies_input(sample.point) else []
    return disturbances(sample) + copied + ([] if sample.aligned else ["buffers not aligned"])
