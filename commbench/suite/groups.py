"""Splits of the world into groups that run at the same time.

Written as nccl-tests' NCCL_TESTS_SPLIT does, spelled out, or by what the groups are for: nodes, rails, pairs.
"""

import re

from commbench.errors import UsageError
from commbench.suite.rounds import circle, first_rounds

_COLOURS = {
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
}
_SYMBOLS = {"%": "MOD", "/": "DIV", "&": "AND", "|": "OR"}
_FIRST = re.compile(r"first (\d{1,9}) nodes?")
_SPLIT = re.compile(r"(MOD|DIV|AND|OR|[%/&|])\s*(0x[0-9a-f]{1,16}|\d{1,18})", re.IGNORECASE)


Group = tuple[str, tuple[int, ...]]  # label, members


_ONE_NODE = "all ranks are on one node, so nothing goes between nodes"
MOST_RANKS_IN_PAIRS = 256  # 32,640 pairs, a row each


class NotHere(Exception):
    """A world has no such groups; the message says why."""


def split_rounds(split: str, node_of: list[int]) -> list[list[Group]]:
    """Rounds one after another, of groups that run at the same time. Rank r lives on node node_of[r].

    "node": a group for each node. "rail": one for each local number, with its rank of every node; "rail 0": the first
    one alone. "pair intra", "pair inter": the first rank with another one of its node, of another node. "pairs": every
    pair once, in rounds in which each rank is in one pair; "node pairs": so with the first rank of each node; "rail
    pairs": pairs of nodes with all their rails at work, every pair up to 64 nodes and 16 rounds of drawn partners
    above. "first 4 nodes": their ranks; "first nodes": 2, 4, 8 ... and all of them. All else is one round, see
    split_groups.
    Raises NotHere where the world has no such groups, UsageError for a split that is not understood.
    """
    word = " ".join(split.lower().split())
    if word == "pairs":
        if len(node_of) > MOST_RANKS_IN_PAIRS:
            raise NotHere(f"all pairs of {len(node_of)} ranks are too many rows; measure split 'node pairs'")
        return _pairs("round", list(range(len(node_of))))
    if word == "node pairs":
        firsts = [node_of.index(node) for node in dict.fromkeys(node_of)]
        if len(firsts) < 2:
            raise NotHere(_ONE_NODE)
        return _pairs("node round", sorted(firsts))
    if word == "rail pairs":
        rounds = first_rounds(len(_by_node(node_of)))
        if not rounds:
            raise NotHere(_ONE_NODE)
        return [rail_pairs("rail round", number, pairs, node_of) for number, pairs in enumerate(rounds, 1)]
    if word == "first nodes" or _FIRST.fullmatch(word):
        return [[first_nodes(count, node_of)] for count in _counts(word, len(set(node_of)))]
    if word in ("node", "rail", "rail 0", "pair intra", "pair inter"):
        return [_by_place(word, node_of)]
    return [split_groups(split, len(node_of))]


def _pairs(word: str, ranks: list[int]) -> list[list[Group]]:
    rounds = [[(ranks[a], ranks[b]) for a, b in one] for one in circle(len(ranks))]
    return [[(f"{word} {number}: {a},{b}", (a, b)) for a, b in one] for number, one in enumerate(rounds, 1)]


def rail_pairs(word: str, number: int, pairs: list[tuple[int, int]], node_of: list[int]) -> list[Group]:
    """A round of node pairs (nodes counted in the order of their first ranks): the ranks of a pair's nodes that have
    the same local number meet."""
    ranks = _by_node(node_of)
    met = [tuple(sorted(pair)) for a, b in pairs for pair in zip(ranks[a], ranks[b])]
    return [(f"{word} {number}: {a},{b}", (a, b)) for a, b in met]


def first_nodes(count: int, node_of: list[int], without: frozenset[int] = frozenset()) -> Group:
    """The ranks of the first `count` nodes, those in `without` left out; fewer where there are no more."""
    kept = [members for node, members in enumerate(_by_node(node_of)) if node not in without][:count]
    label = f"first {len(kept)} {'good ' if without else ''}nodes"
    return label, tuple(sorted(rank for members in kept for rank in members))


