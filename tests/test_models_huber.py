import numpy as np
import pytest

from commbench.models.huber import fit_many, fit_terms

SIZES = 8.0 * 2 ** np.arange(31)
LINE = np.stack([np.ones(31), SIZES], axis=1)


def test_exact_times_give_their_parameters_back():
    fit = fit_terms(LINE, LINE @ [20.0, 1 / 45e3])
    assert fit.values == pytest.approx([20.0, 1 / 45e3], rel=1e-9)
    assert fit.mape < 1e-9 and not fit.at_floor.any()


def test_three_terms():
    terms = np.stack([np.ones(31), np.sqrt(SIZES), SIZES], axis=1)
    fit = fit_terms(terms, terms @ [30.0, 0.5, 1e-4])
    assert fit.values == pytest.approx([30.0, 0.5, 1e-4], rel=1e-6)


def test_a_term_that_is_not_there_is_zero_and_said_so():
    terms = np.stack([np.ones(31), np.sqrt(SIZES), SIZES], axis=1)
    dip = 1 - 0.1 * np.exp(-((np.log2(SIZES) - 18) ** 2) / 8)  # where sqrt(size) would count most
    fit = fit_terms(terms, terms @ [30.0, 0, 1e-4] * dip)
    assert fit.values[1] == 0.0
    assert fit.at_floor.tolist() == [False, True, False]


def test_outliers_count_little():
    rng = np.random.default_rng(3)
    clean = LINE @ [20.0, 1 / 45e3] * np.exp(0.01 * rng.standard_normal(31))
    disturbed = clean.copy()
    disturbed[[4, 20]] *= 10
    fit = fit_terms(LINE, disturbed)
    assert fit.values == pytest.approx([20.0, 1 / 45e3], rel=0.01)
    assert fit.scale < 0.03
    of_logs = np.exp(np.mean(np.log(disturbed[:10])))  # the small sizes, all latency
    assert of_logs > 1.2 * 20, "elsewhere the outliers do matter"


def test_residuals_are_logarithms_and_the_scale_is_their_spread():
    rng = np.random.default_rng(4)
    fit = fit_terms(np.ones((20001, 1)), 50 * np.exp(0.05 * rng.standard_normal(20001)))
    assert fit.values[0] == pytest.approx(50, rel=0.005)
    assert fit.scale == pytest.approx(0.05, rel=0.03)
    assert np.std(fit.residual_log) == pytest.approx(0.05, rel=0.03)


def test_weights_decide_between_rows():
    terms = np.ones((2, 1))
    assert fit_terms(terms, [10.0, 20.0], [1.0, 0.0]).values[0] == pytest.approx(10)
    heavy = fit_terms(terms, [10.0, 11.0], [1.0, 3.0]).values[0]
    assert 10.5 < heavy <= 11


def test_padded_curves_fit_as_alone():
    rng = np.random.default_rng(5)
    time_us = LINE @ [20.0, 1 / 45e3] * np.exp(0.05 * rng.standard_normal(31))
    weights = np.ones((2, 31))
    weights[1, 12:] = 0
    together, _, _ = fit_many(np.stack([LINE, LINE]), np.stack([time_us, time_us]), weights)
    assert together[0] == pytest.approx(fit_terms(LINE, time_us).values, rel=1e-7)
    assert together[1] == pytest.approx(fit_terms(LINE[:12], time_us[:12]).values, rel=1e-7)


def test_a_time_that_no_line_from_above_zero_reaches_leaves_the_model_positive():
    terms = np.stack([np.ones(4), [0.0, 1, 2, 3]], axis=1)
    fit = fit_terms(terms, [100.0, 1, 2, 3])
    assert np.all(np.isfinite(fit.residual_log)) and np.all(fit.values >= 0)
    assert np.all(terms @ fit.values > 0)


def test_medians_of_disturbed_samples_give_latency_and_rate_within_half_a_percent():
    rng = np.random.default_rng(6)
    terms = np.stack([np.full(31, 126.0), 126 / 64 * SIZES], axis=1)
    shape = (200, 20, 31)
    samples = terms @ [14.0, 1 / 45e3] * np.exp(0.03 * rng.standard_normal(shape))
    samples = np.where(rng.random(shape) < 0.05, samples * rng.uniform(2, 10, shape), samples)
    values = fit_many(np.tile(terms, (200, 1, 1)), np.median(samples, axis=1), np.ones((200, 31)))[0]
    error = np.median(np.abs(values / [14.0, 1 / 45e3] - 1), axis=0)
    assert np.all(error < 0.005)
