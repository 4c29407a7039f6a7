"""Slow pairs that no slow part explains: flows that shared a link by chance, and ends that nobody could tell apart."""

import numpy as np

from commbench.acceptance.culprits import Isolation
from commbench.acceptance.ports import BAR


def link(isolation: Isolation, k: int, joint: str = " -> ") -> str:
    """The meeting number k in words: its sender and its receiver."""
    meetings = isolation.ports.meetings
    return joint.join(_port(meetings, port) for port in (meetings.src[k], meetings.dst[k]))


def _port(meetings, port: int) -> str:
    rail = f" rail {port % meetings.rails}" if meetings.rails > 1 else ""
    return meetings.hosts[port // meetings.rails] + rail


def by_chance(isolation: Isolation) -> tuple[np.ndarray, int]:
    """(numbers of the slow meetings of two good ports, the slowest first; how many of good ports there are)."""
    ports, meetings = isolation.ports, isolation.ports.meetings
    good = ports.good.reshape(-1)
    both = good[2 * meetings.src] & good[2 * meetings.dst + 1]
    return _slowest_first(isolation, both & (share_of(isolation) < BAR)), int(np.count_nonzero(both))


def undetermined(isolation: Isolation) -> np.ndarray:
    """Numbers of the slow meetings of which neither end met a good partner, so that either may be guilty."""
    meetings = isolation.ports.meetings
    unknown = np.isnan(isolation.ports.share).reshape(-1)
    either = unknown[2 * meetings.src] & unknown[2 * meetings.dst + 1]
    return _slowest_first(isolation, either & (share_of(isolation) < BAR))


def share_of(isolation: Isolation) -> np.ndarray:
    """The rate of each meeting, of the healthy one."""
    return isolation.ports.meetings.rate_GBps / isolation.ports.healthy_GBps


def _slowest_first(isolation: Isolation, chosen: np.ndarray) -> np.ndarray:
    return np.flatnonzero(chosen)[np.argsort(isolation.ports.meetings.rate_GBps[chosen])]
