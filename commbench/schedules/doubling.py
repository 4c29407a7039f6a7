"""Recursive doubling and halving: partners at distance 1, 2, 4, ... (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).

Where N is no power of two, N - 2^k of the ranks hand their part to the rank after them, stay out of the exchange
among 2^k, and get the result at the end.
"""

import numpy as np

from commbench.schedules.schedule import Block, Schedule, Step, backwards, one_by_one, step


class _Fold:
    """2^k ranks that take part. Of the first 2 * `extra` ranks the even ones stay out; their partner is the next."""

    def __init__(self, n: int):
        self.members = 1 << (n.bit_length() - 1)
        self.extra = n - self.members
        self.out = 2 * np.arange(self.extra)
        self.partner = self.out + 1
        virtual = np.arange(self.members)
        self.rank = np.where(virtual < self.extra, 2 * virtual + 1, virtual + self.extra)
        # Virtual rank v stands for the blocks starts[v] .. starts[v + 1] - 1, its own and its partner's.
        self.starts = np.append(np.minimum(2 * virtual, virtual + self.extra), n)

    def exchange(self, distance: int, reduce: bool) -> Step:
        """Pairs at `distance`: each virtual rank sends the blocks of its aligned group of `distance`."""
        virtual = np.arange(self.members)
        group = virtual // distance * distance
        first, end = self.starts[group], self.starts[group + distance]
        return step(self.rank, self.rank[virtual ^ distance], first, end - first, reduce)


def _doubling(n: int) -> tuple[Block, ...]:
    fold, steps = _Fold(n), []
    if fold.extra:
        steps.append(step(fold.out, fold.partner, first=fold.out))
    distance = 1
    while distance < fold.members:
        steps.append(fold.exchange(distance, reduce=False))
        distance *= 2
    if fold.extra:  # all but the own block: before it and after it
        src, dst = np.tile(fold.partner, 2), np.tile(fold.out, 2)
        first = np.concatenate([np.zeros_like(fold.out), fold.out + 1])
        count = np.concatenate([fold.out, n - 1 - fold.out])
        steps.append(step(src[count > 0], dst[count > 0], first[count > 0], count[count > 0]))
    return one_by_one(steps)


def all_gather(n: int) -> Schedule:
    """Recursive doubling."""
    return Schedule("all_gather", "recursive_doubling", n, n, _doubling(n))


def reduce_scatter(n: int) -> Schedule:
    """Recursive halving: recursive doubling backwards."""
    return Schedule("reduce_scatter", "recursive_halving", n, n, backwards(_doubling(n), reduce=True))


def all_reduce(n: int) -> Schedule:
    """Recursive doubling: the whole vector in each of ceil(log2 N) exchanges; least latency, most bytes."""
    fold, steps = _Fold(n), []
    if fold.extra:
        steps.append(step(fold.out, fold.partner, reduce=True))
    distance = 1
    while distance < fold.members:
        virtual = np.arange(fold.members)
        steps.append(step(fold.rank, fold.rank[virtual ^ distance], reduce=True))
        distance *= 2
    if fold.extra:
        steps.append(step(fold.partner, fold.out))
    return Schedule("all_reduce", "recursive_doubling", n, 1, one_by_one(steps))


def rabenseifner(n: int) -> Schedule:
    """all_reduce as recursive halving, then recursive doubling, over slices of the vector (Rabenseifner, ICCS 2004)."""
    fold, halving = _Fold(n), []
    fold.starts = np.arange(fold.members + 1)  # slices belong to those that take part
    distance = 1
    while distance < fold.members:
        halving.append(fold.exchange(distance, reduce=False))
        distance *= 2
    doubling = one_by_one(halving)
    blocks = backwards(doubling, reduce=True) + doubling
    if fold.extra:
        enter = step(fold.out, fold.partner, count=fold.members, reduce=True)
        leave = step(fold.partner, fold.out, count=fold.members)
        blocks = (Block((enter,)), *blocks, Block((leave,)))
    return Schedule("all_reduce", "rabenseifner", n, fold.members, blocks)
