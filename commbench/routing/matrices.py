"""From a routing to the traffic it makes: who sends how many tokens to whom, counted in the four ways that tools print.

A token that chose three experts, two of them on one rank of another node and one on this rank's node, is 3 selections,
2 distinct ranks, 2 distinct nodes (the own one counted) and 1 on the wire between nodes.
"""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError
from commbench.routing.placement import Placement, assign
from commbench.routing.routing import CHUNK, Routing


@dataclass(frozen=True)
class Traffic:
    """Tokens that move; R ranks on N nodes of equally many consecutive ranks. All int64.

    per_selection (R, R): (token, expert) selections of each source rank for each destination rank.
    per_rank (R, R): distinct (token, destination rank). per_node (R, N): distinct (token, node), the own node counted.
    first_hop (R, R): to the rank of the same index on the destination node, once per (token, remote node).
    second_hop (R, R): from there to the ranks of that node, and from each rank to those of its own: block diagonal,
    once per distinct (token, destination rank).
    expert_load (experts,), physical_load (physical experts,): selections.
    """

    per_selection: np.ndarray
    per_rank: np.ndarray
    per_node: np.ndarray
    first_hop: np.ndarray
    second_hop: np.ndarray
    expert_load: np.ndarray
    physical_load: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """The four counts of a bandwidth: `selections`, `unique_rank`, `unique_node` (the own node counted: what DeepEP
        V1 prints as RDMA) and `wire` (remote nodes only), over all ranks, in tokens."""
        return {
            "selections": int(self.per_selection.sum()),
            "unique_rank": int(self.per_rank.sum()),
            "unique_node": int(self.per_node.sum()),
            "wire": int(self.first_hop.sum()),
        }


def traffic(routing: Routing, placement: Placement, ranks_per_node: int) -> Traffic:
    """All matrices of a routing under a placement. Raises UsageError where ranks do not divide over nodes, or the
    placement is for other ranks."""
    ranks, physical = placement.ranks, len(placement.rank_of)
    if routing.ranks != ranks:
        raise UsageError(f"the routing has tokens on {routing.ranks} ranks, the placement is for {ranks}")
    if ranks % ranks_per_node:
        raise UsageError(f"{ranks} ranks do not divide into nodes of {ranks_per_node}")
    nodes = ranks // ranks_per_node
    per_selection, per_rank = np.zeros((2, ranks, ranks), np.int64)
    per_node, load = np.zeros((ranks, nodes), np.int64), np.zeros(physical, np.int64)
    # The last entry is for the id -1: a rank and a node beyond the last, counted and cut off.
    rank_of = np.append(placement.rank_of, ranks).astype(np.int32)
    node_of = np.append(np.arange(ranks) // ranks_per_node, nodes).astype(np.int32)
    for source, ids in enumerate(assign(routing, placement)):
        for first in range(0, len(ids), CHUNK):
            chosen = ids[first : first + CHUNK]
            to = rank_of[chosen]
            load += np.bincount(chosen.ravel() + 1, minlength=physical + 1)[1:]
            per_selection[source] += np.bincount(to.ravel(), minlength=ranks + 1)[:ranks]
            to.sort(axis=1)
            per_rank[source] += _distinct(to, ranks)
            per_node[source] += _distinct(node_of[to], nodes)
    first_hop, second_hop = _hops(per_rank, per_node, ranks_per_node)
    expert_load = np.bincount(placement.logical_of, weights=load, minlength=routing.experts).astype(np.int64)
    return Traffic(per_selection, per_rank, per_node, first_hop, second_hop, expert_load, load)


def _distinct(to: np.ndarray, count: int) -> np.ndarray:
    """How many rows of `to` (each row sorted) hold each of 0 .. count - 1."""
    new = np.ones(to.shape, bool)
    np.not_equal(to[:, 1:], to[:, :-1], out=new[:, 1:])
    return np.bincount(to[new], minlength=count + 1)[:count]


def _hops(per_rank: np.ndarray, per_node: np.ndarray, each: int) -> tuple[np.ndarray, np.ndarray]:
    """(first hop, second hop) of R ranks in nodes of `each`."""
    ranks, nodes = per_node.shape
    source, node = np.arange(ranks)[:, None], np.arange(nodes)
    first = np.zeros((ranks, ranks), np.int64)
    first[source, node * each + source % each] = np.where(node == source // each, 0, per_node)
    # Whoever has index i on a source node reaches (node b, index j) through (node b, index i).
    through = per_rank.reshape(nodes, each, nodes, each).sum(axis=0)  # i, b, j
    second = np.zeros((nodes, each, nodes, each), np.int64)
    second[node, :, node, :] = through.transpose(1, 0, 2)
    return first, second.reshape(ranks, ranks)


def max_over_mean(totals) -> float | None:
    """The largest of some totals over their mean; None where nothing moves."""
    totals = np.asarray(totals, np.float64)
    return float(totals.max() / totals.mean()) if totals.size and totals.any() else None
