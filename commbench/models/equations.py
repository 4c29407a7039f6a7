"""What a collective's time is made of, per algorithm: named columns, each multiplied by a parameter of the machine.

N ranks on n nodes, g = N / n per node, S bytes in nccl-tests' convention (all_gather, reduce_scatter, all_to_all,
gather and scatter: the total). Time in microseconds is the sum of columns times parameters: columns named *_us count
steps, columns named *_us_per_byte count bytes.

Sources: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4; NCCL 2.30.7 src/graph/tuning.cc for ring, tree,
PAT and NVLS; PAT: arXiv 2506.20252.

A reduction's own cost per byte (gamma) is in a fixed proportion to the bytes sent in every one of these algorithms, so
one operation cannot tell it from beta: beta_us_per_byte of a reducing operation holds both.
"""

import numpy as np

from commbench.errors import UsageError
from commbench.models.priors import NCCL_TREE_CORRECTION

_RING_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def terms(op: str, algorithm: str, ranks, nodes, size_bytes, protocol: str = ""):
    """The columns of one operation's time by one algorithm: (names, array of (rows, names)).

    `algorithm` may carry the prefix own:. A tree's bandwidth is corrected by NCCL's table where `protocol` is LL, LL128
    or Simple, and is not otherwise. Raises UsageError for an algorithm that has no equation for this operation.
    """
    plain = algorithm.removeprefix("own:").lower()
    equation = EQUATIONS.get(op, {}).get(plain)
    if equation is None:
        known = ", ".join(EQUATIONS.get(op, {})) or "none"
        raise UsageError(f"there is no equation for {op} by {algorithm}; {op} has: {known}")
    ranks, nodes, size_bytes = (np.asarray(a, float) for a in np.broadcast_arrays(ranks, nodes, size_bytes))
    named = equation(op, ranks, nodes, size_bytes)
    if plain == "tree" and protocol in NCCL_TREE_CORRECTION["protocols"]:
        named["beta_us_per_byte"] = named["beta_us_per_byte"] / tree_correction(size_bytes, protocol)
    columns = [np.broadcast_to(np.asarray(column, float), ranks.shape) for column in named.values()]
    return tuple(named), np.stack(columns, axis=-1)


def phases(op: str, algorithm: str, names) -> tuple[str, ...]:
    """Which terms may run at the same time: "sum" for what is always paid, "intra" and "inter" for the two phases of
    an algorithm on two levels, whose time is sum + max(intra, inter) + (1 - w) min(intra, inter), w in [0, 1]."""
    overlapping = OVERLAPPING.get((op, algorithm.removeprefix("own:").lower()))
    if overlapping is None:
        return ("sum",) * len(names)
    return tuple(next((p for p in ("intra", "inter") if f"{k}_{p}" in name), "sum") if (k := _kind(name)) in overlapping
                 else "sum" for name in names)  # fmt: skip


def step_bytes(op: str, algorithm: str, ranks, size_bytes) -> np.ndarray:
    """The bytes of one message of one step, on which a library's protocol depends: S/N where each rank passes one
    share of the buffer on, S where the buffer itself travels (in pieces whose number grows with S)."""
    shared = algorithm in _SHARED and (algorithm != "ring" or op in _RING_PASSES)
    return np.asarray(size_bytes, float) / (np.asarray(ranks, float) if shared else 1.0)


def tree_correction(size_bytes, protocol: str) -> np.ndarray:
    """f(S) of NCCL's tuning model: the share of its bandwidth that a tree reaches at a size (1 outside the table)."""
    table = np.array(NCCL_TREE_CORRECTION[protocol])
    slot = np.floor(np.log2(np.maximum(np.asarray(size_bytes, float), 1) / NCCL_TREE_CORRECTION["first_size_bytes"]))
    inside = (slot >= 0) & (slot < len(table))
    return np.where(inside, table[np.clip(slot, 0, len(table) - 1).astype(int)], 1.0)


def _kind(name: str) -> str:
    return name.split("_")[0]


def _doublings(ranks, nodes):
    """ceil(lg N) steps: those inside a node, ceil(lg g), and the rest."""
    inside = np.ceil(np.log2(ranks / nodes))
    return inside, np.ceil(np.log2(ranks)) - inside


def _folded(ranks, nodes):
    """Steps inside and between nodes of an exchange among 2^whole ranks, the ranks beyond them folding in and out in
    `fold` = 2 steps more."""
    whole = np.floor(np.log2(ranks))
    fold = np.where(2**whole == ranks, 0.0, 2.0)
    inside = np.where(nodes == 1, whole + fold, np.minimum(np.ceil(np.log2(ranks / nodes)), whole))
    return inside, whole + fold - inside, whole, fold


def _shared_bytes(ranks, size_bytes):
    return (ranks - 1) / ranks * size_bytes


