"""Culprits in plain words."""

import math
import re

from commbench.acceptance.culprits import Part
from commbench.acceptance.ports import BAR

_SIDE = {None: "", "out": ", sending", "in": ", receiving"}
_SLOW = {None: "slow in both directions", "out": "slow to send", "in": "slow to receive"}


def sentence(part: Part, healthy_GBps: float | None = None) -> str:
    """One culprit in a line: what it is, how slow, on what evidence."""
    hosts = folded(part.hosts)
    inner = part.inner is not None and part.inner >= BAR
    if part.kind == "inside":
        what = f"node {hosts} is slow within itself"
    elif part.kind == "node":
        what = f"node {hosts} is {_SLOW[part.side]}"
    elif part.kind == "port":
        what = f"rail {part.rail} of node {hosts} (its NIC, cable or port) is {_SLOW[part.side]}"
    elif part.kind == "rail":
        what = f"rail {part.rail} is slow on all nodes"
    elif part.kind == "switch":
        name = f"leaf switch {part.name}"
        uplinks = f"the uplinks of {name} are {_SLOW[part.side]}, for its nodes are fast with each other"
        what = (uplinks if inner else f"{name} is {_SLOW[part.side]}") + f": {hosts}"
    else:
        rail = "" if part.rail is None else f" on rail {part.rail}"
        beyond = (
            "they are fast with each other, so it lies beyond them"
            if inner
            else "they are slow alike, by one cause or by equal ones"
        )
        what = f"these {len(part.nodes)} nodes share a fault{rail}, {_SLOW[part.side]}: {hosts}; {beyond}"
    reached = f"{part.share:.0%} of what others reach"
    if healthy_GBps:
        reached += f" ({part.share * healthy_GBps:.3g} of {healthy_GBps:.3g} GB/s)"
    sure = "over 99.99%" if part.confidence > 0.9999 else f"{math.floor(part.confidence * 1e4) / 100:g}%"
    return f"{what}: {reached}, in {part.slow} of {part.met} figures; confidence {sure}"


def subject(part: Part) -> str:
    """What a part is, as the subject of a verdict."""
    hosts, side = folded(part.hosts), _SIDE[part.side]
    if part.kind in ("rail", "switch"):
        return f"rail {part.rail}" if part.kind == "rail" else f"leaf switch {part.name}{side}"
    if part.kind == "inside":
        return f"node {hosts}"
    rail = "" if part.rail is None else f"rail {part.rail} of "
    return f"{rail}node{'s' * (len(part.nodes) > 1)} {hosts}{side}"


def folded(hosts) -> str:
    """Host names as Slurm writes a list of them: node[001-004,7]-ib."""
    groups = {}
    for host in hosts:
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", host)
        width = len(match[2]) if match and re.match(r"0\d", match[2]) else 0
        key = (match[1], match[3], width) if match else (host, None, 0)
        groups.setdefault(key, []).append(match[2] if match else "")
    told = []
    for (before, after, _), numbers in groups.items():
        spans = _spans(sorted(numbers, key=int)) if after is not None else []
        if after is None:
            told.append(before)
        elif len(numbers) == 1:
            told.append(f"{before}{numbers[0]}{after}")
        else:
            told.append(f"{before}[{','.join(spans)}]{after}")
    return ",".join(told)


def _spans(numbers: list[str]) -> list[str]:
    spans = []
    for number in numbers:
        if spans and int(number) == int(spans[-1][1]) + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [low if low == high else f"{low}-{high}" for low, high in spans]
