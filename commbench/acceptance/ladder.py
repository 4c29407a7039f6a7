"""The steps of a ladder: after each stage, what is measured next and with whom."""

from dataclasses import replace

from commbench.acceptance.accuse import Accusation, accuse
from commbench.acceptance.evidence import Places, places_of
from commbench.acceptance.inventory import Finding, findings
from commbench.acceptance.wording import folded
from commbench.errors import MeasureError
from commbench.results.plan import Plan
from commbench.results.records import Point
from commbench.results.store import Run
from commbench.suite.expand import at_size
from commbench.suite.groups import first_nodes, rail_pairs
from commbench.suite.rounds import again

_ROUND, _AGAIN = "rail round", "again round"


def next_stage(run: Run) -> tuple[Plan, list[str]]:
    """(the plan of `run`, its measured part done, with the steps of the next stage at its end; what to tell people).

    Nodes that pairs accuse first meet other partners. Stages over all nodes or the first ones leave out the nodes that
    are accused then, so that one bad node does not spoil every figure of the others.
    Raises MeasureError where going on would measure the wrong network.
    """
    stopping = [finding for finding in findings(run) if finding.level == "fail" and not finding.hosts]
    if stopping:
        raise MeasureError(f"the ladder stops here: {stopping[0].text}; then start a new run")
    found, places = accuse(run), places_of(run, run.plan.steps[0][0].world_size)
    steps, told = _met_again(run, found, places), []
    if steps:
        names = folded(dict.fromkeys(host for part in _between(found) for host in part.hosts))
        return _longer(run.plan, steps), [f"stage again, other partners for {names}"]
    (name, steps), later = run.plan.later[0], run.plan.later[1:]
    aside, moved = _set_aside(found, findings(run), places), False
    known, added = {point.id for point in run.plan.points()}, []
    for planned in steps:
        step = tuple(_without(point, aside, places) for point in planned)
        moved |= step != planned
        if any(point.id not in known for point in step):
            known |= {point.id for point in step}
            added.append(step)
    if moved:
        told = [f"stage {name} leaves out {folded(places.hosts[node] for node in sorted(aside))}"]
    return replace(_longer(run.plan, added), later=later), [*told, f"stage {name}"]


def _longer(plan: Plan, steps) -> Plan:
    return replace(plan, steps=(*plan.steps, *steps), refined=plan.refined + len(steps))


def _between(found: Accusation):
    return [part for isolation in found.between.values() for part in isolation.culprits + isolation.suspects]


def _met_again(run: Run, found: Accusation, places: Places | None) -> list[tuple[Point, ...]]:
    """Rounds of the accused nodes with other partners, as the rounds before were measured; none a second time."""
    points = run.plan.points()
    rounds = [point for point in points if point.group.startswith(_ROUND) and point.status == "ok"]
    accused = sorted({node for part in _between(found) if part.kind != "rail" for node in part.nodes})
    if not rounds or not accused or places is None or any(point.group.startswith(_AGAIN) for point in points):
        return []
    good = [node for node in range(len(places.hosts)) if node not in accused]
    met = {tuple(sorted(places.node_of[rank] for rank in point.members)) for point in rounds}
    ways = {replace(point, group="", members=()).id: point for point in rounds}  # each size and direction once
    return [
        tuple(
            replace(way, group=label, members=members)
            for label, members in rail_pairs(_AGAIN, number, pairs, list(places.node_of))
        )
        for number, pairs in enumerate(again(accused, good, met), 1)
        for way in ways.values()
    ]


def _set_aside(found: Accusation, inventory: list[Finding], places: Places | None) -> frozenset[int]:
    """The nodes that later stages leave out; none where fewer than two, or fewer than half, would be left."""
    if places is None:
        return frozenset()
    guilty = {node for part in found.culprits if part.kind != "rail" for node in part.nodes}
    odd = {host for finding in inventory if finding.level == "fail" for host in finding.hosts}
    guilty |= {node for node, host in enumerate(places.hosts) if host in odd}
    left = len(places.hosts) - len(guilty)
    return frozenset(guilty) if left >= max(2, len(guilty)) else frozenset()


def _without(point: Point, aside: frozenset[int], places: Places | None) -> Point:
    """The point over as many of the good nodes as it has nodes; points of other groups stay as they are."""
    if not aside or point.status != "ok" or not (point.group == "all" or point.group.startswith("first ")):
        return point
    label, members = first_nodes(point.nodes, list(places.node_of), aside)
    nodes = len({places.node_of[rank] for rank in members})
    scope = "intra" if nodes == 1 else "inter" if nodes == len(members) else "mixed"
    moved = replace(point, group=label, members=members, ranks=len(members), nodes=nodes, scope=scope)
    return at_size(moved, point.params["requested_bytes"], list(places.node_of))