def hockney(op, N, n, S):
    """T = alpha + S beta (Hockney, Parallel Computing 20, 1994): no word about ranks."""
    return {"alpha_us": 1.0, "beta_us_per_byte": S}


def ring(op, N, n, S):
    """k (N - n) hops inside nodes, k (n - 1) between, k (N - 1)/N S bytes; k = 2 for all_reduce. A broadcast or a
    reduce travels the ring once, pipelined: all hops, S bytes; a hop's latency holds that of a pipeline's piece."""
    passes = _RING_PASSES.get(op, 1)
    moved = passes * _shared_bytes(N, S) if op in _RING_PASSES else S
    return {"base_us": 1.0, "alpha_intra_us": passes * (N - n), "alpha_inter_us": passes * (n - 1.0),
            "beta_us_per_byte": moved}  # fmt: skip


def tree(op, N, n, S):
    """NCCL's (double) binary tree between nodes, a chain inside each: up and down for all_reduce, one way otherwise.

    all_reduce: 2 [(g-1) alpha_intra + floor(lg n) alpha_inter] + 2 S beta.
    """
    ways = 2 if op == "all_reduce" else 1
    return {"base_us": 1.0, "alpha_intra_us": ways * (N / n - 1), "alpha_inter_us": ways * np.floor(np.log2(n)),
            "beta_us_per_byte": ways * S}  # fmt: skip


def recursive_doubling(op, N, n, S):
    """lg N exchanges: of the whole buffer for all_reduce, of doubling shares otherwise (halving mirrors it). Ranks
    beyond a power of two hand theirs to a neighbour first and get the result last."""
    inside, between, whole, fold = _folded(N, n)
    hops = inside + between
    if op == "all_reduce":
        moved = hops * S
    else:
        beyond = N - 2.0**whole
        shares = np.full(N.shape, 0.0)
        for j in range(int(whole.max())):  # groups of 2, 4, ... up to twice the ranks beyond hold a share more each
            shares += np.where(j < whole, np.minimum(2.0 ** (j + 1), 2.0**j + beyond), 0)
        moved = np.where(fold > 0, S / N * (1 + shares + N - 1), _shared_bytes(N, S))
    return {"base_us": 1.0, "alpha_intra_us": inside, "alpha_inter_us": between, "beta_us_per_byte": moved}


def rabenseifner(op, N, n, S):
    """Reduce-scatter by halving, all-gather by doubling: 2 lg N steps, 2 (N-1)/N S bytes. Ranks beyond a power of two
    fold in and out: two more steps of S bytes."""
    inside, between, whole, fold = _folded(N, n)
    return {"base_us": 1.0, "alpha_intra_us": 2 * inside - np.where(n == 1, fold, 0),
            "alpha_inter_us": 2 * between - np.where(n == 1, 0, fold),
            "beta_us_per_byte": 2 * _shared_bytes(2**whole, S) + fold * S}  # fmt: skip


def binomial(op, N, n, S):
    """ceil(lg N) steps of S bytes; a reduce and a broadcast after each other for all_reduce. gather and scatter halve
    what they pass on, (N-1)/N S bytes through the root."""
    ways = 2 if op == "all_reduce" else 1
    inside, between = _doublings(N, n)
    moved = _shared_bytes(N, S) if op in ("gather", "scatter") else ways * (inside + between) * S
    return {"base_us": 1.0, "alpha_intra_us": ways * inside, "alpha_inter_us": ways * between,
            "beta_us_per_byte": moved}  # fmt: skip


def bruck(op, N, n, S):
    """ceil(lg N) steps; all_to_all sends about half its buffer in each (in step j the blocks whose distance has bit j),
    the others (N-1)/N S in all."""
    inside, between = _doublings(N, n)
    moved = S / N * _ones_below(N) if op == "all_to_all" else _shared_bytes(N, S)
    return {"base_us": 1.0, "alpha_intra_us": inside, "alpha_inter_us": between, "beta_us_per_byte": moved}


