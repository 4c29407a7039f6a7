"""Times of schedules as formulas, for fabrics that are simple enough to have one. The simulator equals them.

a: latency of a hop, b: microseconds per byte, y: microseconds per added byte, c: a block, S / N. Rings, recursive
doubling and halving, binomial trees, Rabenseifner, van de Geijn: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005,
sections 3 and 4; Bruck: Bruck et al., IEEE TPDS 8(11), 1997; PAT: Jeaugey, arXiv 2506.20252.
"""

from typing import NamedTuple

from commbench.fabrics import Fabric


class Terms(NamedTuple):
    """What the critical path holds: hops and bytes sent one after another, and bytes added after they arrived."""

    hops: float
    sent: float
    added: float = 0.0


def uniform_terms(op: str, name: str, n: int, size_bytes: float, pieces: int = 1) -> Terms | None:
    """The critical path of schedule `name` of `op` on `n` ranks whose links are all alike; None without a formula.

    The double binary trees have none: their number of steps follows from how their edges are numbered.
    """
    if n == 1:
        return Terms(0, 0)
    c, s, log = size_bytes / n, size_bytes, (n - 1).bit_length()
    members = 1 << (n.bit_length() - 1)  # that recursive doubling works on; the others send theirs to one of them
    floor_log, out = members.bit_length() - 1, n - members
    moved = (n - 1) * c
    if out:
        # Into the exchange and out of it goes one block and all but one; group sizes grow as 2, 4, ... up to 2 * out.
        doubled = c * (1 + sum(min(2 * d, d + out) for d in (1 << j for j in range(floor_log))) + n - 1)
        doubling_hops = floor_log + 2
    else:
        doubled, doubling_hops = moved, floor_log
    halved = s * (members - 1) / members
    folded = 1 if out else 0
    formulas = {
        ("all_reduce", "ring"): Terms(2 * (n - 1), 2 * moved, moved),
        ("all_reduce", "recursive_doubling"): Terms(
            floor_log + 2 * folded, (floor_log + 2 * folded) * s, (floor_log + folded) * s
        ),
        ("all_reduce", "rabenseifner"): Terms(
            2 * floor_log + 2 * folded, 2 * halved + 2 * folded * s, halved + folded * s
        ),
        ("all_reduce", "binomial"): Terms(2 * log, 2 * log * s, log * s),
        ("all_gather", "ring"): Terms(n - 1, moved),
        ("all_gather", "recursive_doubling"): Terms(doubling_hops, doubled),
        ("all_gather", "bruck"): Terms(log, moved),
        ("all_gather", "pat"): Terms(log, moved),
        ("reduce_scatter", "ring"): Terms(n - 1, moved, moved),
        ("reduce_scatter", "recursive_halving"): Terms(doubling_hops, doubled, doubled),
        ("reduce_scatter", "bruck"): Terms(log, moved, moved),
        ("reduce_scatter", "pat"): Terms(log, moved, moved),
        ("all_to_all", "pairwise"): Terms(n - 1, moved),
        ("all_to_all", "bruck"): Terms(log, c * sum(d.bit_count() for d in range(n))),
        ("broadcast", "binomial"): Terms(log, log * s),
        ("broadcast", "chain"): Terms(n - 2 + pieces, (n - 2 + pieces) * s / pieces),
        ("broadcast", "scatter_all_gather"): Terms(log + n - 1, 2 * moved),
    }
    return formulas.get((op, name))


def closed_form_us(
    op: str, name: str, n: int, size_bytes: float, fabric: Fabric, per_node: int = 1, pieces: int = 1
) -> float | None:
    """The time of schedule `name` of `op` on `fabric` as a formula; None where there is none.

    There is one for every schedule but the tree where all ranks are in one NVLink domain, or each has its own; and for
    rings and two-level schedules (of `per_node` ranks a node, the size of the domain) on any fabric.
    """
    g, k = per_node, n // per_node
    inside, between = fabric.intra, fabric.inter
    shared = -(-fabric.ranks_per_node // fabric.nics_per_node)  # ranks that use the busiest NIC
    if n <= fabric.domain_ranks:
        between, shared = inside, 1
    elif fabric.domain_ranks == 1:
        inside = between
    elif name == "ring":
        # Neighbours wait for each other, so the slower kind of hop sets the pace of all.
        n_steps = 2 * (n - 1) if op == "all_reduce" else n - 1
        added = 0 if op == "all_gather" else (n - 1) * size_bytes / n
        return n_steps * max(_us(link, 1, size_bytes / n) for link in (inside, between)) + _added_us(fabric, added)
    elif g != fabric.domain_ranks:
        return None
    if (op, name) == ("all_reduce", "hierarchical"):
        near, far = (g - 1) * size_bytes / g, (k - 1) * size_bytes / n
        hops = _us(inside, 2 * (g - 1), 2 * near) + _us(between, 2 * (k - 1), 2 * far * shared)
        return hops + _added_us(fabric, near + far)
    if (op, name) == ("all_to_all", "two_level"):
        block = size_bytes / n
        return _us(inside, g - 1, (g - 1) * k * block) + _us(between, k - 1, (k - 1) * g * block * shared)
    if (op, name) == ("all_reduce", "rail_ring"):
        if inside is between:
            name = "ring"
        else:
            pace = max(_us(inside, 1, (g - 1) * size_bytes / n / g), _us(between, 1, shared * size_bytes / n / g))
            return 2 * (n - 1) * pace + _added_us(fabric, (n - 1) * size_bytes / n)
    if (op, name) == ("all_reduce", "nvls") and fabric.in_switch and n <= fabric.domain_ranks:
        return _us(fabric.in_switch, pieces + 3, _through_switch(n, pieces) * size_bytes / n / pieces) if n > 1 else 0.0
    terms = uniform_terms(op, name, n, size_bytes, pieces)
    if terms is None or inside is not between:
        return None
    return _us(inside, terms.hops, terms.sent) + _added_us(fabric, terms.added)


def _through_switch(n: int, pieces: int) -> int:
    """Chunks one after another through a rank's busier port: each piece is read (n up), handed out (1 down), written
    (1 up) and sent to all (n down) in four steps that follow each other."""

    def busy(step: int) -> int:
        reads, sums, writes, results = (0 <= step - stage < pieces for stage in range(4))
        return max(n * reads + writes, sums + n * results)

    return sum(busy(step) for step in range(pieces + 3))


def _us(link, hops: float, sent: float) -> float:
    return hops * link.latency_us + sent / (link.bandwidth_GBps * 1e3)


def _added_us(fabric: Fabric, added: float) -> float:
    return fabric.gamma_us_per_byte * added
