"""The faster of several protocols, and the library's choice, which is not always the faster: both are found again."""

import numpy as np
import pytest
from synthetic import gather_us, series

from commbench.models.envelope import fit_minimum
from commbench.models.identify import separable
from commbench.models.model import Regime, times_us
from commbench.models.switches import left_one_out, non_negative_from_sums, refitted, switch_forms

PLACES = [(n, n) for n in (2, 4, 8, 16, 32)]  # one rank per node: a hop is a hop


def parts(table, *algorithms):
    return [(a, separable(table.label["op"], a, table.ranks, table.nodes, table.size_bytes)[0]) for a in algorithms]


def test_both_protocols_of_an_envelope_are_recovered_in_order():
    table = series(gather_us, PLACES, noise=0.01, op="all_gather")
    low, high = fit_minimum("all_gather", table, parts(table, "ring", "ring"))
    assert low.names == ("base_us", "alpha_inter_us", "beta_us_per_byte")
    assert low.values == pytest.approx((10, 2.5, 4e-4), rel=0.1)
    assert high.values == pytest.approx((30, 7, 4e-5), rel=0.1)


def test_the_envelope_does_not_depend_on_the_order_or_the_seed():
    table = series(gather_us, PLACES, noise=0.02, op="all_gather")
    for seed in range(3):
        pieces = fit_minimum("all_gather", table, parts(table, "ring", "ring"), seed=seed)
        assert [p.values[-1] for p in pieces] == pytest.approx([4e-4, 4e-5], rel=0.1)


def late_switch_us(ranks, nodes, size_bytes):
    """The library changes protocol at 64 KiB per rank, far later than would be faster: the time falls there."""
    slow = gather_us(ranks, nodes, size_bytes, [(10.0, 2.5, 4e-4)])
    return np.where(size_bytes / ranks < 2**16, slow, gather_us(ranks, nodes, size_bytes, [(30.0, 7.0, 4e-5)]))


def test_a_late_switch_is_found_where_it_is_and_an_envelope_cannot_follow_it():
    table = series(late_switch_us, PLACES, noise=0.01, op="all_gather")
    (ring,) = parts(table, "ring")
    pieces, split = switch_forms("all_gather", table, ring, ring, 0, 3)[0, 2]
    assert split is None and [p.algorithm for p in pieces] == ["ring", "ring"]
    assert 2**15 < pieces[1].from_step_bytes < 2**16 and pieces[0].to_step_bytes == pieces[1].from_step_bytes
    assert pieces[0].values == pytest.approx((10, 2.5, 4e-4), rel=0.05)
    assert pieces[1].values[-1] == pytest.approx(4e-5, rel=0.05)
    envelope = Regime((1,), False, "minimum", fit_minimum("all_gather", table, [ring, ring]))
    worst = np.max(
        np.abs(np.log(times_us("all_gather", envelope, table.ranks, table.nodes, table.size_bytes) / table.time_us))
    )
    assert worst > 0.3


def two_algorithms_us(ranks, nodes, size_bytes):
    """A tree below 2 MiB per rank, a ring from there on."""
    tree = 15 + 2 * 9 * np.log2(nodes) + 2e-4 * 2 * size_bytes
    ring = 40 + 2 * 8 * (ranks - 1) + 4e-5 * 2 * (ranks - 1) / ranks * size_bytes
    return np.where(size_bytes / ranks < 2**21, tree, ring)


def test_the_change_of_algorithm_is_found():
    table = series(two_algorithms_us, PLACES, noise=0.01)
    tree, ring = parts(table, "tree", "ring")
    pieces, split = switch_forms("all_reduce", table, tree, ring, 2, 2)[1, 1]
    assert 2**20 < split < 2**21
    assert pieces[0].algorithm == "tree" and pieces[0].values == pytest.approx((15, 9, 2e-4), rel=0.05)
    assert pieces[1].algorithm == "ring" and pieces[1].values[-1] == pytest.approx(4e-5, rel=0.05)


def test_replicates_leave_out_one_rank_count_each():
    table = series(gather_us, PLACES, noise=0.02, op="all_gather")
    (ring,) = parts(table, "ring")
    pieces, split = switch_forms("all_gather", table, ring, ring, 0, 2)[0, 2]
    regime = left_one_out(
        "all_gather", refitted("all_gather", Regime((1,), False, "switch", pieces, split), table), table
    )
    assert (regime.replicate_of, len(regime.replicates), len(regime.replicates[0])) == ("rank count", 5, 6)
    assert len(set(regime.replicates)) == 5


def test_sums_of_products_give_the_non_negative_least_squares_of_scipy():
    from scipy.optimize import nnls

    rng = np.random.default_rng(1)
    for _ in range(50):
        a, y = rng.random((12, 3)), rng.standard_normal(12) + 0.5
        rows = np.column_stack([a, y])
        error, values = non_negative_from_sums((rows.T @ rows)[None])
        expected, norm = nnls(a, y)
        assert values[0] == pytest.approx(expected, abs=1e-6) and error[0] == pytest.approx(norm**2, rel=1e-6)
