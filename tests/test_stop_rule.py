"""Precision, budget or maximum, whichever comes first; a fixed number is taken to the last sample."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.timing.statistics import relative_half_width
from commbench.timing.stop_rule import StopRule

CALL_S = 1e-5
fixed_seed = settings(derandomize=True, database=None, deadline=None, max_examples=200)


def played(rule, draw, groups=1, call_s=CALL_S):
    """The blocks that the rule asks for and why it ends; `draw(k)` makes k samples, and each takes `call_s`."""
    taken, blocks, elapsed_s = [[] for _ in range(groups)], [], 0.0
    for _ in range(10_000):
        more, reason = rule.next_block(taken, elapsed_s, call_s)
        assert (more == 0) == (reason is not None)
        if reason:
            return blocks, reason, taken, elapsed_s
        assert more >= 1
        blocks.append(more)
        for group, samples in enumerate(taken):
            samples += draw(more, group)
        elapsed_s += more * call_s
    raise AssertionError("the rule never ends")


def steady(k, group):
    return [10.0] * k


def noisy(k, group):
    return np.random.default_rng(k).lognormal(3, 1, k).tolist()


def test_equal_samples_are_precise_after_the_first_block():
    assert played(StopRule(), steady)[:2] == ([10], "precise")


def test_blocks_double():
    blocks, reason, taken, _ = played(StopRule(target=1e-9, max_samples=1000), lambda k, g: list(range(1, k + 1)))
    assert blocks == [10, 10, 20, 40, 80, 160, 320, 360] and reason == "max" and len(taken[0]) == 1000


def test_the_maximum_is_never_passed():
    for most in (1, 5, 10, 11, 37):
        blocks, reason, taken, _ = played(StopRule(target=1e-9, max_samples=most), lambda k, g: list(range(1, k + 1)))
        assert reason == "max" and len(taken[0]) == sum(blocks) == most


def test_the_budget_bounds_the_time():
    rule = StopRule(target=1e-9, budget_s=1.0, max_samples=10**9)
    blocks, reason, _, elapsed_s = played(rule, lambda k, g: [1.0, 2.0] * (k // 2) + [3.0] * (k % 2), call_s=0.013)
    assert reason == "budget" and 1.0 <= elapsed_s <= 1.0 + 0.013 * 1.01


def test_a_call_longer_than_the_budget_is_still_measured_once():
    assert played(StopRule(budget_s=1.0), steady, call_s=7.0)[:2] == ([1], "budget")


def test_at_least_one_sample_when_the_budget_is_gone_before_it_began():
    assert StopRule(budget_s=1.0).next_block([[]], 5.0, 1.0) == (1, None)


def test_five_samples_are_never_precise():
    assert StopRule().next_block([[10.0] * 5], 0.0, CALL_S)[1] is None
    assert StopRule().next_block([[10.0] * 6], 0.0, CALL_S) == (0, "precise")


def test_precision_is_the_half_width_over_the_median():
    samples = [100.0 + i for i in range(20)]
    width = relative_half_width(samples)
    assert StopRule(target=width).next_block([samples], 0.0, CALL_S) == (0, "precise")
    assert StopRule(target=width * 0.999).next_block([samples], 0.0, CALL_S) == (20, None)


def test_samples_of_zero_are_never_called_precise():
    assert played(StopRule(max_samples=100), lambda k, g: [0.0] * k)[1] == "max"


@pytest.mark.parametrize("restless", [0, 1, 2])
def test_the_least_precise_group_decides(restless):
    def draw(k, group):
        return noisy(k, group) if group == restless else steady(k, group)

    blocks, _, taken, _ = played(StopRule(), draw, groups=3)
    assert sum(blocks) > 10
    assert len({len(samples) for samples in taken}) == 1


def test_a_fixed_number_is_taken_whatever_the_rest_says():
    rule = StopRule(target=0.9, budget_s=0.001, max_samples=5, fixed=37)
    blocks, reason, taken, _ = played(rule, steady, call_s=1.0)
    assert (blocks, reason, len(taken[0])) == ([37], "fixed", 37)
    assert rule.next_block([[1.0] * 30], 1e9, 1.0) == (7, None)
    assert rule.next_block([[1.0] * 40], 0.0, 1.0) == (0, "fixed")


@fixed_seed
@given(
    target=st.floats(1e-6, 0.5),
    budget_s=st.floats(1e-3, 10),
    most=st.integers(1, 300),
    call_s=st.floats(0, 5),
    seed=st.integers(0, 1000),
)
def test_it_always_ends_for_a_reason_that_holds(target, budget_s, most, call_s, seed):
    rng = np.random.default_rng(seed)
    rule = StopRule(target, budget_s, most)
    _, reason, taken, elapsed_s = played(rule, lambda k, g: rng.lognormal(2, 0.3, k).tolist(), groups=2, call_s=call_s)
    assert 1 <= len(taken[0]) <= most
    if reason == "precise":
        assert max(relative_half_width(samples) for samples in taken) <= target
    elif reason == "max":
        assert len(taken[0]) == most
    else:
        assert reason == "budget" and elapsed_s >= budget_s
    assert elapsed_s <= budget_s + max(call_s, 0) * 1.01 + 1e-9 or call_s < 1e-7
