"""What a communication costs on a fabric: times of the operations that a layout calls, by their closed forms.

Alpha-beta forms on measured one-way payload rates: latency of the hops plus bytes over the rate of the narrowest link.
Sizes are bytes; for all_reduce the buffer, for all_gather, reduce_scatter and all_to_all the total of a rank's
gathered, scattered or sent data; for send one message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from commbench.errors import MeasureError
from commbench.fabrics import Fabric, Link

LATENCY_SPREAD = 0.5  # hop latencies of the shipped fabrics are constants of a tuning model, not measured


class Unmeasured(MeasureError):
    """A layout calls what nobody measured on these links."""


@dataclass(frozen=True)
class Group:
    """Ranks that talk, `per_domain` of them within each NVLink domain (a node, or a rack where NVLink leaves it)."""

    ranks: int
    per_domain: int

    @property
    def domains(self) -> int:
        return self.ranks // self.per_domain


@dataclass(frozen=True)
class Told:
    """A time with its interval, and a note where it rests on less than a measurement ("extrapolation 4 times")."""

    time_us: float
    low_us: float
    high_us: float
    note: str = ""

    def at(self, end: int) -> float:
        """The time (0), its low end (-1) or its high end (1)."""
        return (self.time_us, self.high_us, self.low_us)[end]


@dataclass(frozen=True)
class Links:
    """Communication of a machine: `time` answers (op, group, size_bytes); `domain_ranks` share the fast links.

    ratio: one-way payload rate within a domain over that between domains, a rank's share each.
    """

    name: str
    domain_ranks: int
    time: Callable[[str, Group, float], Told]
    ratio: float | None
    source: str


def group_of(ranks: int, stride: int, domain_ranks: int) -> Group:
    """The group of `ranks` whose neighbours are `stride` apart, domains being runs of `domain_ranks`."""
    if stride >= domain_ranks:
        return Group(ranks, 1)
    inside = max(1, min(ranks, domain_ranks // stride))
    while ranks % inside:  # a group that does not fill its domains: as many as lie evenly
        inside -= 1
    return Group(ranks, inside)


def fabric_links(fabric: Fabric) -> Links:
    """The links of a fabric. A rate's interval reaches from the measured one up to the datasheet's, and as far down."""

    @cache
    def time(op: str, group: Group, size_bytes: float) -> Told:
        ends = [_time_us(fabric, op, group, size_bytes, end) for end in (0, -1, 1)]
        return Told(*ends)

    share = fabric.nics_per_node / fabric.ranks_per_node
    ratio = fabric.intra.bandwidth_GBps / (fabric.inter.bandwidth_GBps * share)
    return Links(fabric.name, fabric.domain_ranks, time, ratio, f"fabric {fabric.name}")


def _time_us(fabric: Fabric, op: str, group: Group, size_bytes: float, end: int) -> float:
    if group.ranks == 1 or size_bytes <= 0:
        return 0.0
    slow = 1 + LATENCY_SPREAD * end
    intra_us, inter_us = fabric.intra.latency_us * slow, fabric.inter.latency_us * slow
    intra = _rate(fabric.intra, end)
    inter = _rate(fabric.inter, end) * fabric.nics_per_node / fabric.ranks_per_node
    n, domains = group.ranks, group.domains
    if op == "send":
        return (intra_us + size_bytes / intra / 1e3) if domains == 1 else (inter_us + size_bytes / inter / 1e3)
    if op == "all_to_all":
        # To each rank a share of its own; shares for other domains through the NIC, the others over NVLink meanwhile.
        outside = size_bytes * (n - group.per_domain) / n / inter
        inside = size_bytes * (group.per_domain - 1) / n / intra
        return (inter_us if domains > 1 else intra_us) + max(outside, inside) / 1e3
    # A ring crosses each domain once; as many rings as there are members in a domain share its NICs.
    rate = intra if domains == 1 else min(intra, group.per_domain * inter)
    pass_us = (domains - 1) * inter_us + (n - domains) * intra_us
    once = pass_us + size_bytes * (n - 1) / n / rate / 1e3
    if op != "all_reduce":
        return once
    ring = 2 * once
    if domains > 1 or fabric.in_switch is None:
        return ring
    switch = fabric.in_switch
    return min(ring, 4 * switch.latency_us * slow + size_bytes * (n + 1) / n / switch.bandwidth_GBps / 1e3)


def _rate(link: Link, end: int) -> float:
    """GB/s: measured, the datasheet's for the low time, and as far below the measured one for the high time."""
    return link.bandwidth_GBps - end * (link.nominal_GBps - link.bandwidth_GBps)
