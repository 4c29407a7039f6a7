"""Ladders climbed on clusters that exist as numbers only: the rate between two ranks is a function."""

from pathlib import Path

from commbench.acceptance.ladder import next_stage
from commbench.acceptance.wanted import measures_of
from commbench.ops import OPS
from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite

WHEN = "2026-01-01T00:00:00Z"


def planned(nodes: int, per_node: int, backend="nccl", profile=None) -> Plan:
    """The plan of the shipped ladder for a cluster; with what `profile` judges besides."""
    tables = read_suite("ladder")
    if profile:
        tables["measure"] += measures_of(profile, check_suite(tables, "ladder").measure)
    suite = check_suite(tables, "ladder")
    node_of = [rank // per_node for rank in range(nodes * per_node)]
    stages = []
    for name in dict.fromkeys(measure.stage for measure in suite.measure):
        part = suite.model_copy(update={"measure": [m for m in suite.measure if m.stage == name]})
        stages.append((name, expand(part, len(node_of), [backend], node_of)))
    return Plan("ladder", stages[0][1], Settings(), later=tuple(stages[1:]))


def header(nodes: int, per_node: int, **of_node) -> dict:
    """A launch's header; `of_node`: what the inventory of node i says beyond its host, as of_node["n1"] = {...}."""
    inventories = [{"host": f"n{i}", **of_node.get(f"n{i}", {})} for i in range(nodes)]
    ranks = [{"rank": r, "node": r // per_node, "host": f"n{r // per_node}"} for r in range(nodes * per_node)]
    return {"record": "header", "schema": 1, "nodes": inventories, "ranks": ranks}


def cluster(per_node=2, slow=None, intra=400.0, inter=48.0):
    """Rates of a cluster; `slow`: {(node, "out" or "in" or "inside"): factor}."""

    def rate(a, b):
        here, there = a // per_node, b // per_node
        if here == there:
            return intra * (slow or {}).get((here, "inside"), 1)
        return inter * min((slow or {}).get((here, "out"), 1), (slow or {}).get((there, "in"), 1))

    return rate


def time_us(point: Point, rate) -> float:
    """At the slowest rate(from, to) GB/s on the ring of the point's ranks."""
    ring = zip(point.members, point.members[1:] + point.members[:1])
    if point.kind == "p2p":
        ring = [point.members if point.root == 0 else point.members[::-1]]
    factor = OPS[point.op].bus_factor(point.ranks)
    return factor * point.size_bytes / min(rate(*pair) for pair in ring) / 1e3


def measure(folder: Path, head: dict, rate) -> None:
    """Everything that the plan in `folder` still lacks, as one launch."""
    run = load_run(folder)
    done = run.finished(1)
    journal = Journal(folder / f"launch-{len(run.launches) + 1:03d}.jsonl")
    journal.write(head)
    for point in run.plan.points():
        if point.id not in done:
            ok = point.status == "ok"
            times = (time_us(point, rate),) * (200 if "soak_s" in point.params else 1) if ok else ()
            sample = Sample(point, 1, WHEN, samples_us=times, status=point.status, reason=point.reason)
            journal.write(sample.to_json())
    journal.write({"record": "end", "schema": 1, "exit_code": 0})
    journal.close()


def climb(folder: Path, nodes: int, per_node: int, rate, head=None, profile=None, backend="nccl") -> list[str]:
    """The whole ladder, measured in `folder`; what was told between its stages."""
    folder.mkdir(parents=True, exist_ok=True)
    planned(nodes, per_node, backend, profile).save(folder / "plan.json")
    head, told = head or header(nodes, per_node), []
    measure(folder, head, rate)
    while load_run(folder).plan.later:
        plan, said = next_stage(load_run(folder))
        plan.save(folder / "plan.json")
        measure(folder, head, rate)
        told += said
    return told
