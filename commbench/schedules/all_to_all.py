"""all_to_all: pairwise, and on two levels by way of the own node. Chunk d * N + o goes from rank o to rank o + d."""

import numpy as np

from commbench.schedules.schedule import Schedule, one_by_one, step


def pairwise(n: int) -> Schedule:
    """Step d: rank r sends to r + d. N - 1 steps, each block travels once."""
    steps = [step(0, distance, first=distance * n, every=1) for distance in range(1, n)]
    return Schedule("all_to_all", "pairwise", n, n * n, one_by_one(steps))


def two_level(n: int, per_node: int) -> Schedule:
    """Blocks first go to the rank of the own node that has the local number of the receiver, then to its node.

    per_node - 1 steps of n / per_node blocks within the node, then n / per_node - 1 steps of per_node blocks between
    nodes: each rank sends one message to each other node instead of per_node.
    """
    g, nodes = per_node, n // per_node
    local, steps = np.arange(g), []
    for d in range(1, g):  # local rank i hands to i + d all that is for the local number i + d of any node
        i, node = (column.ravel() for column in np.meshgrid(local, np.arange(nodes), indexing="ij"))
        receiver = (i + d) % g
        steps.append(step(i, receiver, first=((node * g + receiver - i) % n) * n + i, every=g))
    for b in range(1, nodes):  # (node a, j) hands to (a + b, j) what the ranks i of its node have for it
        j, i = (column.ravel() for column in np.meshgrid(local, local, indexing="ij"))
        steps.append(step(j, b * g + j, first=((b * g + j - i) % n) * n + i, every=g))
    return Schedule("all_to_all", "two_level", n, n * n, one_by_one(steps))