def _counts(word: str, nodes: int) -> list[int]:
    if match := _FIRST.fullmatch(word):
        if not 1 <= int(match[1]) <= nodes:
            raise NotHere(f"this world has {nodes} node{'s' * (nodes > 1)}")
        return [int(match[1])]
    if nodes < 2:
        raise NotHere(_ONE_NODE)
    return [2**i for i in range(1, nodes.bit_length()) if 2**i < nodes] + [nodes]


def _by_node(node_of: list[int]) -> list[list[int]]:
    """The ranks of each node, nodes in the order of their first ranks."""
    of_node: dict[int, list[int]] = {}
    for rank, node in enumerate(node_of):
        of_node.setdefault(node, []).append(rank)
    return list(of_node.values())


def _by_place(word: str, node_of: list[int]) -> list[Group]:
    ranks = _by_node(node_of)
    if word in ("node", "pair intra") and max(map(len, ranks)) < 2:
        raise NotHere("every node has one rank, so nothing goes within a node")
    if word in ("rail", "rail 0", "pair inter") and len(ranks) < 2:
        raise NotHere(_ONE_NODE)
    if word == "node":
        return [(f"node #{i}", tuple(members)) for i, members in enumerate(ranks) if len(members) > 1]
    if word == "pair intra":
        pair = next(members for members in ranks if len(members) > 1)[:2]
        return [(f"pair {pair[0]},{pair[1]}", tuple(pair))]
    if word == "pair inter":
        pair = sorted((ranks[0][0], ranks[1][0]))
        return [(f"pair {pair[0]},{pair[1]}", tuple(pair))]
    rails = [[members[i] for members in ranks if i < len(members)] for i in range(max(map(len, ranks)))]
    found = [(f"rail #{i}", tuple(sorted(members))) for i, members in enumerate(rails) if len(members) > 1]
    # Alone it is another measurement than beside the other rails, and needs another name.
    return [("rail 0", members) for _, members in found[:1]] if word == "rail 0" else found


def split_groups(split: str, ranks: int) -> list[Group]:
    """[(label, members)] of a split: "all", "MOD 8" (one rank a node in each group), "DIV 8" (a group a node),
    "AND 0x7", "OR 0x7", or members spelled out as "0,1;2,3". Members are in rising order, as torch orders a group.

    Raises UsageError when it is not understood, names a rank twice, or one that the world lacks.
    """
    text = split.strip()
    if text.lower() == "all":
        return [("all", tuple(range(ranks)))]
    match = _SPLIT.fullmatch(text)
    if match:
        word = _SYMBOLS.get(match[1], match[1].upper())
        value = int(match[2], 16 if match[2][:2].lower() == "0x" else 10)
        if word in ("MOD", "DIV") and value == 0:
            raise UsageError(f"split {split!r} divides by zero; a group has at least 1 rank")
        groups: dict[int, list[int]] = {}
        for rank in range(ranks):
            groups.setdefault(_COLOURS[word](rank, value), []).append(rank)
        return [(f"{word} {match[2]} #{i}", tuple(members)) for i, members in enumerate(groups.values())]
    return _spelled_out(text, ranks)


def _spelled_out(text: str, ranks: int) -> list[Group]:
    try:
        groups = [tuple(sorted(int(rank) for rank in part.split(","))) for part in text.split(";") if part.strip()]
    except ValueError:
        groups = []
    if not groups:
        raise UsageError(
            f'split {text!r} is not understood; write "all", "node", "rail", "rail 0", "pairs", "node pairs", '
            '"rail pairs", "first nodes", "first 4 nodes", "pair intra", "pair inter", "MOD 8", "DIV 8", '
            '"AND 0x7", "OR 0x7" or "0,1;2,3"'
        )
    named = [rank for members in groups for rank in members]
    outside = sorted({rank for rank in named if not 0 <= rank < ranks})
    if outside:
        raise UsageError(f"split {text!r} names rank {outside[0]}, but the world has ranks 0 to {ranks - 1}")
    if len(set(named)) < len(named):
        twice = next(rank for rank in named if named.count(rank) > 1)
        raise UsageError(f"split {text!r} names rank {twice} twice; a rank can be in one group only")
    return [(",".join(map(str, members)), members) for members in groups]
