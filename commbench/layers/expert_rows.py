"""Which rows an expert-parallel layer sends where, worked out on every rank from the routing alone.

A row is a token on its way. It goes to each rank that holds one of its experts once, whatever the number of experts
there (DeepEP's rule), in the order of (source rank, token). In the two-hop form a row first goes once to each remote
node, to the rank of the same index there, and from it to the ranks of that node. Both forms end with the same rows in
the same order.
"""

from dataclasses import dataclass

import numpy as np

from commbench.routing.placement import Placement, assign
from commbench.routing.routing import Routing


@dataclass(frozen=True)
class Hop:
    """One exchange: rows `send` of what is there go out, in_splits[j] of them to member j of the wire, and out_splits
    [j] come from it. Afterwards they are put into the order `then` (None: as they came)."""

    send: np.ndarray
    in_splits: list[int]
    out_splits: list[int]
    then: np.ndarray | None = None


@dataclass(frozen=True)
class Rows:
    """hops: the exchanges of one rank with the names of their wires; the second starts from its own tokens followed by
    what the first brought. selections: (row, slot) of each selection that this rank's experts compute, expert by
    expert; per_expert: how many each has. received: rows that arrive."""

    hops: tuple[tuple[str, Hop], ...]
    row: np.ndarray
    slot: np.ndarray
    per_expert: list[int]
    received: int


def rows_of(routing: Routing, placement: Placement, per_node: int, rank: int, two_hop: bool) -> Rows:
    """The rows of `rank`; nodes are `per_node` consecutive ranks."""
    chosen = assign(routing, placement)
    to = [np.append(placement.rank_of, -1)[ids] for ids in chosen]  # destination rank of each selection, -1: none
    # reached[s]: (tokens of s, ranks): does a token of source rank s go to a rank?
    reached = [np.stack([(ranks == r).any(axis=1) for r in range(placement.ranks)], axis=1) for ranks in to]
    arriving = [(source, np.flatnonzero(of[:, rank])) for source, of in enumerate(reached)]
    row, slot, expert, first = [], [], [], 0
    for source, tokens in arriving:
        which, where = np.nonzero(to[source][tokens] == rank)
        row.append(which + first)
        slot.append(where)
        expert.append(chosen[source][tokens[which], where] - rank * placement.per_rank)
        first += len(tokens)
    row, slot, expert = (np.concatenate(parts) for parts in (row, slot, expert))
    order = np.argsort(expert, kind="stable")
    hops = _two_hops(reached, per_node, rank) if two_hop else (("all", _direct(reached, rank)),)
    per_expert = np.bincount(expert, minlength=placement.per_rank).tolist()
    return Rows(hops, row[order], slot[order], per_expert, first)


def _direct(reached, rank: int) -> Hop:
    own = reached[rank]
    send = np.concatenate([np.flatnonzero(own[:, r]) for r in range(len(reached))])
    return Hop(send, own.sum(axis=0).tolist(), [int(of[:, rank].sum()) for of in reached])


def _two_hops(reached, each: int, rank: int):
    ranks, node, index = len(reached), rank // each, rank % each
    nodes = ranks // each
    # touches[s]: (tokens, nodes), the own node left out: it needs no first hop.
    touches = [of.reshape(len(of), nodes, each).any(axis=2) for of in reached]
    for source, of in enumerate(touches):
        of[:, source // each] = False
    send = np.concatenate([np.flatnonzero(touches[rank][:, b]) for b in range(nodes)])
    sources = [b * each + index for b in range(nodes)]
    out_splits = [int(touches[source][:, node].sum()) for source in sources]
    first = Hop(send, touches[rank].sum(axis=0).tolist(), out_splits)

    held = [_held(reached, touches, node * each + j, each) for j in range(each)]
    to_local = [np.flatnonzero(held[index][1][:, node * each + j]) for j in range(each)]
    from_local = [np.flatnonzero(keep[1][:, rank]) for keep in held]
    # What arrives lies by forwarding rank; it is wanted by source rank, then token.
    source = np.concatenate([held[j][0][rows] for j, rows in enumerate(from_local)])
    then = np.lexsort((source[:, 1], source[:, 0]))
    second = Hop(np.concatenate(to_local), [len(rows) for rows in to_local], [len(rows) for rows in from_local], then)
    return ("inter", first), ("intra", second)


def _held(reached, touches, rank: int, each: int):
    """What `rank` holds after the first hop: (source rank, token) of each row, and the ranks that it goes to."""
    node, index = rank // each, rank % each
    parts = [(rank, np.arange(len(reached[rank])))]
    parts += [
        (b * each + index, np.flatnonzero(touches[b * each + index][:, node])) for b in range(len(reached) // each)
    ]
    source = np.concatenate([np.stack([np.full(len(t), s), t], axis=1) for s, t in parts])
    return source, np.concatenate([reached[s][t] for s, t in parts])
