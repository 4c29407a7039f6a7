"""Figures computed from a sample. Times are microseconds, bandwidths GB/s with G = 10^9."""

import numpy as np

from commbench.ops import OPS
from commbench.results.records import Point, Sample
from commbench.timing.statistics import median_interval


def time_us(sample: Sample) -> float | None:
    """The median over samples of (by default) the maximum over ranks; None where nothing was measured."""
    return float(np.median(sample.samples_us)) if sample.samples_us else None


def interval_us(sample: Sample) -> tuple[float, float] | None:
    """The 95 % interval of that median within this launch (non-parametric); None below 6 samples."""
    return median_interval(sample.samples_us)


def bandwidth_GBps(sample: Sample, at_us: float | None) -> float | None:
    """algbw: size over the time `at_us`; None for operations without a size."""
    if not at_us or not sample.point.size_bytes:
        return None
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
