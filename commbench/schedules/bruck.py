"""Bruck: messages that double in distance, ceil(log2 N) steps for any N (Bruck et al., IEEE TPDS 8(11), 1997)."""

import numpy as np

from commbench.schedules.schedule import Block, Schedule, backwards, one_by_one, step


def _doubling(n: int) -> tuple[Block, ...]:
    """Step k: rank r sends the blocks that it has, those of ranks r .. r + 2^k - 1, to rank r - 2^k."""
    steps, have = [], 1
    while have < n:
        steps.append(step(0, -have % n, first=0, count=min(have, n - have), every=1))
        have *= 2
    return one_by_one(steps)


def all_gather(n: int) -> Schedule:
    return Schedule("all_gather", "bruck", n, n, _doubling(n))


def reduce_scatter(n: int) -> Schedule:
    return Schedule("reduce_scatter", "bruck", n, n, backwards(_doubling(n), reduce=True))


def all_to_all(n: int) -> Schedule:
    """Step k moves by 2^k every block whose distance has bit k set: ceil(log2 N) messages of about half the data."""
    steps, hop = [], 1
    while hop < n:
        distance = np.arange(n)
        distance = distance[distance & hop > 0]
        origin = -(distance & (hop - 1)) % n
        steps.append(step(0, hop, first=distance * n + origin, every=1))
        hop *= 2
    return Schedule("all_to_all", "bruck", n, n * n, one_by_one(steps))
