"""More sizes around the breaks of measured curves: which ones, and that a run measures them."""

import time
from dataclasses import replace

import pytest
from runs import points

from commbench.ops import OPS
from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import Sample
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.refine import refined
from commbench.suite.schema import check_suite

KIB = 1024


def measured(folder, curve, launches=1, split=("all",), ranks=2, **axes):
    """A run in `folder` over 1K to 1M whose times are curve(point, launch)."""
    measure = {"op": "all_reduce", "size": {"from": "1K", "to": "1M"}, "split": list(split), **axes}
    steps = expand(check_suite({"name": "x", "measure": [measure]}, "test"), ranks, ["gloo"], [0] * ranks)
    plan = Plan("x", steps, Settings(), launches, seed=1 if launches > 1 else None, refine=True)
    plan.save(folder / "plan.json")
    places = [{"node": 0}] * ranks
    for launch in range(1, launches + 1):
        journal = Journal(folder / f"launch-{launch:03d}.jsonl")
        journal.write({"record": "header", "schema": 1, "ranks": places, "nodes": []})
        for point in plan.points():
            samples = (curve(point, launch),)
            journal.write(Sample(point, launch, "2026-01-01T00:00:00Z", samples_us=samples).to_json())
        journal.close()
    return load_run(folder)


def jump(point, launch=1):
    """One line below 64 KiB, another one above it."""
    size = point.size_bytes
    return (5 + size / 2000 if size <= 64 * KIB else 200 + size / 8000) * (1 + 0.001 * launch)


def new_sizes(plan) -> list[int]:
    return [point.size_bytes for step in plan.steps[len(plan.steps) - plan.refined :] for point in step]


def test_sizes_within_the_break_are_added_once(tmp_path):
    run = measured(tmp_path, jump, launches=3)
    plan, breaks = refined(run)
    sizes = new_sizes(plan)
    assert breaks == 1 and len(sizes) == 3 and all(64 * KIB < size < 128 * KIB for size in sizes)
    assert not plan.refine and plan.hash == run.plan.hash and plan.steps[: len(run.plan.steps)] == run.plan.steps
    added = plan.steps[-1][0]
    assert (added.count * 4, added.params["requested_bytes"]) == (added.size_bytes, added.size_bytes)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    again, _ = refined(load_run(tmp_path))
    assert new_sizes(again) == []  # nothing is planned twice


def test_a_straight_curve_needs_no_more(tmp_path):
    plan, breaks = refined(measured(tmp_path, lambda point, launch: 5 + point.size_bytes / 2000))
    assert breaks == 0 and plan.refined == 0 and not plan.refine


def test_each_series_has_its_own_breaks(tmp_path):
    """own:ring and the library's choice, and two dtypes, are different curves."""

    def curve(point, launch):
        broken = point.algorithm == "own:ring" and point.dtype == "float32"
        return jump(point) if broken else 5 + point.size_bytes / 2000

    axes = {"algorithm": ["library", "own:ring"], "dtype": ["float32", "int8"]}
    plan, breaks = refined(measured(tmp_path, curve, **axes))
    added = [step[0] for step in plan.steps[len(plan.steps) - plan.refined :]]
    assert breaks == 1 and len(added) == 3
    assert {(point.algorithm, point.dtype) for point in added} == {("own:ring", "float32")}


def test_groups_of_a_split_stay_in_one_step(tmp_path):
    def curve(point, launch):
        return jump(point) if point.members == (0, 1) else 5 + point.size_bytes / 2000

    plan, breaks = refined(measured(tmp_path, curve, split=("DIV 2",), ranks=4))
    assert breaks == 1
    assert [[point.members for point in step] for step in plan.steps[-plan.refined :]] == [[(0, 1), (2, 3)]] * 3


def test_wrong_and_failed_points_are_no_part_of_a_curve(tmp_path):
    run = measured(tmp_path, jump)
    bad = [
        replace(launch, samples=tuple(replace(s, status="wrong") for s in launch.samples)) for launch in run.launches
    ]
    assert refined(replace(run, launches=tuple(bad)))[1] == 0


@pytest.mark.full
def test_a_run_measures_the_sizes_around_its_break(tmp_path, monkeypatch, capsys):
    from commbench.cli.run_here import conduct
    from commbench.launch.local import LocalSite

    op = OPS["all_reduce"]

    def prepare(group, call, send, recv):
        run = op.prepare(group, call, send, recv)
        pause_s = 0.1 if call.count * 4 > 64 * KIB else 0.01  # far above what a busy machine adds
        return lambda: (run(), time.sleep(pause_s))

    monkeypatch.setitem(OPS, "all_reduce", replace(op, prepare=prepare))
    measure = {"op": "all_reduce", "size": {"from": "1K", "to": "1M"}}
    steps = expand(check_suite({"name": "x", "measure": [measure]}, "test"), 2, ["gloo"], [0, 0])
    plan = Plan("x", steps, Settings(iters=3, warmup=0), refine=True)
    plan.save(tmp_path / "plan.json")
    assert conduct(plan, tmp_path, LocalSite(), no_report=True) == 0
    rows = points(tmp_path)
    more = [row["size_bytes"] for row in rows[11:]]
    assert len(rows) == len({row["id"] for row in rows}) > 11
    assert any(64 * KIB < size < 128 * KIB for size in more)
    assert not Plan.load(tmp_path / "plan.json").refine
    told = capsys.readouterr().out
    assert f"{len(more)} more point(s) around them" in told and f"{len(rows)} ok of {len(rows)} points" in told
    assert conduct(Plan.load(tmp_path / "plan.json"), tmp_path, LocalSite(), no_report=True) == 0
    assert len(points(tmp_path)) == len(rows)  # one round, and no second one on --resume
