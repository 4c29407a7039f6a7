"""`run ladder --profile NAME` measures every size at which the profile judges, so that `accept` never answers error."""

import json
import re
import tomllib
from dataclasses import replace

import pytest
from ladders import climb, cluster, planned
from runs import commbench

from commbench.acceptance.baseline import baseline
from commbench.acceptance.judge import judge
from commbench.acceptance.metrics import IMPORTED
from commbench.acceptance.profile import check_profile, load_profile, profile_names
from commbench.acceptance.wanted import measures_of
from commbench.results.store import load_run
from commbench.suite.schema import check_suite, read_suite


def measured_ladder(folder, profile, nodes):
    """What the ladder leaves of a cluster whose links do what the profile's fabric says."""
    fabric = profile.links
    of_domain = fabric.domain_ranks
    rate = cluster(of_domain, None, fabric.intra.bandwidth_GBps, fabric.inter.bandwidth_GBps)
    climb(folder, nodes, fabric.ranks_per_node, rate, profile=profile)
    return load_run(folder)


# h100-8x400g has a rule of every kind that the others have.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "h100-8x400g" else pytest.mark.full) for n in profile_names()]
)
def test_each_shipped_profile_finds_each_of_its_sizes(tmp_path, name):
    profile, judged, inapplicable = load_profile(name), set(), {"NVLinks of each GPU"}
    for nodes in {"gb200-nvl72": (18, 36)}.get(name, (2, 3)):
        told = judge(measured_ladder(tmp_path / str(nodes), profile, nodes), profile)
        assert not [v for v in told.all if v.word == "error"]
        judged |= {v.rule for v in told.verdicts if v.word != "skip"}
    if name == "gb200-nvl72":
        inapplicable.add("all_reduce over many racks")  # from 180 trays on
    inapplicable |= {rule.name for rule in profile.rule if rule.op in IMPORTED}
    assert {rule.name for rule in profile.rule} - judged == inapplicable


def test_without_the_profile_the_ladder_lacks_them_and_says_how_to_get_them(tmp_path):
    climb(tmp_path, 2, 8, cluster(8, None, 370.0, 48.0))
    told = judge(load_run(tmp_path), load_profile("h100-8x400g"))
    assert {v.rule for v in told.verdicts if v.word == "error"} >= {"all_reduce in a node", "all_gather in a node"}
    assert any("`commbench run ladder` with --profile" in note for note in told.notes)


def own_profile(*runs):
    return check_profile(tomllib.loads(baseline(list(runs), "site").toml), "site")


def test_a_baseline_of_a_ladder_judges_the_next_ladder(tmp_path):
    """Also where the sizes do not divide by the ranks: 3 nodes of 2."""
    climb(tmp_path / "good", 3, 2, cluster())
    profile = own_profile(load_run(tmp_path / "good"))
    climb(tmp_path / "next", 3, 2, cluster(), profile=profile)
    told = judge(load_run(tmp_path / "next"), profile)
    assert set(told.counts) == {"pass"} and told.code == 0
    assert {rule.size for rule in profile.rule} == {16 << 20, 64 << 20, 128 << 20, 256 << 20, 1 << 30}
    climb(tmp_path / "slow", 3, 2, cluster(slow={(2, "out"): 0.5}), profile=profile)
    assert judge(load_run(tmp_path / "slow"), profile).code == 1


PAIR = """name = "x"
about = "pairs at sizes that the ladder has not"
[[rule]]
name = "one size"
metric = "time_us"
op = "p2p_latency"
scope = "inter"
size = "8"
expected = 20.0
fail = 1.5
source = "a test"
[[rule]]
name = "its own"
metric = "busbw_GBps"
op = "p2p_bw"
window = 4
scope = "inter"
size = { from = "16M", to = "1G" }
expected = 48.0
fail = 0.9
source = "a test"
[[rule]]
name = "another window"
metric = "busbw_GBps"
op = "p2p_bw"
window = 8
scope = "intra"
size = { from = "16M", to = "1G" }
expected = 400.0
fail = 0.9
source = "a test"
"""


