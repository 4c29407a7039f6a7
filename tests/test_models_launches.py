import numpy as np
import pytest
from scipy import stats

from commbench.models.launches import fit_launches, interval_of, interval_over_launches

SIZES = 8.0 * 2 ** np.arange(31)
LINE = np.stack([np.ones(31), SIZES], axis=1)
TRUTH = np.array([20.0, 1 / 45e3])


def measured(rng, launches, spread=0.03, noise=0.01):
    own = TRUTH * np.exp(spread * rng.standard_normal((launches, 2)))
    time_us = own @ LINE.T * np.exp(noise * rng.standard_normal((launches, 31)))
    return np.tile(LINE, (launches, 1)), time_us.ravel(), np.repeat(np.arange(launches), 31)


def test_the_interval_is_students_of_the_logarithms():
    values = [10.0, 11.0, 12.5]
    interval = interval_over_launches(values)
    low, high = stats.t.interval(0.95, 2, np.mean(np.log(values)), stats.sem(np.log(values)))
    assert interval[:4] == pytest.approx((stats.gmean(values), np.exp(low), np.exp(high), 2))
    assert interval.label == "3 launches"


def test_a_higher_level_is_wider():
    narrow, wide = (interval_over_launches([10.0, 11, 12, 13], level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_values_at_zero_are_averaged_and_never_below_zero():
    interval = interval_over_launches([0.0, 0.0, 3.0])
    assert interval.estimate == pytest.approx(1.0)
    assert interval.low == 0.0 and interval.high > 3


def test_one_value_has_no_interval_and_says_so():
    assert interval_over_launches([7.0]) == (7.0, None, None, 0, "one launch, no interval")


def test_one_launch_is_labelled():
    fits = fit_launches(*measured(np.random.default_rng(1), 1))
    interval = interval_of(fits, lambda values: values[0])
    assert interval.label == "within-launch only"
    assert interval.low < interval.estimate < interval.high
    assert fits.left_out.shape == (31, 2)


def test_each_launch_is_fitted_by_itself():
    terms, time_us, launch = measured(np.random.default_rng(2), 3)
    fits = fit_launches(terms, time_us, launch)
    alone = fit_launches(terms[launch == 1], time_us[launch == 1], launch[launch == 1])
    assert fits.values.shape == (3, 2) and fits.launches.tolist() == [0, 1, 2]
    assert fits.values[1] == pytest.approx(alone.values[0], rel=1e-7)
    assert len(fits.left_out) == 0


def test_rows_as_many_as_parameters_leave_no_interval():
    fits = fit_launches(LINE[:2], LINE[:2] @ TRUTH, [0, 0])
    assert interval_of(fits, lambda values: values[0]).low is None


def test_intervals_over_launches_hold_the_truth_and_those_within_one_do_not():
    rng = np.random.default_rng(3)
    across, within = [], []
    for _ in range(200):
        terms, time_us, launch = measured(rng, 5)
        for rows, hits in ((slice(None), across), (launch == 0, within)):
            interval = interval_of(fit_launches(terms[rows], time_us[rows], launch[rows]), lambda values: values[1])
            hits.append(interval.low <= TRUTH[1] <= interval.high)
    assert 0.90 <= np.mean(across) <= 0.99
    assert np.mean(within) < 0.5


def test_one_launch_that_is_the_whole_truth_is_held_by_its_interval():
    rng = np.random.default_rng(4)
    hits = []
    for _ in range(200):
        interval = interval_of(fit_launches(*measured(rng, 1, spread=0)), lambda values: values[1])
        hits.append(interval.low <= TRUTH[1] <= interval.high)
    assert 0.88 <= np.mean(hits) <= 0.99


def test_launches_of_unlike_length_are_fitted_each_by_its_own_rows():
    size = np.array([1.0, 2, 4, 8, 1, 2, 4, 1, 2, 8])
    launch = np.array([2, 2, 2, 2, 0, 0, 0, 7, 7, 7])
    truth = {2: (10.0, 1.0), 0: (20.0, 2.0), 7: (5.0, 3.0)}
    time_us = np.array([truth[k][0] + truth[k][1] * s for k, s in zip(launch, size)])
    fits = fit_launches(np.column_stack([np.ones(10), size]), time_us, launch)
    assert fits.launches.tolist() == [0, 2, 7]
    assert fits.values == pytest.approx(np.array([truth[0], truth[2], truth[7]]), rel=1e-6)
