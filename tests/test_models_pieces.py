from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from commbench.models.pieces import fit_curves, fit_pieces, predict, refine_sizes, repeat_noise, segment_costs

SIZES = 8.0 * 2 ** np.arange(31)
DATA = Path(__file__).parent / "data" / "nccl_size_time.csv"


def protocols(size):
    """Three lines as of LL, LL128 and Simple, with jumps above 64 KiB and 1 MiB."""
    return np.where(size <= 2**16, 30 + size / 12e3, np.where(size <= 2**20, 45 + size / 40e3, 110 + size / 46e3))


def test_exact_pieces_are_found_exactly():
    pieces = fit_pieces(SIZES, protocols(SIZES))
    assert pieces.breaks == [(2.0**16, 2.0**17), (2.0**20, 2.0**21)]
    assert pieces.intercept_us == pytest.approx([30, 45, 110], rel=1e-6)
    assert pieces.beta_us_per_byte == pytest.approx([1 / 12e3, 1 / 40e3, 1 / 46e3], rel=1e-6)
    assert pieces.latency_us == pytest.approx(30)
    assert pieces.mape < 1e-6


def test_one_line_stays_one_piece_with_its_noise():
    rng = np.random.default_rng(1)
    curves = [(SIZES, (20 + SIZES / 4e4) * np.exp(0.01 * rng.standard_normal(31))) for _ in range(200)]
    fits = fit_curves(curves)
    assert np.mean([len(fit.first) == 1 for fit in fits]) >= 0.8
    assert np.median([fit.noise for fit in fits]) == pytest.approx(0.01, rel=0.3)


def test_breaks_are_found_through_noise_and_outliers_move_no_line():
    rng = np.random.default_rng(2)
    time_us = protocols(SIZES) * np.exp(0.01 * rng.standard_normal(31))
    time_us[5] *= 4
    pieces = fit_pieces(SIZES, time_us)
    assert pieces.breaks == [(2.0**16, 2.0**17), (2.0**20, 2.0**21)]
    assert predict(pieces, SIZES) == pytest.approx(protocols(SIZES), rel=0.03)


def test_the_dynamic_program_finds_the_least_of_all_partitions():
    rng = np.random.default_rng(3)
    sizes = SIZES[:13]
    time_us = protocols(sizes * 1024) * np.exp(0.02 * rng.standard_normal(13))
    noise = 0.02
    cost = segment_costs(sizes[None], time_us[None])[0] / noise**2

    def bic(starts):
        ends = [*starts[1:], 13]
        return sum(cost[i, j - 1] for i, j in zip(starts, ends)) + (3 * len(starts) - 1) * np.log(13)

    partitions = [(0, *cut) for count in range(3) for cut in combinations(range(4, 10), count)]
    partitions = [p for p in partitions if min(np.diff([*p, 13])) >= 4]
    best = min(partitions, key=bic)
    assert tuple(fit_pieces(sizes, time_us, noise).first) == best


def test_segment_costs_are_those_of_least_squares():
    rng = np.random.default_rng(4)
    time_us = protocols(SIZES) * np.exp(0.05 * rng.standard_normal(31))
    cost = segment_costs(SIZES[None], time_us[None])[0]
    for i, j in ((0, 5), (14, 19), (20, 30)):
        s, t = SIZES[i : j + 1], time_us[i : j + 1]
        low = s[0] if i else 0.0
        _, root = nnls(np.stack([1 / t, (s - low) / s[-1] / t], axis=1), np.ones(len(s)))
        assert cost[i, j] == pytest.approx(root**2, rel=1e-6)


def test_many_curves_at_once_fit_as_alone():
    rng = np.random.default_rng(5)
    curves = [(SIZES[:n], protocols(SIZES[:n]) * np.exp(0.02 * rng.standard_normal(n))) for n in (31, 20, 31, 3, 9)]
    for curve, pieces in zip(curves, fit_curves(curves)):
        alone = fit_pieces(*curve)
        assert pieces.breaks == alone.breaks
        assert pieces.intercept_us == pytest.approx(alone.intercept_us, rel=1e-6)
        assert pieces.tail == pytest.approx(alone.tail, rel=1e-6)


def test_two_sizes_are_one_piece_and_said_so():
    pieces = fit_pieces([1024, 4096], [10.0, 13.0])
    assert pieces.breaks == [] and "2 sizes" in pieces.remark
    assert pieces.latency_us == pytest.approx(9) and predict(pieces, 8192) == pytest.approx(17)


def test_one_size_is_its_time():
    pieces = fit_pieces([1024], [10.0])
    assert predict(pieces, 1024) == pytest.approx(10) and pieces.latency_us >= 0


def test_a_falling_curve_has_slope_zero():
    pieces = fit_pieces(SIZES[:12], np.linspace(50, 40, 12))
    assert np.all(pieces.beta_us_per_byte == 0) and pieces.tail[1] == 0
    assert 40 <= pieces.latency_us <= 50


