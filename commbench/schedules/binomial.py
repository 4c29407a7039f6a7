"""Binomial trees: in step k the ranks that have something hand it on, and twice as many have it."""

import numpy as np

from commbench.schedules import ring
from commbench.schedules.schedule import Block, Schedule, backwards, one_by_one, step


def _spread(n: int, scatter: bool) -> tuple[Block, ...]:
    """From rank 0 to all, the far ones first: the whole (one chunk), or to each subtree only its blocks."""
    hop, steps = 1, []
    while hop < n:
        hop *= 2
    while hop > 1:
        hop //= 2
        src = np.arange(0, n - hop, 2 * hop)
        dst = src + hop
        steps.append(step(src, dst, dst, np.minimum(hop, n - dst)) if scatter else step(src, dst))
    return one_by_one(steps)


def broadcast(n: int) -> Schedule:
    return Schedule("broadcast", "binomial", n, 1, _spread(n, scatter=False))


def all_reduce(n: int) -> Schedule:
    """A reduce to rank 0 and a broadcast from it."""
    down = _spread(n, scatter=False)
    return Schedule("all_reduce", "binomial", n, 1, backwards(down, reduce=True) + down)


def scatter_all_gather(n: int) -> Schedule:
    """broadcast as a binomial scatter and a ring all_gather (van de Geijn)."""
    # Only rank 0 holds more than its own block when the ring begins, and what it gets it has already.
    around = ring.all_gather(n).blocks
    return Schedule("broadcast", "scatter_all_gather", n, n, _spread(n, scatter=True) + around)
