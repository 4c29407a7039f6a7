"""Which schedules there are for which operation, by the names that `--algorithm own:NAME` takes."""

from commbench.schedules import all_to_all, binomial, bruck, chain, doubling, hierarchical, nvls, pat, ring, tree
from commbench.schedules.schedule import Schedule

# Builders take (ranks, ranks per node, pieces of a pipeline); most need the first only.
SCHEDULES = {
    "all_reduce": {
        "ring": lambda n, g, p: ring.all_reduce(n),
        "rail_ring": lambda n, g, p: ring.rail_ring(n, g),
        "tree": lambda n, g, p: tree.all_reduce(n, p),
        "recursive_doubling": lambda n, g, p: doubling.all_reduce(n),
        "rabenseifner": lambda n, g, p: doubling.rabenseifner(n),
        "hierarchical": lambda n, g, p: hierarchical.all_reduce(n, g),
        "hierarchical_tree": lambda n, g, p: hierarchical.all_reduce_by_trees(n, g, p),
        "binomial": lambda n, g, p: binomial.all_reduce(n),
        "nvls": lambda n, g, p: nvls.all_reduce(n, p),
    },
    "all_gather": {
        "ring": lambda n, g, p: ring.all_gather(n),
        "recursive_doubling": lambda n, g, p: doubling.all_gather(n),
        "bruck": lambda n, g, p: bruck.all_gather(n),
        "pat": lambda n, g, p: pat.all_gather(n),
    },
    "reduce_scatter": {
        "ring": lambda n, g, p: ring.reduce_scatter(n),
        "recursive_halving": lambda n, g, p: doubling.reduce_scatter(n),
        "bruck": lambda n, g, p: bruck.reduce_scatter(n),
        "pat": lambda n, g, p: pat.reduce_scatter(n),
    },
    "all_to_all": {
        "pairwise": lambda n, g, p: all_to_all.pairwise(n),
        "bruck": lambda n, g, p: bruck.all_to_all(n),
        "two_level": lambda n, g, p: all_to_all.two_level(n, g),
    },
    "broadcast": {
        "binomial": lambda n, g, p: binomial.broadcast(n),
        "chain": lambda n, g, p: chain.broadcast(n, p),
        "scatter_all_gather": lambda n, g, p: binomial.scatter_all_gather(n),
    },
}  # fmt: skip
PIPELINED = {
    ("all_reduce", "tree"), ("all_reduce", "hierarchical_tree"), ("all_reduce", "nvls"), ("broadcast", "chain"),
}  # fmt: skip
BY_NODE = {
    ("all_reduce", "rail_ring"), ("all_reduce", "hierarchical"), ("all_reduce", "hierarchical_tree"),
    ("all_to_all", "two_level"),
}  # fmt: skip

PIECE_BYTES = 1 << 18
_MOST_PIECES = 64


def params(op: str, name: str, node_of: list[int], size_bytes: int) -> dict[str, int]:
    """What build() needs beside the number of ranks, to stand with the result.

    The ranks per node of a schedule that knows nodes, and the pieces of about PIECE_BYTES that a pipeline cuts its data
    (each of two trees: half of it) into.
    """
    found = {}
    if (op, name) in BY_NODE:
        found["per_node"] = per_node(node_of)
    if (op, name) in PIPELINED:
        share = size_bytes // (1 if name == "chain" else 2 * found.get("per_node", 1))
        found["pieces"] = min(max(share // PIECE_BYTES, 1), _MOST_PIECES)
    return found


def build(op: str, name: str, ranks: int, per_node: int = 1, pieces: int = 1) -> Schedule:
    """The schedule `name` of `op`. Raises KeyError where there is none, see refusal()."""
    return SCHEDULES[op][name](ranks, per_node, pieces)


def refusal(op: str, name: str, node_of: list[int], in_place: bool = False) -> str | None:
    """Why own:NAME cannot be executed on ranks that live on the nodes node_of[rank]; None where it can."""
    if op not in SCHEDULES:
        return f"commbench has no schedules of its own for {op}; it has them for {', '.join(SCHEDULES)}"
    if name not in SCHEDULES[op]:
        return f"commbench has no schedule own:{name} for {op}; it has {', '.join(SCHEDULES[op])}"
    if name == "nvls":
        return "own:nvls is a schedule over a switch that reduces: it can be simulated and drawn, not executed"
    if op == "all_to_all" and in_place:
        return f"own:{name} has no in-place form: it sends blocks of the memory that others already write to"
    if (op, name) in BY_NODE and per_node(node_of) is None:
        return f"own:{name} needs the same number of ranks on every node, and the ranks of a node one after another"
    return None


def per_node(node_of: list[int]) -> int | None:
    """Ranks per node where all nodes have as many and ranks are numbered node by node, else None."""
    g = node_of.count(node_of[0])
    groups = [node_of[i : i + g] for i in range(0, len(node_of), g)]
    same = all(len(set(group)) == 1 and len(group) == g for group in groups)
    return g if same and len(groups) == len(set(node_of)) else None
