"""What a set of measurements can tell, and what it cannot: before measuring (advise) and after (separable).

Two columns of a design that are multiples of each other have one parameter between them. With one value of ranks per
node every ring of n nodes has n - 1 hops between nodes for (g-1)n inside, so the two latencies are one, per node; with
one rank count base and latencies are one. What is not told apart is fitted as the sum that is told, under its own name.
"""

from dataclasses import dataclass

import numpy as np

from commbench.models import equations
from commbench.models.priors import NOMINAL

DEPENDENT = 1e-6  # smallest singular value over the largest, of columns scaled to length 1
CONDITION_MOST = 30.0
SHARE, SHARE_SIZES = 0.5, 4
RANK_COUNTS_LEAST = 3
FURTHEST = 2**34  # no size beyond 16 GiB is asked for


def condition_number(columns, time_us=None) -> float:
    """The condition number of a design, rows relative to their times and columns scaled to length 1."""
    columns = np.asarray(columns, float)
    if time_us is not None:
        columns = columns / np.asarray(time_us, float)[:, None]
    length = np.linalg.norm(columns, axis=0)
    singular = np.linalg.svd(columns / np.where(length > 0, length, 1), compute_uv=False)
    return float(singular[0] / singular[-1]) if len(columns) >= columns.shape[1] and singular[-1] > 0 else np.inf


