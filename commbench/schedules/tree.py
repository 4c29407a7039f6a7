"""Double binary tree: two trees that each carry half of the data, and a rank is an inner node of at most one.

Inner nodes send and receive twice what a leaf does; as each rank is inner in one tree and a leaf in the other, all
ports are equally used (Sanders, Speck, Traeff, Parallel Computing 35(12), 2009; NCCL since 2.4).
"""

import numpy as np

from commbench.schedules.pipeline import pipelined
from commbench.schedules.schedule import Schedule, backwards


def parents(n: int) -> np.ndarray:
    """parents[t, r]: the parent of rank r in tree t, -1 at the root. Even ranks are leaves of tree 0.

    In-order binary trees over an even number of ranks, the second the mirror of the first; the last of an odd number of
    ranks is a leaf in both.
    """
    even = n - n % 2
    up = np.full((2, n), -1)
    root = _build(up[0], 0, even) if even else 0
    ranks = np.arange(even)
    mirrored = up[0, even - 1 - ranks]
    up[1, :even] = np.where(mirrored < 0, -1, even - 1 - mirrored)
    if n % 2 and n > 1:  # the root of each tree has a free place, or the end of its one-sided branch has
        for t in range(2):
            up[t, n - 1] = _free(up[t], (root, even - 1 - root)[t])
    return up


def _build(up: np.ndarray, low: int, high: int) -> int:
    """Links the ranks low .. high - 1 (low even) into a tree of odd inner nodes and even leaves; returns its root."""
    if high - low == 1:
        return low
    middle = low + (high - low) // 2 | 1
    middle = middle if middle < high else middle - 2
    up[_build(up, low, middle)] = middle
    if middle + 1 < high:
        up[_build(up, middle + 1, high)] = middle
    return middle


def _free(up: np.ndarray, root: int) -> int:
    """The inner node with one child. A tree of an even number of ranks has exactly one."""
    children = np.bincount(up[up >= 0], minlength=up.size)
    one = np.flatnonzero(children == 1)
    return int(one[0]) if one.size else root


def all_reduce(n: int, pieces: int = 8) -> Schedule:
    """A reduce up both trees and a broadcast down them, `pieces` pieces to a tree.

    In two steps each rank sends at most two messages, one to each of its parents, and receives two, from its children
    in the tree where it is inner. One step takes one of each: neighbouring edges alternate between even and odd steps.
    """
    if n == 1:
        return Schedule("all_reduce", "tree", 1, 1, ())
    up = parents(n)
    tree, src = np.nonzero(up >= 0)
    dst = up[tree, src]
    start = _starts(n, tree, src, dst, _parity(n, src, dst))
    first = tree * pieces
    rise = pipelined(src, dst, start, first, pieces, 2 * pieces, 2, reduce=True)
    return Schedule("all_reduce", "tree", n, 2 * pieces, rise + backwards(rise, reduce=False))


def _parity(n: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """0 or 1 for each edge, different for two edges with the same src and for two with the same dst.

    Senders and receivers have at most two edges each, so edges form paths and even cycles, which alternate.
    """
    partner = np.full((2, src.size), -1)  # the other edge of the same src, of the same dst
    for side, ends in enumerate((src, dst)):
        order = np.argsort(ends, kind="stable")
        same = np.flatnonzero(ends[order][1:] == ends[order][:-1])
        partner[side, order[same]], partner[side, order[same + 1]] = order[same + 1], order[same]
    parity = np.full(src.size, -1)
    for edge in np.concatenate([np.flatnonzero((partner < 0).any(axis=0)), np.arange(src.size)]):
        side = 0 if partner[0, edge] >= 0 else 1
        colour = 0
        while edge >= 0 and parity[edge] < 0:
            parity[edge] = colour
            edge, side, colour = partner[side, edge], 1 - side, 1 - colour
    return parity


def _starts(n, tree, src, dst, parity) -> np.ndarray:
    """The step of each edge's first piece: after those of its sender's children, in its own parity."""
    edge_of = np.full((2, n), -1)
    edge_of[tree, src] = np.arange(src.size)
    start = np.full(src.size, -1)
    waiting = np.zeros((2, n), np.int64)
    np.add.at(waiting, (tree, dst), 1)
    ready = [(int(t), int(r)) for t, r in zip(tree, src) if not waiting[t, r]]
    after = np.zeros((2, n), np.int64)  # the first step in which rank r may send up tree t
    parent = np.full((2, n), -1)
    parent[tree, src] = dst
    for t, r in ready:
        edge = edge_of[t, r]
        start[edge] = after[t, r] + (after[t, r] + parity[edge]) % 2
        above = parent[t, r]
        after[t, above] = max(after[t, above], start[edge] + 1)
        waiting[t, above] -= 1
        if not waiting[t, above] and parent[t, above] >= 0:
            ready.append((t, int(above)))
    return start
