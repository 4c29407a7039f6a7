"""Placing experts by their load, with copies of the hot ones: greedy, and node by node where there are several.

The problem and the order of its steps are those of EPLB (deepseek-ai/EPLB, eplb.py): groups of experts go to nodes,
then each node's experts are copied, then the copies go to its ranks.
"""

import numpy as np

from commbench.errors import UsageError
from commbench.routing.placement import Placement, experts_per_rank, placed


def balanced(load, ranks: int, nodes: int = 1, replicas: int = 0, groups: int | None = None) -> Placement:
    """Experts of `load` (tokens each, (experts,)) on `ranks` ranks of `nodes` nodes, with `replicas` copies beyond one
    of each. `groups`: consecutive experts that stay together on a node, as many as experts unless given.

    Raises UsageError where experts and replicas, groups or ranks do not divide.
    """
    load = np.asarray(load, np.float64)
    experts, groups = len(load), groups or len(load)
    experts_per_rank(experts + replicas, ranks)
    for what, count, over in (("ranks", ranks, nodes), ("replicas", replicas, nodes), ("groups", groups, nodes)):
        if count % over:
            raise UsageError(f"{count} {what} do not divide over {over} nodes")
    if experts % groups:
        raise UsageError(f"{experts} experts do not divide into {groups} groups")
    members = np.arange(experts).reshape(groups, -1)
    logical = []
    for of_node in packed(load[members].sum(axis=1), nodes):
        own = members[of_node].ravel()
        copies = replicated(load[own], replicas // nodes)
        share = load[own] / copies
        physical = np.repeat(np.arange(len(own)), copies)
        for of_rank in packed(share[physical], ranks // nodes):
            logical.append(own[physical[of_rank]])
    return placed(np.concatenate(logical), ranks)


def replicated(load: np.ndarray, replicas: int) -> np.ndarray:
    """How many copies of each expert there are: each further one goes where a copy has the most to do."""
    copies = np.ones(len(load), np.int64)
    for _ in range(replicas):
        copies[np.argmax(load / copies)] += 1
    return copies


def packed(weight: np.ndarray, bins: int) -> list[np.ndarray]:
    """Items of `weight` in `bins` bins of equally many: the heaviest first, each to the lightest bin with a place."""
    places = len(weight) // bins
    held, total = [[] for _ in range(bins)], np.zeros(bins)
    for item in np.argsort(-weight, kind="stable"):
        lightest = int(np.argmin(total))
        held[lightest].append(item)
        total[lightest] += weight[item]
        if len(held[lightest]) == places:
            total[lightest] = np.inf
    return [np.array(sorted(items), np.int64) for items in held]