def test_several_times_of_a_size_count_as_their_median():
    sizes = np.repeat(SIZES[:10], 3)
    time_us = np.repeat(20 + SIZES[:10] / 1e3, 3) * np.tile([1, 1.01, 9], 10)
    pieces = fit_pieces(sizes, time_us)
    assert pieces.size_bytes.tolist() == SIZES[:10].tolist()
    assert pieces.latency_us == pytest.approx(20.2, rel=1e-3)


def test_size_zero_is_the_intercept():
    sizes = np.array([0, *SIZES[:9]])
    pieces = fit_pieces(sizes, 12 + sizes / 100)
    assert pieces.latency_us == pytest.approx(12, rel=1e-6)
    assert predict(pieces, [0])[0] == pytest.approx(12, rel=1e-6)


def test_order_does_not_matter():
    shuffled = np.random.default_rng(6).permutation(31)
    assert fit_pieces(SIZES[shuffled], protocols(SIZES)[shuffled]).breaks == fit_pieces(SIZES, protocols(SIZES)).breaks


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**34), st.floats(1e-2, 1e8, allow_nan=False)), min_size=1, max_size=32))
def test_no_latency_and_no_time_is_ever_negative_or_undefined(points):
    sizes, time_us = np.array(points, float).T
    pieces = fit_pieces(sizes, time_us)
    asked = predict(pieces, np.concatenate([[0, 1], 2.0 ** np.arange(0, 50, 0.5), sizes]))
    assert np.all(np.isfinite(asked)) and np.all(asked >= 0)
    assert 0 <= pieces.latency_us < np.inf
    assert np.all(pieces.beta_us_per_byte >= 0) and np.isfinite(pieces.mape)


def test_within_a_break_the_time_lies_between_both_pieces():
    pieces = fit_pieces(SIZES, protocols(SIZES))
    for low, high in pieces.breaks:
        inside = predict(pieces, np.geomspace(low, high, 9))
        assert np.all(np.diff(inside) > 0)
        assert inside[[0, -1]] == pytest.approx(protocols(np.array([low, high])), rel=1e-5)


def test_beyond_the_largest_size_the_largest_sizes_count_most():
    curved = 20 + SIZES / 4e4 * (1 + 2 / (1 + np.log2(1 + SIZES / 2**26)))  # the rate still rises at the end
    seen = SIZES <= 2**30
    pieces = fit_pieces(SIZES[seen], curved[seen], 0.02)
    last = pieces.intercept_us[-1] + pieces.beta_us_per_byte[-1] * SIZES[~seen]
    tail_error = np.abs(predict(pieces, SIZES[~seen]) / curved[~seen] - 1)
    assert np.all(tail_error < 0.8 * np.abs(last / curved[~seen] - 1))


def test_given_noise_decides_how_much_of_the_shape_is_believed():
    rng = np.random.default_rng(7)
    time_us = protocols(SIZES) * np.exp(0.01 * rng.standard_normal(31))
    assert len(fit_pieces(SIZES, time_us, 0.5).first) < 3 <= len(fit_pieces(SIZES, time_us, 0.01).first)


def test_least_points_of_a_piece():
    for least in (3, 4, 6):
        pieces = fit_pieces(SIZES, protocols(SIZES), 0.002, least)
        assert np.diff([*pieces.first, 31]).min() >= least


def test_refining_asks_for_quarter_octaves_within_each_break():
    pieces = fit_pieces(SIZES, protocols(SIZES))
    wanted = refine_sizes(pieces)
    assert len(wanted) == 6
    assert [round(np.log2(size / 2**16), 2) for size in wanted[:3]] == pytest.approx([0.25, 0.5, 0.75], abs=0.05)
    assert all(size % 4096 == 0 for size in wanted) and not set(wanted) & set(SIZES)
    refined = fit_pieces(np.append(SIZES, wanted), protocols(np.append(SIZES, wanted)))
    for (low, high), place in zip(refined.breaks, (2**16, 2**20)):
        assert low <= place < high and high / low < 1.3
    assert refine_sizes(fit_pieces(SIZES, 20 + SIZES / 1e4)) == []


def test_noise_of_repeats():
    rng = np.random.default_rng(8)
    both = np.exp(0.02 * rng.standard_normal((2, 4000)))
    assert repeat_noise(*both) == pytest.approx(0.02, rel=0.1)
    assert repeat_noise([1.0, 2, 3, 4], [1.0, np.nan, 3, 4]) is None


def test_published_curves_are_met_and_their_largest_sizes_foretold():
    lines = [line.split(",") for line in DATA.read_text().splitlines()[1:]]
    for name, in_sample, held_out in (("h800-8-bcast", 0.005, 0.01), ("azure-h200-8", 0.01, 0.01)):
        rows = np.array([(float(c[6]), float(c[7] or c[8])) for c in lines if c[0] == name]).T
        assert fit_pieces(*rows).mape < in_sample
        seen = fit_pieces(*rows[:, :-3])
        assert np.mean(np.abs(predict(seen, rows[0, -3:]) / rows[1, -3:] - 1)) < held_out