def separable(op: str, algorithm: str, ranks, nodes, size_bytes):
    """The parameters that these points tell apart: (names, why: name -> sentence for each that is not among them).

    alpha_node_us stands for the passage of one node where alpha_intra_us and alpha_inter_us are not told apart;
    latency_us for base and all alphas; beta_us_per_byte[g=4] for the bytes of 4 ranks per node where several values of
    g were measured.
    """
    names, columns = equations.terms(op, algorithm, ranks, nodes, size_bytes)
    column = dict(zip(names, columns.T))
    per_node = sorted(set((np.asarray(ranks) // np.asarray(nodes)).tolist()))
    several = not np.all(np.asarray(nodes) == 1)
    why, kept = {}, [name for name in names if name == "base_us"]
    for name in sorted((n for n in names if n.endswith("_us") and n != "base_us"), key=_inter_first):
        if not column[name].any():
            if several:
                why[name] = "not determined: it does not occur in what was measured"
        elif _dependent([column[k] for k in kept] + [column[name]]):
            why[name] = _not_told(name, kept, per_node, len(set(np.asarray(ranks).tolist())))
        else:
            kept.append(name)
    if "alpha_inter_us" in kept and "alpha_intra_us" in why and column["alpha_intra_us"].any():
        why["alpha_inter_us"] = why["alpha_intra_us"]
        kept[kept.index("alpha_inter_us")] = "alpha_node_us"
    if kept == ["base_us"] and any(column[name].any() for name in why):
        why["base_us"] = "not determined: with one rank count base and steps are one figure, latency_us"
        kept = ["latency_us"]
    for name in (n for n in names if n.endswith("_per_byte")):
        if not column[name].any():
            why[name] = "not determined: it does not occur in what was measured"
        elif name == "beta_us_per_byte" and several and len(per_node) > 1:
            kept += [f"{name}[g={g}]" for g in per_node]
        else:
            kept.append(name)
    return tuple(kept), why


def columns_of(op: str, algorithm: str, names, ranks, nodes, size_bytes, protocol: str = "") -> np.ndarray:
    """The columns that belong to separable's names, for any points (rows, names)."""
    full, columns = equations.terms(op, algorithm, ranks, nodes, size_bytes, protocol)
    column = dict(zip(full, columns.T))
    per_node = np.asarray(ranks) // np.asarray(nodes)
    told = []
    for name in names:
        plain, _, g = name.partition("[g=")
        if plain == "latency_us":
            told.append(np.ones(len(columns)))
        else:
            values = column["alpha_inter_us" if plain == "alpha_node_us" else plain]
            told.append(values * (per_node == int(g[:-1])) if g else values)
    return np.stack(told, axis=-1)


def _inter_first(name: str) -> int:
    return ("alpha_inter_us", "alpha_us", "alpha_intra_us", "alpha_rank_us").index(name)


def _dependent(columns) -> bool:
    columns = np.stack(columns, axis=1)
    singular = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), compute_uv=False)
    return len(singular) < columns.shape[1] or singular[-1] < DEPENDENT * singular[0]


def _not_told(name: str, kept: list[str], per_node: list[int], rank_counts: int) -> str:
    if rank_counts == 1:
        return "not determined: with one rank count base and steps are one figure, latency_us"
    if name == "alpha_intra_us" and "alpha_inter_us" in kept:
        return (
            f"not determined: {per_node[0]} ranks per node throughout, so hops inside and between nodes grow together; "
            "alpha_node_us is the passage of one node"
        )
    return f"not determined: these points do not tell it apart from {', '.join(kept)}"


def weak_terms(names, columns, values, size_bytes) -> dict[str, str]:
    """Sentences for terms that are less than half of the time at fewer than four sizes, by name: these few sizes carry
    the parameter, and one bad point among them moves it."""
    parts = np.asarray(columns) * np.asarray(values)
    share = parts / np.sum(parts, axis=1, keepdims=True)
    weak = {}
    for name, column in zip(names, share.T):
        sizes = len(set(np.asarray(size_bytes)[column >= SHARE].tolist()))
        if sizes < SHARE_SIZES:
            weak[name] = f"half or more of the time at {sizes} sizes (at most {100 * column.max():.0f} %)"
    return weak


def per_rank_count(pieces) -> bool:
    """Whether pieces hold for the measured rank count only, since base and steps are one figure in them."""
    return any("latency_us" in piece.names for piece in pieces)


@dataclass(frozen=True)
class Advice:
    """sentences: what a sweep would leave open, and why. add: (ranks, nodes, size_bytes) that would settle it."""

    sentences: tuple[str, ...]
    add: tuple[tuple[int, int, int], ...]


def advise(ranks, nodes, size_bytes, op: str, algorithm: str = "library") -> Advice:
    """What a planned sweep (one entry per point) cannot tell about an operation, before it is run.

    Nodes and several nodes are looked at apart, as the fit does. How the sizes divide into latency and bytes is judged
    with priors.NOMINAL. Raises UsageError for an operation or algorithm without an equation.
    """
    algorithm = equations.STEPPED.get(op, algorithm) if algorithm == "library" else algorithm
    ranks, nodes, size_bytes = (np.asarray(a) for a in (ranks, nodes, size_bytes))
    sentences, add = [], []
    for one_node in (True, False):
        mine = ((nodes == 1) == one_node) & (ranks > 1)
        if mine.any():
            told = _advise(ranks[mine], nodes[mine], size_bytes[mine], op, algorithm)
            sentences += [("one node: " if one_node else "several nodes: ") + sentence for sentence in told[0]]
            add += told[1]
    return Advice(tuple(sentences), tuple(dict.fromkeys(add)))


def _advise(ranks, nodes, size_bytes, op, algorithm):
    names, why = separable(op, algorithm, ranks, nodes, size_bytes)
    per_node = ranks // nodes
    sizes = sorted(set(size_bytes.tolist()))
    places = sorted(set(zip(ranks.tolist(), nodes.tolist())))
    sentences, new_places = [], []
    if len({r for r, _ in places}) < RANK_COUNTS_LEAST:
        counts = " and ".join(map(str, sorted({r for r, _ in places})))
        what = "base and steps are one figure" if "latency_us" in names else "no rank count can be held out"
        r, n = places[-1]
        grown = [(r // n * m, m) if n > 1 else (m, 1) for m in _other_counts(n if n > 1 else r, n > 1)]
        missing = RANK_COUNTS_LEAST - len({r for r, _ in places})
        new_places += [place for place in grown if place not in places][:missing]
        sentences.append(f"with {counts} ranks only, {what}; measure {RANK_COUNTS_LEAST} or more rank counts")
    g = int(per_node[0])
    if np.all(nodes > 1) and np.all(per_node == g) and g > 1 and "alpha_intra_us" in why:
        other = max(1, g // 2)
        counts = sorted({n for _, n in places})[:2]
        new_places += [(n * other, n) for n in counts if (n * other, n) not in places]
        sentences.append(
            f"with {g} ranks per node throughout, alpha_intra_us and alpha_inter_us cannot be told apart; measure "
            f"{other} per node as well"
        )
    every = set(sizes)
    for per_byte, more in ((False, lambda s: s[0] / 4), (True, lambda s: s[-1] * 4)):
        grown = list(sizes)
        while (short := _short(op, algorithm, names, ranks, nodes, grown, per_byte)) and 4 <= more(grown) <= FURTHEST:
            grown = sorted([*grown, more(grown)])
        if len(grown) > len(sizes):
            what = "bytes are" if per_byte else "latency is"
            sentences.append(
                f"{what} half or more of the time at fewer than {SHARE_SIZES} sizes (by nominal figures); measure "
                f"{'larger' if per_byte else 'smaller'} sizes"
            )
            every |= set(grown)
        elif short:
            sentences.append(f"too few sizes tell the {'bytes' if per_byte else 'latency'} apart from the rest")
    add = [(r, n, int(size)) for r, n in new_places for size in sorted(every)]
    add += [(r, n, int(size)) for r, n in places for size in sorted(every - set(sizes))]
    columns = columns_of(op, algorithm, names, ranks, nodes, size_bytes)
    condition = condition_number(columns, columns @ _nominal(names))
    if condition > CONDITION_MOST:
        sentences.append(
            f"the parameters {', '.join(names)} are hard to tell apart (condition number {condition:.0f}, wanted is "
            f"{CONDITION_MOST:.0f} or less); spread nodes, ranks per node and sizes further"
        )
    return sentences, add


def _short(op, algorithm, names, ranks, nodes, sizes, per_byte: bool) -> bool:
    """Whether latency (or bytes) are half of the time at too few sizes, on the rank count that shows it best."""
    if not any(name.partition("[")[0].endswith("_per_byte") for name in names):
        return False
    kind = np.array([("_per_byte" in name) == per_byte for name in names])
    best = 0
    for r, n in set(zip(ranks.tolist(), nodes.tolist())):
        parts = columns_of(op, algorithm, names, np.full(len(sizes), r), n, np.array(sizes, float)) * _nominal(names)
        share = parts[:, kind].sum(axis=1) / parts.sum(axis=1)
        best = max(best, int(np.sum(share >= SHARE)))
    return best < SHARE_SIZES


def _nominal(names) -> np.ndarray:
    return np.array([NOMINAL[name.partition("[")[0]] for name in names])


def _other_counts(count: int, nodes: bool):
    """Rank counts (or node counts) near one that is given: its halves first, then its doubles."""
    halves = [count // 2**k for k in (1, 2) if count // 2**k >= 2]
    return halves + [2 * count, 4 * count] * nodes