def test_pairs_are_added_only_where_the_ladder_has_none_of_the_kind(tmp_path):
    profile = check_profile(tomllib.loads(PAIR), "x")
    own = check_suite(read_suite("ladder"), "ladder").measure
    assert [(m["op"], m["split"], m["size"], m.get("window")) for m in measures_of(profile, own)] == [
        ("p2p_latency", "pair inter", 8, None), ("p2p_bw", "pair intra", 16 << 20, 8),
    ]  # fmt: skip
    points = [p for _, steps in planned(2, 2, profile=profile).later for step in steps for p in step]
    assert sum(p.op == "p2p_latency" for p in points) == 1 and all(p.status == "ok" for p in points)


def test_what_is_judged_over_nccl_is_not_measured_over_gloo():
    profile = load_profile("h100-8x400g")
    of_gloo, bare = (planned(2, 2, "gloo", profile=p) for p in (profile, None))
    assert (of_gloo.steps, of_gloo.later) == (bare.steps, bare.later)
    assert all(m["backend"] == ["nccl"] for m in measures_of(profile, []))


def test_a_soak_is_added_where_the_suite_has_none():
    profile, own = load_profile("h100-8x400g"), check_suite(read_suite("ladder"), "ladder").measure
    assert not [m for m in measures_of(profile, own) if "soak_s" in m]
    (soak,) = [m for m in measures_of(profile, []) if "soak_s" in m]
    assert (soak["op"], soak["size"], soak["stage"]) == ("all_reduce", 64 << 20, "soak")


def test_every_key_of_a_rule_reaches_what_is_measured():
    rule = {"name": "r", "metric": "busbw_GBps", "op": "reduce_scatter", "algorithm": "ring", "protocol": "ll128",
            "dtype": "bfloat16", "redop": "max", "in_place": True, "timing": "streaming", "backend": "nccl",
            "size": "1G", "expected": 1.0, "fail": 0.9, "source": "a test"}  # fmt: skip
    profile = check_profile({"name": "x", "about": "x", "rule": [rule]}, "x")
    (made,) = check_suite({"name": "x", "measure": measures_of(profile, [])}, "x").measure
    assert (made.op, made.algorithm, made.dtype, made.redop) == (
        ["reduce_scatter"],
        ["ring/ll128"],
        ["bfloat16"],
        ["max"],
    )
    assert (made.in_place, made.timing, made.backend, made.size) == ([True], ["streaming"], ["nccl"], [1 << 30])
    assert (made.stage, made.split) == ("scale", ["all"])  # no scope: the whole world


SMALL = """name = "small"
[settings]
budget_s = 0.1
[[measure]]
stage = "nodes"
op = ["all_gather", "all_reduce"]
split = "node"
size = ["64K", "256K"]
[[measure]]
stage = "soak"
op = "all_reduce"
size = "64K"
soak_s = 0.5
"""


@pytest.mark.full
def test_a_ladder_its_baseline_and_the_verdict_on_four_ranks_of_this_machine(tmp_path):
    """Bars are set at a fiftieth, for this machine may be busy; what is asked is that each rule finds its rows."""
    (tmp_path / "small.toml").write_text(SMALL)
    suite = (tmp_path / "small.toml", "--ranks", 4, "--backend", "gloo", "--no-report")
    done = commbench("run", *suite, "--launches", 2, "--out", tmp_path / "good")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "good")
    text = baseline([steady(run)], "site").toml
    easy = re.sub(r"^expected = (\S+)", lambda m: f"expected = {float(m[1]) / 50}", text, flags=re.M)
    (tmp_path / "site.toml").write_text(easy)
    done = commbench("run", *suite, "--profile", tmp_path / "site.toml", "--out", tmp_path / "next")
    assert done.returncode == 0, done.stderr
    done = commbench("accept", tmp_path / "next", "--profile", tmp_path / "site.toml", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["counts"] == {"pass": 4} and told["verdict"] == "pass"
    assert commbench("status", tmp_path / "next").returncode == 0


def steady(run):
    """The run with each call at 5 ms: of a busy machine there may be no baseline."""
    launches = tuple(
        replace(launch, samples=tuple(replace(s, samples_us=(5000.0,)) for s in launch.samples))
        for launch in run.launches
    )
    return replace(run, launches=launches)