def _ones_below(count):
    """How many bits are one in all numbers below each count; count lg(count) / 2 for a power of two."""
    bits = [2.0**j for j in range(int(np.ceil(np.log2(count.max()))))]
    return sum(
        (count // (2 * bit) * bit + np.maximum(count % (2 * bit) - bit, 0) for bit in bits), np.zeros(count.shape)
    )


def pat(op, N, n, S):
    """PAT: floor(lg n) steps between nodes, and a cost per rank for placing its blocks (NCCL: 2.8 us)."""
    return {"base_us": 1.0, "alpha_inter_us": np.floor(np.log2(n)), "alpha_rank_us": N,
            "beta_us_per_byte": _shared_bytes(N, S)}  # fmt: skip


def hierarchical(op, N, n, S):
    """Reduce-scatter within the node, ring all-reduce of S/g between nodes, all-gather within; phases may overlap."""
    g = N / n
    return {"base_us": 1.0,
            "alpha_intra_us": 2 * (g - 1), "beta_intra_us_per_byte": 2 * _shared_bytes(g, S),
            "alpha_inter_us": 2 * (n - 1.0), "beta_inter_us_per_byte": 2 * _shared_bytes(n, S / g)}  # fmt: skip


def nvls(op, N, n, S):
    """Reduction in the NVLink switch of one node: S (1 + 1/N) bytes per rank on the wire, no steps that grow with N."""
    return {"base_us": 1.0, "beta_us_per_byte": S * (1 + 1 / N)}


def nvls_tree(op, N, n, S):
    """NVLS within nodes, a tree between them."""
    return {"base_us": 1.0, "alpha_inter_us": 2 * np.floor(np.log2(n)), "beta_us_per_byte": S}


def pairwise(op, N, n, S):
    """N - 1 messages of S/N, over one kind of link."""
    return {"base_us": 1.0, "alpha_intra_us": N / n - 1, "alpha_inter_us": N - N / n,
            "beta_us_per_byte": _shared_bytes(N, S)}  # fmt: skip


def two_level(op, N, n, S):
    """Grouped send and receive on two levels: messages one by one, bytes inside and between nodes at the same time:
    max((g-1)/N S beta_intra, (N-g)/N S beta_inter). alpha_inter is a message's share of those in flight together."""
    g = N / n
    return {"base_us": 1.0, "alpha_intra_us": g - 1, "alpha_inter_us": N - g,
            "beta_intra_us_per_byte": (g - 1) / N * S, "beta_inter_us_per_byte": (N - g) / N * S}  # fmt: skip


def pxn(op, N, n, S):
    """two_level with messages gathered per rail (NCCL's PXN): n - 1 messages between nodes instead of N - g."""
    return two_level(op, N, n, S) | {"alpha_inter_us": n - 1.0}


def scatter_all_gather(op, N, n, S):
    """van de Geijn's broadcast: a binomial scatter and a ring all-gather."""
    inside, between = _doublings(N, n)
    return {"base_us": 1.0, "alpha_intra_us": inside + N - n, "alpha_inter_us": between + n - 1,
            "beta_us_per_byte": 2 * _shared_bytes(N, S)}  # fmt: skip


def linear(op, N, n, S):
    """The root sends or receives N - 1 messages."""
    return {"base_us": 1.0, "alpha_intra_us": N / n - 1, "alpha_inter_us": N - N / n,
            "beta_us_per_byte": _shared_bytes(N, S)}  # fmt: skip


def dissemination(op, N, n, S):
    """A barrier: ceil(lg N) rounds without bytes."""
    inside, between = _doublings(N, n)
    return {"base_us": 1.0, "alpha_intra_us": inside, "alpha_inter_us": between}


_DOUBLING = {"recursive_doubling": recursive_doubling, "bruck": bruck, "pat": pat}
_ROOTED = {"hockney": hockney, "ring": ring, "tree": tree, "binomial": binomial, "linear": linear}
EQUATIONS = {
    "all_reduce": {"hockney": hockney, "ring": ring, "tree": tree, "recursive_doubling": recursive_doubling,
                   "rabenseifner": rabenseifner, "binomial": binomial, "hierarchical": hierarchical, "nvls": nvls,
                   "nvls_tree": nvls_tree},
    "all_gather": {"hockney": hockney, "ring": ring} | _DOUBLING,
    "reduce_scatter": {"hockney": hockney, "ring": ring, "recursive_halving": recursive_doubling} | _DOUBLING,
    "all_to_all": {"hockney": hockney, "pairwise": pairwise, "bruck": bruck, "two_level": two_level, "pxn": pxn},
    "broadcast": _ROOTED | {"chain": ring, "scatter_all_gather": scatter_all_gather},
    "reduce": _ROOTED,
    "gather": {"hockney": hockney, "linear": linear, "binomial": binomial},
    "scatter": {"hockney": hockney, "linear": linear, "binomial": binomial},
    "barrier": {"dissemination": dissemination},
    "sendrecv": {"hockney": hockney},
}  # fmt: skip
# The algorithm whose steps grow with the ranks, which every library has for large messages.
STEPPED = {"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "all_to_all": "pairwise",
           "broadcast": "ring", "reduce": "ring", "gather": "linear", "scatter": "linear",
           "sendrecv": "hockney"}  # fmt: skip
OVERLAPPING = {("all_reduce", "hierarchical"): {"alpha", "beta"}, ("all_to_all", "two_level"): {"beta"},
               ("all_to_all", "pxn"): {"beta"}}  # fmt: skip
_SHARED = {"ring", "recursive_doubling", "recursive_halving", "bruck", "pat", "pairwise", "two_level", "pxn", "linear"}
