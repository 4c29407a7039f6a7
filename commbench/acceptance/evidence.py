"""What a run holds of who is slow: the one-way rates between its nodes, and what each node reached by itself."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commbench.acceptance.culprits import Part, confidence
from commbench.acceptance.ports import BAR, Meetings
from commbench.results.metrics import busbw_GBps
from commbench.results.records import Point, Sample
from commbench.results.store import Run

_LEAST_BYTES = 1 << 20  # below it times are latencies, and say little of a link


@dataclass(frozen=True)
class Places:
    """Where each rank is: its node, and its rail (the number of its NIC, else its local number). `hosts`: the nodes."""

    hosts: tuple[str, ...]
    node_of: tuple[int, ...]
    rail_of: tuple[int, ...]


def places_of(run: Run, world_size: int) -> Places | None:
    """The places of a world, as the newest launch of that size has told them; None where none has."""
    headers = [launch.header for launch in run.launches if len(launch.header.get("ranks", ())) == world_size]
    ranks = headers[-1]["ranks"] if headers else []
    node_of = tuple(place.get("node") for place in ranks)
    if not ranks or set(node_of) != set(range(len(set(node_of)))):
        return None
    local = tuple(_counted(node_of))
    told = tuple(place.get("rail") for place in ranks)
    distinct = all(type(rail) is int and 0 <= rail < len(ranks) for rail in told)
    distinct = distinct and len(set(zip(node_of, told))) == len(ranks)
    names = {place["node"]: str(place.get("host", f"node {place['node']}")) for place in reversed(ranks)}
    return Places(tuple(names[node] for node in sorted(names)), node_of, told if distinct else local)


def _counted(node_of):
    """The local number of each rank: how many ranks before it are on its node."""
    seen = defaultdict(int)
    for node in node_of:
        yield seen[node]
        seen[node] += 1


def meetings_of(run: Run) -> dict[str, Meetings]:
    """The meetings of each backend: p2p_bw between nodes, at the size at which most pairs met.

    Of a pair that met several times the best counts, as for every figure of a verdict. Ranks of different rails that
    met are left out where ranks of the same rail did, for their way is another one.
    """
    found = defaultdict(lambda: defaultdict(float))  # (backend, world, size): {(src, dst): best rate}
    worlds, points = {}, {}
    for sample in run.samples():
        point, rate = sample.point, busbw_GBps(sample)
        if point.op == "p2p_bw" and sample.status == "ok" and rate and len(point.members) == 2 and point.root in (0, 1):
            if point.world_size not in worlds:
                worlds[point.world_size] = places_of(run, point.world_size)
            places, pair = worlds[point.world_size], (point.members[point.root], point.members[1 - point.root])
            if places is not None and max(pair) < len(places.node_of) and len({places.node_of[r] for r in pair}) == 2:
                best = found[point.backend, point.world_size, point.size_bytes]
                points[point.backend, point.world_size, point.size_bytes] = point
                best[pair] = max(best[pair], rate)
    chosen = {}
    for (backend, world, size), pairs in found.items():
        chosen[backend] = max(chosen.get(backend, (0, 0, 0)), (len(pairs), size, world))
    return {
        backend: _meetings(found[backend, world, size], worlds[world], points[backend, world, size])
        for backend, (_, size, world) in chosen.items()
    }


def _meetings(best: dict, places: Places, point: Point) -> Meetings:
    rails = max(places.rail_of) + 1
    same = {pair: rate for pair, rate in best.items() if places.rail_of[pair[0]] == places.rail_of[pair[1]]}
    kept = same or best
    port = np.array(places.node_of) * rails + np.array(places.rail_of)
    source, target = np.array(list(kept)).T
    return Meetings(places.hosts, rails, port[source], port[target], np.array(list(kept.values())), point)


def alone(run: Run) -> list[Part]:
    """Each node among its own ranks, beside the other nodes, as a part of kind "inside"; the slowest first.

    A node is judged by its median over all operations and sizes that each node measured by itself (split "node").
    """
    found = defaultdict(lambda: defaultdict(float))  # what was measured: {first rank of the node: best}
    for sample in run.samples():
        rate = busbw_GBps(sample)
        large = sample.point.size_bytes >= _LEAST_BYTES
        if sample.status == "ok" and rate and large and sample.point.group.startswith("node #"):
            best = found[_what(sample)]
            best[sample.point.members] = max(best[sample.point.members], rate)
    shares, hosts = defaultdict(list), {}
    for what, best in found.items():
        places = places_of(run, what[0])
        typical = float(np.quantile(list(best.values()), 0.5, method="higher"))
        for members, rate in best.items():
            if places is not None and len(best) > 1:
                node = places.node_of[members[0]]
                shares[node].append(rate / typical)
                hosts[node] = places.hosts[node]
    slow = {node: sum(share < BAR for share in told) for node, told in shares.items()}
    middle = {node: float(np.median(told)) for node, told in shares.items()}
    healthy = [node for node in shares if middle[node] >= BAR]
    of_healthy = sum(slow[node] for node in healthy), sum(len(shares[node]) for node in healthy)
    parts = []
    for node, told in shares.items():
        # Of the other healthy ones; as in ports.py, a twentieth of theirs is slow by chance, until more is known.
        own = (slow[node], len(told)) if middle[node] >= BAR else (0, 0)
        chance = (of_healthy[0] - own[0] + 0.5) / (of_healthy[1] - own[1] + 10)
        sure = confidence(slow[node], len(told), chance, len(shares))
        parts.append(Part("inside", (node,), (hosts[node],), None, None, middle[node], slow[node], len(told), sure))
    return sorted(parts, key=lambda part: part.share)


def _what(sample: Sample) -> tuple:
    point = sample.point
    return (
        point.world_size, point.backend, point.op, point.choice, point.size_bytes, point.dtype, point.redop,
        point.in_place, point.timing, point.ranks,
    )  # fmt: skip
