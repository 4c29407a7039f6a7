"""How many times faster a rank talks within its node than between nodes: the measured ratio, and the datasheet's.

Both sides are one-way payload rates of the same operation at the same size:
ratio_p2p   a pair within a node over a pair between nodes, each alone (p2p_bw)
ratio_ring  all_gather busbw of one node over that of one rank per node: the headline
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commbench.fabrics import fabric_names, load_fabric
from commbench.models.launches import interval_over_launches
from commbench.results.metrics import busbw_GBps, busbw_interval_GBps
from commbench.results.records import Sample
from commbench.results.store import Run
from commbench.units import format_size

RATIOS = {"ratio_p2p": "p2p_bw", "ratio_ring": "all_gather"}


@dataclass(frozen=True)
class Side:
    """One side: busbw in GB/s, with its interval where there is one, of `groups` groups (the median of them)."""

    busbw_GBps: float
    low_GBps: float | None
    high_GBps: float | None
    groups: int


@dataclass(frozen=True)
class Ratio:
    """`name` of RATIOS at `size_bytes`, the largest that both sides have. `label`: what the interval rests on."""

    name: str
    backend: str
    size_bytes: int
    value: float
    low: float | None
    high: float | None
    label: str
    intra: Side
    inter: Side
    oversubscribed: bool


def ratios(samples: list[Sample]) -> list[Ratio]:
    """Every ratio that the rows determine, by backend. Rows that are not ok take no part."""
    found = defaultdict(lambda: defaultdict(list))  # (name, backend, how measured): (size, scope): samples
    alone = {"rail 0"} | ({"rail #0"} if all(sample.point.group != "rail #1" for sample in samples) else set())
    for sample in samples:
        name = _name(sample, alone)
        if name and busbw_GBps(sample):
            point = sample.point
            way = (name, point.backend, point.dtype, point.timing, point.params.get("window"))
            asked = point.params.get("requested_bytes")  # three nodes share out a few bytes less
            found[way][asked if type(asked) is int else point.size_bytes, point.scope].append(sample)
    made = []
    for (name, backend, *_), by_size in found.items():
        both = [size for size, scope in by_size if scope == "intra" and (size, "inter") in by_size]
        if both:
            size = max(both)
            made.append(_ratio(name, backend, size, by_size[size, "intra"], by_size[size, "inter"]))
    return made


def _name(sample: Sample, alone: set[str]) -> str | None:
    """The ratio that a row belongs to. `alone`: groups of one rank per node that no other rail hindered."""
    point, group = sample.point, sample.point.group
    if sample.status != "ok" or point.algorithm != "library" or point.scope == "mixed":
        return None
    if point.op == "p2p_bw" and group.startswith("pair "):
        return "ratio_p2p"
    if point.op == "all_gather" and (group.startswith("node #") or group in alone) and point.ranks > 1:
        return "ratio_ring"
    return None


def _ratio(name: str, backend: str, size: int, intra: list[Sample], inter: list[Sample]) -> Ratio:
    of_launch = {}
    for launch in sorted({s.launch for s in intra} & {s.launch for s in inter}):
        sides = [[busbw_GBps(s) for s in side if s.launch == launch] for side in (intra, inter)]
        of_launch[launch] = float(np.median(sides[0]) / np.median(sides[1]))
    sides = _side(intra), _side(inter)
    interval = interval_over_launches(list(of_launch.values()) or [sides[0].busbw_GBps / sides[1].busbw_GBps])
    low, high, label = interval.low, interval.high, interval.label
    if low is None and None not in (sides[0].low_GBps, sides[1].low_GBps):
        # Within one launch: the ends of both intervals against each other, which is wider than it need be.
        low, high = sides[0].low_GBps / sides[1].high_GBps, sides[0].high_GBps / sides[1].low_GBps
        label = "within-launch only"
    crowded = any(sample.oversubscribed for sample in (*intra, *inter))
    return Ratio(name, backend, size, interval.estimate, low, high, label, *sides, crowded)


def _side(samples: list[Sample]) -> Side:
    launches = sorted({sample.launch for sample in samples})
    rates = [float(np.median([busbw_GBps(s) for s in samples if s.launch == launch])) for launch in launches]
    groups = len({sample.point.group for sample in samples})
    if len(launches) == 1:
        spans = [busbw_interval_GBps(sample) for sample in samples]
        low, high = (None, None) if None in spans else (min(s[0] for s in spans), max(s[1] for s in spans))
        return Side(rates[0], low, high, groups)
    interval = interval_over_launches(rates)
    return Side(interval.estimate, interval.low, interval.high, groups)


def sentence(ratio: Ratio, sheet: tuple[str, float, float] | None, of_lab: float | None = None) -> str:
    """The ratio in one line, with both sides, and what it is held against where that is known: the datasheet's in both
    conventions, or that of the rates that were set in a lab."""
    span = "no interval" if ratio.low is None else f"{ratio.low:.4g} to {ratio.high:.4g}, {ratio.label}"
    told = (
        f"{ratio.name} {ratio.value:.4g} ({span}): {ratio.intra.busbw_GBps:.4g} GB/s within a node over "
        f"{ratio.inter.busbw_GBps:.4g} GB/s between nodes, one way, {RATIOS[ratio.name]} of "
        f"{format_size(ratio.size_bytes)} over {ratio.backend}"
    )
    if sheet:
        told += f"; datasheet of {sheet[0]}: {sheet[1]:.3g} one way, {sheet[2]:.3g} as both directions over one"
    told += f"; set in the lab: {of_lab:.4g}" if of_lab else ""
    return told + ("; oversubscribed, so no measure of the links" if ratio.oversubscribed else "")


def gpus_of(run: Run) -> list[str]:
    """Names of the GPUs of a run, as its launches' headers tell them."""
    nodes = [node for launch in run.launches for node in launch.header.get("nodes", [])]
    named = [gpu.get("name") for node in nodes for gpu in node.get("gpus") or [] if isinstance(gpu, dict)]
    return [name for name in named if isinstance(name, str)]


def datasheet(gpu_names: list[str]) -> tuple[str, float, float] | None:
    """(fabric, ratio of one-way rates, ratio as it is often quoted: both directions over one) by the datasheet of the
    shipped fabric for these GPUs; None where there is none, or the GPUs differ.

    The well-known 18 for H100 divides 900 GB/s of both directions by 50 GB/s of one; one way it is 450 : 50 = 9.
    """
    fabrics = {name.split("-")[0].upper(): name for name in fabric_names()}
    known = {
        fabrics.get(word) for gpu in gpu_names for word in gpu.upper().replace("-", " ").split() if word in fabrics
    }
    if len(known) != 1 or not gpu_names:
        return None
    fabric = load_fabric(known.pop())
    one_way = fabric.intra.nominal_GBps / fabric.inter.nominal_GBps
    return fabric.name, one_way, 2 * one_way
