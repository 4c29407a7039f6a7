"""How the best layout changes with the ratio of the links: the step time of each tp over NVLink : NIC."""

from dataclasses import dataclass, replace

import numpy as np

from commbench.fabrics import Fabric
from commbench.planning.layout import Job
from commbench.planning.links import fabric_links
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.search import Candidate, Limits, distinct, search
from commbench.planning.step import account
from commbench.shapes import Shape

CUTS_KEPT = 6  # of each tp, at each of three ratios: which of them leads changes little between


@dataclass(frozen=True)
class BreakEven:
    """step_us[tp][i] at ratio[i], the best layout of that tp; changes: (ratio, tp below, tp above)."""

    ratio: np.ndarray
    step_us: dict[int, np.ndarray]
    changes: list[tuple[float, int, int]]


def with_ratio(fabric: Fabric, ratio: float) -> Fabric:
    """The fabric with links within a domain `ratio` times as fast as a rank's share of the NICs (payload, one way)."""
    share = fabric.inter.bandwidth_GBps * fabric.nics_per_node / fabric.ranks_per_node
    scale = ratio * share / fabric.intra.bandwidth_GBps
    intra = replace(
        fabric.intra,
        bandwidth_GBps=fabric.intra.bandwidth_GBps * scale,
        nominal_GBps=fabric.intra.nominal_GBps * scale,
    )
    switch = fabric.in_switch
    if switch:
        switch = replace(switch, bandwidth_GBps=switch.bandwidth_GBps * scale)
    return replace(fabric, intra=intra, in_switch=switch)


def break_even(
    shape: Shape, job: Job, machine: Machine, fabric: Fabric, assume: Assumptions, limits: Limits
) -> BreakEven:
    """The best step time of each tp over ratios from 1 to 32, and where the best tp changes.

    Layouts are searched at the two ends and in the middle; between them the best of those are timed again.
    """
    ratio = np.geomspace(1, 32, 41)
    kept: dict[int, dict] = {}
    for end in (ratio[0], ratio[len(ratio) // 2], ratio[-1]):
        at = replace(machine, links=fabric_links(with_ratio(fabric, float(end))))
        for one in _leading(search(shape, job, at, assume, limits).candidates):
            kept.setdefault(one.layout.tp, {})[one.layout] = None
    step_us = {tp: np.empty(len(ratio)) for tp in sorted(kept)}
    for i, r in enumerate(ratio):
        at = replace(machine, links=fabric_links(with_ratio(fabric, float(r))))
        for tp, layouts in kept.items():
            step_us[tp][i] = min(account(shape, layout, job, at, assume).step_us for layout in layouts)
    return BreakEven(ratio, step_us, _changes(ratio, step_us))


def _leading(candidates: list[Candidate]) -> list[Candidate]:
    found = []
    for tp in {c.layout.tp for c in candidates}:
        found += distinct([c for c in candidates if c.layout.tp == tp], CUTS_KEPT)
    return found


def _changes(ratio: np.ndarray, step_us: dict[int, np.ndarray]) -> list[tuple[float, int, int]]:
    """Where the fastest tp changes, interpolated between two ratios on the logarithm."""
    degrees = list(step_us)
    times = np.array([step_us[tp] for tp in degrees])
    best = np.argmin(times, axis=0)
    found = []
    for i in np.flatnonzero(np.diff(best)):
        below, above = best[i], best[i + 1]
        gap = [times[above, j] - times[below, j] for j in (i, i + 1)]
        part = gap[0] / (gap[0] - gap[1])
        at = float(np.exp(np.log(ratio[i]) + part * (np.log(ratio[i + 1]) - np.log(ratio[i]))))
        found.append((at, degrees[below], degrees[above]))
    return found
