"""Verdicts that need no profile: each node, rail and switch of a run beside the others, and what the inventory says."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from commbench.acceptance.accuse import Accusation, accuse, unexplained
from commbench.acceptance.again import command_of_pairs, command_of_point
from commbench.acceptance.culprits import NAMED, Isolation, Part
from commbench.acceptance.hints import first_things_of
from commbench.acceptance.inventory import findings, inventoried
from commbench.acceptance.links import link, share_of, undetermined
from commbench.acceptance.ports import BAR
from commbench.acceptance.verdict import Verdict
from commbench.acceptance.wording import sentence, subject
from commbench.results.nccl_tests import one_line
from commbench.results.store import Run
from commbench.units import format_size

INVENTORY, ALONE, PAIRS = "inventory", "each node by itself", "pairs of nodes"
_EITHER = "neither end met a good partner, so either may be guilty"
_MOST_LINKS = 100


def judge_parts(run: Run, topology: Path | None = None) -> tuple[list[Verdict], list[str], Accusation]:
    """(the verdicts, notes, what they rest on). A culprit fails, a suspect is a warning; who reaches what the others do
    passes.

    `topology`: a file that names the leaf switches. Raises UsageError when it cannot be used.
    """
    found = accuse(run, topology)
    verdicts, notes = [*_inventory(run), *_alone(run, found)], []
    for backend, isolation in found.between.items():
        verdicts += _between(isolation)
        notes += [f"{backend}: {one_line(text)}" for text in unexplained(isolation)]
    return verdicts, notes, found


def guilty_ranks(run: Run, found: Accusation) -> dict[str, dict[int, str]]:
    """For each scope {rank: host} of the nodes whose fault slows its rows: those that are slow within themselves, those
    that are slow between nodes, or both. Empty where the run does not tell places."""
    places = run.launches[-1].header.get("ranks", []) if run.launches else []
    host_of = {r["rank"]: one_line(r["host"]) for r in places if "host" in r and type(r.get("rank")) is int}
    inside = {host for part in found.culprits if part.kind == "inside" for host in part.hosts}
    between = {host for part in found.culprits if part.kind not in ("inside", "rail") for host in part.hosts}
    return {
        scope: {rank: host for rank, host in host_of.items() if host in hosts}
        for scope, hosts in (("intra", inside), ("inter", between), ("mixed", inside | between))
    }


def _inventory(run: Run) -> list[Verdict]:
    """A verdict for each finding, and a pass for each node that none is about."""
    found, hosts = findings(run), inventoried(run)
    bad = {host for finding in found for host in finding.hosts}
    source = f"the inventory of the run's {len(hosts)} nodes"
    told = [
        Verdict(INVENTORY, ", ".join(map(one_line, f.hosts)) or "the run", f.level, "", source, INVENTORY,
                note=one_line(f.text))
        for f in found
    ]  # fmt: skip
    alike = [host for host in hosts if host not in bad] if len(hosts) > 1 else []
    return told + [
        Verdict(INVENTORY, one_line(host), "pass", "", source, INVENTORY, note="has what most nodes have")
        for host in alike
    ]


def _alone(run: Run, found: Accusation) -> list[Verdict]:
    if not found.alone:
        return []
    own = [s.point for s in run.samples() if s.status == "ok" and s.point.group.startswith("node #")]
    point = max(own, key=lambda point: point.size_bytes)
    source = f"the median of {len(found.alone)} nodes over all that each measured by itself"
    return [
        Verdict(
            ALONE, one_line(subject(part)), _word(part), "busbw_GBps", source, "spread", measured=part.share,
            expected=1.0, fail_at=BAR, nodes=1, op=point.op, size_bytes=point.size_bytes,
            note=one_line(sentence(part)) if part.share < BAR else "", look_at=_look_at(part),
            again=command_of_point(point),
        )
        for part in found.alone
    ]  # fmt: skip


def _word(part: Part) -> str:
    return "pass" if part.share >= BAR else "fail" if part.confidence >= NAMED else "warn"


def _look_at(part: Part) -> tuple[str, ...]:
    return first_things_of(part) if part.share < BAR else ()


def _between(isolation: Isolation) -> list[Verdict]:
    """The accused, then every node, rail and switch that nobody accuses."""
    ports = isolation.ports
    accused = [*isolation.culprits, *isolation.suspects]
    verdicts = [_verdict(isolation, subject(part), part.share, part) for part in accused]
    nodes = {node for part in accused if part.kind != "rail" for node in part.nodes}
    slow_rails = {part.rail for part in accused if part.kind == "rail"}
    switches = {part.name for part in accused if part.kind == "switch"}
    rails = [rail for rail in range(ports.meetings.rails) if rail not in slow_rails]
    others = {f"node {host}": ports.share[node, rails] for node, host in enumerate(ports.meetings.hosts)
              if node not in nodes}  # fmt: skip
    if ports.meetings.rails > 1:
        others |= {f"rail {rail}": ports.share[:, rail] for rail in rails}
    others |= {f"leaf switch {name}": ports.share[np.ix_(below, rails)]
               for name, below in isolation.switches.items() if name not in switches}  # fmt: skip
    verdicts += [_verdict(isolation, name, _middle(shares)) for name, shares in others.items()]
    return verdicts + [
        replace(_verdict(isolation, link(isolation, k), float(share_of(isolation)[k])), note=_EITHER)
        for k in undetermined(isolation)[:_MOST_LINKS]
    ]


def _middle(shares: np.ndarray) -> float | None:
    """The median; None where one of them is not known."""
    return float(np.median(shares)) if np.isfinite(shares).all() else None


def _verdict(isolation: Isolation, of: str, share: float | None, part: Part | None = None) -> Verdict:
    ports, point = isolation.ports, isolation.ports.meetings.point
    healthy = ports.healthy_GBps
    met = f"{len(ports.meetings.rate_GBps)} one-way rates between {len(ports.meetings.hosts)} nodes"
    told = {
        "source": f"what a healthy port reaches: the median over {met} at {format_size(point.size_bytes)}",
        "expected": healthy, "fail_at": BAR * healthy, "op": point.op, "size_bytes": point.size_bytes,
        "again": command_of_pairs(point),
    }  # fmt: skip
    if share is None:
        note = "not known: it met no partner that is good for certain, one way at least"
        return Verdict(PAIRS, one_line(of), "warn", "busbw_GBps", note=note, **told)
    if part is None:
        word = "pass" if share >= BAR else "warn"
        return Verdict(PAIRS, one_line(of), word, "busbw_GBps", measured=share * healthy, **told)
    return Verdict(
        PAIRS, one_line(of), "fail" if part.confidence >= NAMED else "warn", "busbw_GBps", measured=share * healthy,
        note=one_line(sentence(part, healthy)), look_at=first_things_of(part), **told,
    )  # fmt: skip
