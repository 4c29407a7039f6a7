"""Which ports are slow: from one-way rates between pairs to each port's share of what a healthy port reaches.

A port is one rail of one node, and has two sides: it sends (out) and it receives (in). Who is slow with its partners
may have met slow ones, so a port is judged by its median over partners that are good themselves.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commbench.results.records import Point

BAR = 0.9  # of what healthy ports reach, below which a port or a meeting is slow
SIDES = ("out", "in")
# A belief before any meeting: one healthy pair in twenty is slow, as flows are that share a link by chance (ECMP).
_PRIOR_SLOW, _PRIOR_MET = 0.5, 10.0


@dataclass(frozen=True)
class Meetings:
    """rate_GBps[k], one way, went from port src[k] to port dst[k]; a port's number is node * rails + rail. `point`: one
    of those that were measured."""

    hosts: tuple[str, ...]
    rails: int
    src: np.ndarray
    dst: np.ndarray
    rate_GBps: np.ndarray
    point: Point | None = None


@dataclass(frozen=True)
class Ports:
    """Each side of each port beside a healthy one; arrays are [node, rail, side], side 0 out and 1 in.

    share: median over good partners, of the healthy rate; nan where it met none. reach: what it is good for as a
    partner: the lower one of its share and of its best quarter of meetings beside that of others.
    """

    meetings: Meetings
    healthy_GBps: float
    share: np.ndarray
    reach: np.ndarray

    @property
    def good(self) -> np.ndarray:
        return self.reach >= BAR

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(cell, the partner's reach, share of the healthy rate) of each meeting, seen from both ends."""
        cell, partner, rate = _both_ends(self.meetings)
        return cell, self.reach.reshape(-1)[partner], rate / self.healthy_GBps

    def counts(self, at, expected: np.ndarray, below: float) -> tuple[int, int]:
        """(meetings below a share, meetings) of the ports `at` (an index of the arrays) with partners that have shown
        to reach more than that share; `expected` is the share that counts as 1."""
        cell, partner_reach, share = self._ends
        chosen = np.zeros(self.share.shape, bool)
        chosen[at] = True
        known = (partner_reach >= min(below, BAR)) & chosen.reshape(-1)[cell]
        slow = share[known] < below * expected.reshape(-1)[cell[known]]
        return int(np.count_nonzero(slow)), int(slow.size)

    def chance(self, below: float) -> float:
        """How often a meeting of two good ports is below a share."""
        cell, partner_reach, share = self._ends
        both = share[(partner_reach >= BAR) & self.good.reshape(-1)[cell]]  # each meeting stands there twice
        return (np.count_nonzero(both < below) / 2 + _PRIOR_SLOW) / (both.size / 2 + _PRIOR_MET)


def judge_ports(meetings: Meetings) -> Ports:
    """The ports of `meetings`, which has at least one."""
    shape = len(meetings.hosts), meetings.rails, 2
    cells = int(np.prod(shape))
    cell, partner, rate = _both_ends(meetings)
    best = _quantile(cell, rate, cells, 0.75)
    # The upper one of two middle values: of two nodes, or of two slow ones in four, the faster half is the measure.
    best = best / np.quantile(best[np.isfinite(best)], 0.5, method="higher")
    reach = best
    for _ in range(
        2
    ):  # nodes behind a slow uplink are fast with each other, and pass as good until their median is known
        known = reach[partner] >= BAR
        median = _quantile(cell[known], rate[known], cells, 0.5)
        healthy = float(np.nanmedian(median[reach >= BAR]))
        share = median / healthy
        reach = np.fmin(best, share)
    return Ports(meetings, healthy, share.reshape(shape), reach.reshape(shape))


def _both_ends(meetings: Meetings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(cell, the partner's cell, rate) of each meeting, seen from both ends."""
    out, into = 2 * meetings.src, 2 * meetings.dst + 1
    rate = np.concatenate((meetings.rate_GBps, meetings.rate_GBps))
    return np.concatenate((out, into)), np.concatenate((into, out)), rate


def _quantile(cell: np.ndarray, rate: np.ndarray, cells: int, at: float) -> np.ndarray:
    """The quantile of the rates of each cell, nan for a cell without one: between two neighbours their mean at the
    median, and the higher one elsewhere."""
    order = np.lexsort((rate, cell))
    rate, count = rate[order], np.bincount(cell, minlength=cells)
    first, found = np.cumsum(count) - count, np.full(cells, np.nan)
    there = count > 0
    place = at * (count[there] - 1)
    high = rate[first[there] + np.ceil(place).astype(int)]
    found[there] = (rate[first[there] + np.floor(place).astype(int)] + high) / 2 if at == 0.5 else high
    return found
