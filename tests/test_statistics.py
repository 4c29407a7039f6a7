"""The median's interval holds what it promises, and percentiles are ranks of what was measured."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.timing.statistics import _order, median_interval, percentile, relative_half_width

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=200)
times = st.lists(st.floats(0.1, 1e6, allow_nan=False), min_size=1, max_size=60)


def confidence(n, k):
    """P(the median lies between the k-th smallest and the k-th largest of n), exactly."""
    return 1 - 2 * Fraction(sum(comb(n, i) for i in range(k)), 2**n)


def exact_order(n, wanted=Fraction(95, 100)):
    """The largest k whose interval still holds the median with the wanted confidence; 0 where there is none."""
    below, term = 0, 1  # of 2**n: the binomial's tail below k, and its weight at k
    for k in range(n):
        below += term
        if 1 - 2 * Fraction(below, 2**n) < wanted:
            return k
        term = term * (n - k) // (k + 1)


@pytest.mark.parametrize("n", range(6))
def test_below_six_samples_there_is_no_interval(n):
    assert median_interval(list(range(n))) is None
    assert relative_half_width(list(range(n))) is None


def test_six_samples_span_their_whole_range():
    assert median_interval([3, 1, 6, 2, 5, 4]) == (1.0, 6.0)


def test_orders_are_those_of_the_exact_binomial():
    assert [_order(n, 0.95) for n in range(1, 201)] == [exact_order(n) for n in range(1, 201)]


@pytest.mark.parametrize("n", [201, 202, 250, 333, 500, 1000])
def test_the_normal_approximation_stays_within_one_of_the_exact_order(n):
    assert abs(_order(n, 0.95) - exact_order(n)) <= 1
    assert 0.93 < confidence(n, _order(n, 0.95)) < 0.97


def test_no_jump_where_the_approximation_takes_over():
    orders = [_order(n, 0.95) for n in range(150, 260)]
    assert all(0 <= after - before <= 1 for before, after in zip(orders, orders[1:]))


@pytest.mark.parametrize("wanted", [0.9, 0.99])
def test_other_confidences(wanted):
    for n in (10, 50, 200):
        assert _order(n, wanted) == exact_order(n, Fraction(round(wanted * 100), 100))


def skewed(kind, rng, shape):
    """Samples as a fabric makes them, and their true median."""
    if kind == "lognormal":
        return rng.lognormal(3, 1, shape), np.exp(3)
    if kind == "pareto":
        return 10 * (1 + rng.pareto(1.5, shape)), 10 * 2 ** (1 / 1.5)
    # A floor with a slow mode in every tenth sample.
    draw = 20 + rng.exponential(1, shape)
    slow = rng.random(shape) < 0.1
    return np.where(slow, draw + 500, draw), 20 - np.log(1 - 0.5 / 0.9)


@pytest.mark.parametrize("kind", ["lognormal", "pareto", "two modes"])
@pytest.mark.parametrize("n", [6, 8, 13, 30, 100, 200, 201, 400])
def test_the_interval_holds_the_median_of_skewed_samples(kind, n):
    rng = np.random.default_rng([n, len(kind)])
    trials, median = skewed(kind, rng, (1500, n))
    held = sum(low <= median <= high for low, high in map(median_interval, trials)) / len(trials)
    assert 0.93 <= held <= 0.999
    # The same within the noise of 1500 trials as the binomial says.
    assert held == pytest.approx(float(confidence(n, _order(n, 0.95))), abs=0.02)


@fixed
@given(times)
def test_the_interval_holds_the_median_of_the_samples_themselves(samples):
    interval = median_interval(samples)
    assert (interval is None) == (len(samples) < 6)
    if interval:
        assert interval[0] <= np.median(samples) <= interval[1]
        assert set(interval) <= {float(value) for value in samples}
        assert interval == median_interval(sorted(samples, reverse=True))
        assert relative_half_width(samples) == pytest.approx((interval[1] - interval[0]) / 2 / np.median(samples))


def test_the_half_width_of_equal_samples_is_zero_and_of_a_median_of_zero_is_none():
    assert relative_half_width([5.0] * 10) == 0
    assert relative_half_width([0.0] * 10) is None
    assert relative_half_width([]) is None


def test_outliers_stay():
    quiet = [10.0] * 50 + [11.0] * 49
    assert percentile([*quiet, 5000.0], 100) == 5000
    assert median_interval([10.0] * 3 + [5000.0] * 3) == (10, 5000)


@fixed
@given(st.integers(1, 400), st.integers(1, 100))
def test_percentiles_are_nearest_ranks(n, percent):
    samples = np.random.default_rng(n).permutation(n) + 1.0  # the value is its rank
    found = percentile(samples, percent)
    if percent >= 99 and n < 100:
        assert found is None
    elif percent == 50:
        assert found == np.median(samples)
    else:
        assert found == max(1, -(-percent * n // 100))  # in whole numbers, so that 55 % of 100 is exactly the 55th


def test_p99_needs_a_hundred_samples():
    hundred = list(range(1, 101))
    assert percentile(hundred, 99) == 99
    assert percentile(hundred[:99], 99) is None and percentile(hundred[:99], 99.9) is None
    assert percentile(hundred[:99], 95) == 95
    assert percentile([7.0], 50) == percentile([7.0], 95) == percentile([7.0], 0) == 7
    assert percentile([], 50) is None
