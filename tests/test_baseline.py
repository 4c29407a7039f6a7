"""A site's own profile from good runs, and what it says of the next run."""

import tomllib

import numpy as np
import pytest
from judged import G, header_of, row, stored
from measured import sample

from commbench.acceptance.baseline import BAD, CLOSEST, baseline
from commbench.acceptance.judge import judge
from commbench.acceptance.profile import check_profile
from commbench.acceptance.toml_text import to_toml
from commbench.errors import MeasureError

LAUNCHES = range(1, 7)


def profile_of(*runs):
    made = baseline(list(runs), "site")
    return made, check_profile(tomllib.loads(made.toml), "site")


def nodes(rates, seed=0, launches=3, spread=0.01, size=G):
    """all_reduce of one node at each of the rates, 8 ranks each, over several launches."""
    rng = np.random.default_rng(seed)
    return [
        row("all_reduce", rate * np.exp(rng.normal(0, spread)), size, launch=launch, group=f"node #{n}",
            members=tuple(range(8 * n, 8 * n + 8)))
        for launch in range(1, launches + 1) for n, rate in enumerate(rates)
    ]  # fmt: skip


def test_the_median_of_good_nodes_with_its_spread_and_source(tmp_path):
    run = stored(tmp_path / "run", nodes([400, 404, 396, 400, 200]), header_of(5))
    made, profile = profile_of(run)
    (rule,) = profile.rule
    assert rule.expected == pytest.approx(400, rel=0.01) and rule.size == G and rule.backend == "nccl"
    assert "median of 12 value(s)" in rule.source and "spread 1." in rule.source
    assert made.left_out == (f"host4: below {BAD:.0%} of the median of the others in 1 of 1 rows",)


def test_levels_are_never_closer_than_custom_and_widen_with_the_spread(tmp_path):
    (steady,) = profile_of(stored(tmp_path / "a", nodes([400] * 4, spread=0.001), header_of(4)))[1].rule
    assert (1 - steady.warn, 1 - steady.fail) == pytest.approx((CLOSEST["warn"], CLOSEST["fail"]))
    (loose,) = profile_of(stored(tmp_path / "b", nodes([400] * 4, spread=0.05), header_of(4)))[1].rule
    assert loose.fail < loose.warn < 0.93 and loose.fail < 0.87
    (once,) = profile_of(stored(tmp_path / "c", [row("all_reduce", 400)]))[1].rule
    assert (once.warn, once.fail) == (0.9, 0.8) and "spread is not known" in once.source


def test_the_next_good_run_passes_and_a_slow_one_fails(tmp_path):
    _, profile = profile_of(stored(tmp_path / "run", nodes([400] * 4, spread=0.02), header_of(4)))
    good = judge(stored(tmp_path / "good", nodes([400] * 4, seed=1, spread=0.02), header_of(4)), profile)
    assert good.word in ("pass", "warn") and good.code == 0
    slow = judge(stored(tmp_path / "slow", nodes([400, 400, 300, 400], seed=2), header_of(4)), profile)
    assert [v.subject for v in slow.verdicts if v.word == "fail"] == ["host2"] and slow.code == 1
    assert "own baseline" in slow.verdicts[0].source


def test_false_fails_on_a_good_machine_are_rare(tmp_path):
    """Levels are prediction limits: of 300 new launches of a good machine about 2 % warn, 0.1 % fail."""
    (rule,) = profile_of(stored(tmp_path / "run", nodes([400] * 8, spread=0.04, launches=5), header_of(8)))[1].rule
    fresh = 400 * np.exp(np.random.default_rng(9).normal(0, 0.04, 3000))
    assert np.mean(fresh < rule.fail_at) < 0.004 and 0.002 < np.mean(fresh < rule.warn_at) < 0.06


def test_cpu_ranks_have_a_profile_too_with_times_for_what_has_no_bandwidth(tmp_path):
    rows = [sample(30, 0, launch, op="barrier") for launch in LAUNCHES]
    rows += [sample(9, 8, launch, op="p2p_latency", kind="p2p", ranks=2) for launch in LAUNCHES]
    rows += [sample(100, 1 << 20, launch, redop="sum", in_place=True) for launch in LAUNCHES]
    _, profile = profile_of(stored(tmp_path / "run", rows))
    told = {rule.op: rule for rule in profile.rule}
    assert told["barrier"].metric == told["p2p_latency"].metric == "time_us" and told["all_reduce"].in_place is True
    assert (
        told["p2p_latency"].warn == pytest.approx(1 / 0.965, abs=0.02)
        and told["p2p_latency"].fail > told["p2p_latency"].warn
    )
    assert judge(stored(tmp_path / "again", rows), profile).word == "pass"
    slow = [sample(18, 8, launch, op="p2p_latency", kind="p2p", ranks=2) for launch in (1, 2, 3)]
    assert judge(stored(tmp_path / "slow", slow), profile).word == "fail"


def test_a_good_world_of_one_or_nothing_makes_no_profile(tmp_path):
    with pytest.raises(MeasureError, match="nothing can be expected"):
        baseline([stored(tmp_path / "run", [sample(10, G, ranks=1)])], "site")


def test_a_spread_that_would_let_half_the_rate_pass_makes_no_bar(tmp_path):
    noisy = [row("all_reduce", rate, launch=n) for n, rate in enumerate((400, 100, 700), 1)]
    with pytest.raises(MeasureError, match="no bar can be drawn: all_reduce over nccl on 8 ranks: launches differ by"):
        baseline([stored(tmp_path / "run", noisy)], "site")
    steady = [row("broadcast", 300, launch=n) for n in (1, 2, 3)]
    made, profile = profile_of(stored(tmp_path / "both", noisy + steady))
    assert [rule.op for rule in profile.rule] == ["broadcast"] and "idle machine" in made.left_out[0]


def test_several_runs_are_pooled_and_rows_that_are_not_ok_are_told(tmp_path):
    bad = sample(10, G, status="error", op="broadcast")
    runs = [stored(tmp_path / "a", [row("all_reduce", 400), bad]), stored(tmp_path / "b", [row("all_reduce", 410)])]
    made, profile = profile_of(*runs)
    assert profile.rule[0].expected == pytest.approx(405) and made.left_out == ("1 row(s) that are not ok",)


def test_toml_comes_back_as_it_was():
    tables = {"name": 'a "b" \\ c', "rule": [{"x": True, "y": 1.5, "z": 3, "name": "n\nm"}]}
    assert tomllib.loads(to_toml(tables)) == {**tables, "rule": [{**tables["rule"][0], "name": "n?m"}]}
