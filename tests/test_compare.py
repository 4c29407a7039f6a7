"""Two runs, launch against launch."""

from dataclasses import replace

import numpy as np
import pytest
from judged import held
from measured import sample
from scipy import stats

from commbench.acceptance.compare import compare
from commbench.acceptance.significance import benjamini_hochberg, p_value, welch
from commbench.errors import MeasureError

SIZES = [2**k for k in (10, 16, 22)]
OPS = ("all_reduce", "all_gather", "broadcast", "reduce")


def a_run(seed, launches=5, spread=0.03, slow=(), factor=1.1, own=0.0, **what):
    """A run whose launches differ by `spread` as a whole, and its points by `own` beside; operations of `slow` take
    `factor` times as long."""
    rng = np.random.default_rng(seed)
    rows = []
    for launch in range(1, launches + 1):
        common = rng.normal(0, spread)
        for op in OPS:
            for size in SIZES:
                time = (20 + size * 1e-3) * np.exp(common + rng.normal(0, own)) * (factor if op in slow else 1)
                rows.append(sample(time, size, launch, op=op, samples=3, noise=0, **what))
    return held(rows)


def test_welch_is_that_of_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 5), rng.normal(1, 3, 7)
    difference, error, df = welch(a, b)
    known = stats.ttest_ind(b, a, equal_var=False)
    assert difference / error == pytest.approx(known.statistic) and df == pytest.approx(known.df)
    assert p_value(difference, error, df) == pytest.approx(known.pvalue)
    assert welch(a[:1], b)[1:] == (None, None)
    assert p_value(*welch(np.ones(3), np.ones(3))) == 1 and p_value(*welch(np.ones(3), 2 * np.ones(3))) == 0


def test_benjamini_hochberg_is_that_of_scipy():
    p = np.random.default_rng(1).uniform(0, 1, 40) ** 3
    assert benjamini_hochberg(p.tolist()) == pytest.approx(stats.false_discovery_control(p))
    assert benjamini_hochberg([0.04]) == [0.04]


def test_unchanged_code_is_no_regression():
    found = compare(a_run(1), a_run(2))
    assert found.code == 0 and not found.regressed and found.label == "5 launches against 5"
    assert len(found.points) == 12 and {change.word for change in found.points} == {"same"}
    assert all(change.low < change.ratio < change.high for change in found.points)


def test_a_slower_operation_is_found_and_no_other():
    found = compare(a_run(3), a_run(4, slow=("all_gather",)))
    assert found.code == 1 and {change.op for change in found.regressed} == {"all_gather"}
    (change,) = (change for change in found.operations if change.op == "all_gather")
    assert change.points == 3 and change.ratio == pytest.approx(1.1, rel=0.06)
    assert "beside the other operations of its launches 1.1000" in change.note


def test_what_became_faster_is_no_regression():
    found = compare(a_run(5), a_run(6, slow=OPS, factor=0.8))
    assert found.code == 0 and {change.word for change in found.operations} == {"faster"}


def test_one_percent_is_not_worth_a_word_however_sure():
    found = compare(a_run(7, spread=1e-4), a_run(8, spread=1e-4, slow=OPS, factor=1.01))
    assert found.code == 0 and max(change.q for change in found.points) < 0.001
    assert compare(a_run(7, spread=1e-4), a_run(8, spread=1e-4, slow=OPS, factor=1.03)).code


@pytest.mark.parametrize("launches", [(1, 1), (1, 5), (5, 1)])
def test_single_launches_are_compared_and_never_fail(launches):
    a = a_run(9, launches[0], spread=0)
    found = compare(a, a_run(10, launches[1], spread=0, slow=OPS, factor=2))
    assert found.code == 0 and found.label == "within one launch only"
    assert all(change.ratio == pytest.approx(2) and change.low is None for change in found.operations)


def test_points_that_are_not_in_both_or_not_ok_are_left_out():
    a = a_run(11)
    rows = [s for s in a_run(12).samples() if s.point.op != "reduce"]
    rows = [replace(s, status="wrong", wrong=1) if s.point.size_bytes == SIZES[0] else s for s in rows]
    found = compare(a, held(rows))
    assert found.left_out == 6 and {change.op for change in found.points} == {"all_reduce", "all_gather", "broadcast"}


def test_runs_of_other_worlds_have_nothing_in_common():
    with pytest.raises(MeasureError, match="no point in common: .* on 4 ranks.* against .* on 8 ranks"):
        compare(a_run(1), a_run(1, ranks=8))


def test_differences_of_the_environment_are_listed():
    runs = []
    for name, driver, algorithm in (("a", "550.54", None), ("b", "560.35", "Ring")):
        run = a_run(1)
        node = {"host": "h0", "gpus": [{"name": "H100", "driver": driver}], "conf_files": {}}
        node["environment"] = {"SLURM_JOB_ID": name} | ({"NCCL_ALGO": algorithm} if algorithm else {})
        header = {"nodes": [node], "versions": {"torch": "2.13"}, "world_size": 4}
        runs.append(replace(run, launches=tuple(replace(launch, header=header) for launch in run.launches)))
    assert compare(*runs).differences == ("GPU driver: 550.54 in A, 560.35 in B", "NCCL_ALGO: none in A, Ring in B")


def test_interleaved_launches_of_one_machine_do_not_differ():
    """The launches of a run against one another: odd against even."""
    rows = a_run(21, launches=10, own=0.02).samples()
    halves = [held([r for r in rows if r.launch % 2 == odd]) for odd in (0, 1)]
    assert compare(*halves).code == 0


@pytest.mark.full
def test_rates_of_false_alarms_and_of_found_slow_downs():
    alarms = sum(compare(a_run([1, i]), a_run([2, i])).code for i in range(100))
    found = sum(compare(a_run([1, i]), a_run([2, i], slow=("reduce",))).code for i in range(100))
    assert alarms <= 5 and found >= 90
