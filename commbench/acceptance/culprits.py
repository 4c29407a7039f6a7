"""From slow ports to the parts that explain them: a rail, a switch, a node, a NIC, one direction of it.

The largest part whose ports are nearly all slow is named in their place; what is slower still within it is named too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from commbench.acceptance.ports import BAR, SIDES, Meetings, Ports, judge_ports

MOST = 0.75  # of a part's ports, above which the part is named
NAMED = 0.99  # confidence from which on a part is a culprit, below it a suspect
_ALIKE = 1.1  # shares within this factor are alike
_MANY = 4  # nodes that are slow alike without having met, from which on a common cause is likely


@dataclass(frozen=True)
class Part:
    """kind: rail, switch, node, port (one rail of a node) or group (nodes that share a fault). side: "out", "in" or
    None for both; rail: None for all. share: of the healthy rate; slow of `met` meetings with good partners were slow;
    inner: share among its own nodes, None where they did not meet.

    confidence: 1 less the chance that any such part would look so though nothing is wrong.
    """

    kind: str
    nodes: tuple[int, ...]
    hosts: tuple[str, ...]
    rail: int | None
    side: str | None
    share: float
    slow: int
    met: int
    confidence: float
    name: str = ""
    inner: float | None = None


@dataclass(frozen=True)
class Isolation:
    """The answer: `culprits`, the worst first; `suspects`, which too few meetings accuse; the ports as measured; the
    nodes of each leaf switch, where that is known."""

    ports: Ports
    culprits: tuple[Part, ...]
    suspects: tuple[Part, ...]
    switches: dict[str, list[int]]


def isolate(meetings: Meetings, switches: dict[str, list[int]] | None = None) -> Isolation:
    """Name the slow parts. `switches`: the nodes of each leaf switch, where that is known."""
    ports, rails = _rails(judge_ports(meetings))
    parts = rails + _grouped(_explain(ports, switches or {}, rails), ports)
    parts.sort(key=lambda part: part.share)
    named = tuple(part for part in parts if part.confidence >= NAMED)
    return Isolation(ports, named, tuple(part for part in parts if part.confidence < NAMED), switches or {})


def _cut(share: float) -> float:
    """Half-way between a healthy part and one of that share: a meeting below it counts as slow."""
    return (1 + share) / 2


def _rails(ports: Ports) -> tuple[Ports, list[Part]]:
    """(the ports, those of slow rails judged beside their own rail; the rails on which no port is good).

    A port of such a rail meets no good partner, so its rail is divided out before the ports are judged.
    """
    meetings, found = ports.meetings, []
    share, rail_of = meetings.rate_GBps / ports.healthy_GBps, meetings.src % meetings.rails
    for rail in range(meetings.rails):
        own = share[rail_of == rail]
        if own.size and not ports.good[:, rail].any():
            reached = float(np.median(own))
            k = int(np.count_nonzero(own < _cut(reached)))
            sure = confidence(k, own.size, ports.chance(_cut(reached)), meetings.rails)
            every = tuple(range(len(meetings.hosts)))
            found.append(Part("rail", every, meetings.hosts, rail, None, reached, k, own.size, sure))
    if not found:
        return ports, []
    scale = _of_rails(found, meetings.rails)
    judged = judge_ports(replace(meetings, rate_GBps=meetings.rate_GBps / scale[rail_of]))
    return replace(judged, meetings=meetings, share=judged.share * scale[:, None]), found


def _of_rails(rails: list[Part], count: int) -> np.ndarray:
    scale = np.ones(count)
    for part in rails:
        scale[part.rail] = part.share
    return scale


def _explain(ports: Ports, switches: dict[str, list[int]], rails: list[Part]) -> list[Part]:
    """The slow parts, each level of them after the larger ones: what a larger part explains is divided out."""
    expected, found = np.ones(ports.share.shape), []
    expected *= _of_rails(rails, ports.share.shape[1])[:, None]
    across = _across(ports, switches)
    for kind, tests, level in _levels(ports, switches):
        judged = across if kind == "switch" else ports
        for name, nodes, rails, sides in level:
            at = np.ix_(nodes, rails, sides)
            shares = judged.share[at] / expected[at]
            shares = shares[np.isfinite(shares)]
            if not shares.size or np.mean(shares < BAR) <= MOST:
                continue
            share = float(np.median(shares))
            k, n = judged.counts(at, expected, _cut(share))
            sure = confidence(k, n, judged.chance(_cut(share)), tests)
            found.append(
                Part(
                    kind, tuple(nodes), tuple(ports.meetings.hosts[node] for node in nodes),
                    rails[0] if len(rails) < ports.meetings.rails else None,
                    SIDES[sides[0]] if len(sides) == 1 else None,
                    float(np.nanmedian(judged.share[at])), k, n, sure, name,
                    _inner(ports, nodes) if len(nodes) > 1 else None,
                )
            )  # fmt: skip
            expected[at] *= share
    return found


def _across(ports: Ports, switches: dict[str, list[int]]) -> Ports:
    """The ports judged by meetings across switches alone, for below a switch with slow uplinks nodes are fast."""
    meetings = ports.meetings
    above = np.full(len(meetings.hosts), -1)
    for number, nodes in enumerate(switches.values()):
        above[nodes] = number
    ends = above[meetings.src // meetings.rails], above[meetings.dst // meetings.rails]
    kept = (ends[0] != ends[1]) | (ends[0] < 0)
    if kept.all() or not kept.any():
        return ports
    return judge_ports(
        replace(meetings, src=meetings.src[kept], dst=meetings.dst[kept], rate_GBps=meetings.rate_GBps[kept])
    )


def _levels(ports: Ports, switches: dict[str, list[int]]) -> Iterator[tuple]:
    """(kind, how many such parts there are, [(name, nodes, rails, sides)]) from the largest parts to the smallest."""
    count, rails = ports.share.shape[:2]
    all_rails, both = range(rails), range(2)
    # A part that holds no slow port is not looked at.
    touched = np.flatnonzero((ports.share < BAR).any(axis=(1, 2))).tolist()
    of_several = {name: nodes for name, nodes in switches.items() if len(nodes) > 1}
    if len(of_several) > 1:
        for sides in (both, [0], [1]):
            yield "switch", 3 * len(of_several), [(name, nodes, all_rails, sides) for name, nodes in of_several.items()]
    for sides in (both, [0], [1]):
        yield "node", 3 * count, [("", [node], all_rails, sides) for node in touched]
    if rails > 1:
        for sides in (both, [0], [1]):
            yield (
                "port", 3 * count * rails, [("", [node], [rail], sides) for node in touched for rail in all_rails],
            )  # fmt: skip


def confidence(slow: int, met: int, chance: float, tests: int) -> float:
    """How sure it is that a part is slow: 1 less the chance that one of `tests` healthy parts has `slow` of `met` slow
    meetings, each slow with probability `chance`.

    Chernoff's bound on the binomial tail, exp(-n KL(k/n, p)) (Hoeffding 1963, theorem 1): never too confident.
    """
    if not met or slow / met <= chance:
        return 0.0
    at = slow / met
    divergence = at * math.log(at / chance) + (0 if slow == met else (1 - at) * math.log((1 - at) / (1 - chance)))
    return 1 - min(1.0, tests * math.exp(-met * divergence))


def _inner(ports: Ports, nodes) -> float | None:
    """The share that these nodes reach with each other; None where none of them met."""
    _, _, rate = _among(ports.meetings, nodes)
    return float(np.median(rate)) / ports.healthy_GBps if rate.size else None


def _among(meetings: Meetings, nodes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sending node, receiving node, rate) of the meetings of these nodes with each other."""
    source, target = meetings.src // meetings.rails, meetings.dst // meetings.rails
    inside = np.isin(source, nodes) & np.isin(target, nodes)
    return source[inside], target[inside], meetings.rate_GBps[inside]


