"""Ring: each rank passes on to the next what it got from the one before. N - 1 steps, every link equally used."""

import numpy as np

from commbench.schedules.schedule import Block, Schedule, backwards, step


def _pass_on(n: int, direction: int) -> tuple[Block, ...]:
    """n - 1 steps: rank r sends its own block, then the one that it got in the step before, to r + direction."""
    if n == 1:
        return ()
    return (Block((step(0, direction % n, first=0, every=1),), times=n - 1, shift=-direction, modulus=n),)


def all_gather(n: int) -> Schedule:
    return Schedule("all_gather", "ring", n, n, _pass_on(n, 1))


def reduce_scatter(n: int) -> Schedule:
    return Schedule("reduce_scatter", "ring", n, n, backwards(_pass_on(n, -1), reduce=True))


def all_reduce(n: int) -> Schedule:
    """A reduce_scatter and an all_gather round the ring, both in the same direction (Patarasuk and Yuan, JPDC 2009)."""
    return Schedule("all_reduce", "ring", n, n, reduce_scatter(n).blocks + all_gather(n).blocks)


def rail_ring(n: int, per_node: int) -> Schedule:
    """all_reduce by as many rings at once as a node has ranks, each with its part of the data.

    Ring q enters every node at local rank q and leaves it at q - 1, so that all NICs of a node carry the same: what
    NCCL's ring does with a channel for each NIC. A single ring leaves a node through one NIC. Chunk q * N + i goes
    round ring q from its i-th rank on.
    """
    g, nodes = per_node, n // per_node
    if nodes == 1:
        return Schedule("all_reduce", "rail_ring", n, n, all_reduce(n).blocks)
    ring, place = (column.ravel() for column in np.meshgrid(np.arange(g), np.arange(n), indexing="ij"))
    rank = place // g * g + (ring + place % g) % g
    following = np.roll(rank.reshape(g, n), -1, axis=1).ravel()
    # Place i begins the all_gather with chunk i. Backwards and the other way round it is the reduce_scatter before it.
    onward = Block((step(rank, following, ring * n + place),), n - 1, -1, n)
    before = np.roll(rank.reshape(g, n), 1, axis=1).ravel()
    inward = backwards((Block((step(rank, before, ring * n + place),), n - 1, 1, n),), reduce=True)
    return Schedule("all_reduce", "rail_ring", n, g * n, (*inward, onward))
