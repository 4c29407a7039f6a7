"""all_reduce on two levels: reduce_scatter within the node, all_reduce between nodes, all_gather within the node."""

import numpy as np

from commbench.schedules.schedule import Block, Schedule, backwards, step


def all_reduce(n: int, per_node: int) -> Schedule:
    """Rings on both levels. Chunk i * k + b is part b of slice i, for g ranks a node and k nodes.

    Local rank i of every node ends the first phase with slice i of its node; its k parts go round the k ranks with the
    local number i: (k-1)/k * M/g bytes per rank in each of the two passes between nodes.
    """
    g, k = per_node, n // per_node
    node, local = np.divmod(np.arange(n), g)
    following = node * g + (local + 1) % g
    counterpart = (node + 1) % k * g + local
    # Round the node rank i first sends slice i - 1, and ends with slice i; the all_gather starts from there.
    inside = Block((step(np.arange(n), following, local * k, k),), g - 1, -k, n)
    outside = Block((step(np.arange(n), counterpart, local * k + node),), k - 1, -1, k)
    gather_inside, gather_outside = (inside,) if g > 1 else (), (outside,) if k > 1 else ()
    blocks = (
        backwards(gather_inside, reduce=True) + backwards(gather_outside, reduce=True) + gather_outside + gather_inside
    )
    return Schedule("all_reduce", "hierarchical", n, n, blocks)
