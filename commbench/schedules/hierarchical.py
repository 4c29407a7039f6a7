"""all_reduce on two levels: reduce_scatter within the node, all_reduce between nodes, all_gather within the node."""

from dataclasses import replace

import numpy as np

from commbench.schedules import tree
from commbench.schedules.schedule import Block, Schedule, Step, backwards, step


def all_reduce(n: int, per_node: int) -> Schedule:
    """Rings on both levels. Chunk i * k + b is part b of slice i, for g ranks a node and k nodes.

    Local rank i of every node ends the first phase with slice i of its node; its k parts go round the k ranks with the
    local number i: (k-1)/k * M/g bytes per rank in each of the two passes between nodes.
    """
    g, k = per_node, n // per_node
    node, local = np.divmod(np.arange(n), g)
    counterpart = (node + 1) % k * g + local
    pass_on = (Block((step(np.arange(n), counterpart, local * k + node),), k - 1, -1, k),) if k > 1 else ()
    return _around("hierarchical", n, g, k, backwards(pass_on, reduce=True) + pass_on)


def all_reduce_by_trees(n: int, per_node: int, pieces: int = 8) -> Schedule:
    """Rings within the node, and between nodes a double binary tree for each local rank."""
    g, k = per_node, n // per_node
    between = tree.all_reduce(k, pieces)
    blocks = tuple(
        replace(block, steps=tuple(_on_every_rail(one, g, between.n_chunks) for one in block.steps))
        for block in between.blocks
    )
    return _around("hierarchical_tree", n, g, between.n_chunks, blocks)


def _on_every_rail(one: Step, g: int, chunks: int) -> Step:
    """A step between nodes as one between the ranks of each local number, which has `chunks` chunks of its own."""
    rail, row = (column.ravel() for column in np.meshgrid(np.arange(g), np.arange(one.src.size), indexing="ij"))
    src, dst = one.src[row] * g + rail, one.dst[row] * g + rail
    return step(src, dst, one.first[row] + rail * chunks, one.count[row], one.reduce[row])


def _around(name: str, n: int, g: int, parts: int, between: tuple[Block, ...]) -> Schedule:
    """`between` with a ring reduce_scatter within the nodes before it and an all_gather after it.

    A slice is `parts` chunks. Round the node rank i ends with slice i, and the all_gather starts from there.
    """
    if g == 1:
        return Schedule("all_reduce", name, n, parts, between)
    node, local = np.divmod(np.arange(n), g)
    after, before = node * g + (local + 1) % g, node * g + (local - 1) % g
    gather = Block((step(np.arange(n), after, local * parts, parts),), g - 1, -parts, g * parts)
    scatter = Block((step(np.arange(n), before, local * parts, parts),), g - 1, parts, g * parts)
    return Schedule("all_reduce", name, n, g * parts, (*backwards((scatter,), reduce=True), *between, gather))