def _grouped(parts: list[Part], ports: Ports) -> list[Part]:
    """Nodes that are slow in the same way, as one part: where they are fast with each other, which proves that the
    fault lies beyond them, or where they are many."""
    left, alike = list(parts), {}
    for part in sorted(parts, key=lambda part: part.share):
        if part.kind in ("node", "port"):
            shared = alike.setdefault((part.kind, part.rail, part.side), [])
            if shared and part.share <= _ALIKE * shared[-1][0].share:
                shared[-1].append(part)
            else:
                shared.append([part])
    for cluster in (cluster for shared in alike.values() for cluster in shared):
        members = _sharing(cluster, ports)
        if members:
            left = [part for part in left if part not in members] + [_group(members, ports)]
    return left


def _sharing(cluster: list[Part], ports: Ports) -> list[Part]:
    """Those of a cluster that share a fault; empty where nothing says so."""
    nodes = [part.nodes[0] for part in cluster]
    source, target, rate = _among(ports.meetings, nodes)
    fast = rate > _cut(cluster[-1].share) * ports.healthy_GBps
    pairs = np.sort(np.stack((source, target), 1), axis=1)
    fast_with = {tuple(pair) for pair in pairs[fast].tolist()} - {tuple(pair) for pair in pairs[~fast].tolist()}
    linked = {node for pair in fast_with for node in pair}
    # A pair of them that is slow may share a link by chance, so of many nodes all that are alike belong together.
    return cluster if len(cluster) >= _MANY else [part for part in cluster if part.nodes[0] in linked]


def _group(members: list[Part], ports: Ports) -> Part:
    members = sorted(members, key=lambda part: part.nodes)
    nodes = tuple(part.nodes[0] for part in members)
    return replace(
        members[0],
        kind="group",
        nodes=nodes,
        hosts=tuple(part.hosts[0] for part in members),
        share=float(np.median([part.share for part in members])),
        slow=sum(part.slow for part in members),
        met=sum(part.met for part in members),
        confidence=min(part.confidence for part in members),
        inner=_inner(ports, nodes),
    )
