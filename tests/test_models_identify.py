"""What measurements can tell apart, before they are made and after."""

import numpy as np
import pytest
from synthetic import ring_us, series

from commbench.models.equations import terms
from commbench.models.identify import advise, columns_of, condition_number, separable, weak_terms

SIZES = [2**k for k in range(3, 34)]


def points(places, sizes=SIZES):
    rows = [(r, n, s) for r, n in places for s in sizes]
    return tuple(np.array(column) for column in zip(*rows))


def test_one_value_of_ranks_per_node_makes_the_condition_number_huge():
    """Perlmutter's study: 5e15 with one value, 4.2 with two."""
    one = terms("all_reduce", "ring", *points([(8, 2), (16, 4), (64, 16)]))[1]
    two = terms("all_reduce", "ring", *points([(8, 2), (16, 4), (64, 16), (2, 2), (16, 16)]))[1]
    assert condition_number(one) > 1e10 and condition_number(two) < 100


def test_separable_names_follow_from_the_places():
    def names(*places, op="all_reduce", algorithm="ring"):
        return separable(op, algorithm, *points(places))[0]

    byte = "beta_us_per_byte"
    assert names((8, 2), (16, 4)) == ("base_us", "alpha_node_us", byte)
    assert names((8, 2)) == ("latency_us", byte)
    assert names((2, 1), (4, 1), (8, 1)) == ("base_us", "alpha_intra_us", byte)
    assert names((2, 2), (4, 4)) == ("base_us", "alpha_inter_us", byte)
    assert names((8, 2), (16, 4), (2, 2)) == (
        "base_us", "alpha_inter_us", "alpha_intra_us", f"{byte}[g=1]", f"{byte}[g=4]",
    )  # fmt: skip
    assert names((8, 2), (16, 4), algorithm="hockney") == ("alpha_us", byte)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "recursive_doubling"])
def test_what_is_told_still_makes_up_the_whole_time(algorithm):
    """The merged columns span what the full ones do, with parameters that are not below zero: a tree and a ring of
    4 ranks per node lose nothing by it."""
    from scipy.optimize import nnls

    place = points([(8, 2), (16, 4), (32, 8), (64, 16)])
    names, why = separable("all_reduce", algorithm, *place)
    assert "alpha_intra_us" in why
    full = terms("all_reduce", algorithm, *place)[1]
    time_us = full @ [20, 1, 6, 1e-5]
    few = columns_of("all_reduce", algorithm, names, *place) / time_us[:, None]
    _, norm = nnls(few, np.ones(len(time_us)))
    assert norm < 1e-6


def test_a_parameter_that_few_sizes_carry_is_named():
    place = points([(8, 2), (16, 4)], SIZES[:12])
    names, columns = terms("all_reduce", "ring", *place)
    weak = weak_terms(names, columns, [20, 1, 6, 1.4e-5], place[2])
    assert "beta_us_per_byte" in weak and "at 0 sizes" in weak["beta_us_per_byte"]
    wide = points([(8, 2), (64, 16)])
    names, columns = terms("all_reduce", "ring", *wide)
    assert "beta_us_per_byte" not in weak_terms(names, columns, [20, 1, 6, 1.4e-5], wide[2])


def test_advice_for_one_value_of_ranks_per_node_settles_it():
    place = points([(8, 2), (16, 4), (32, 8)])
    advice = advise(*place, "all_reduce")
    assert any("4 ranks per node throughout" in s and "2 per node" in s for s in advice.sentences)
    assert {(r, n) for r, n, _ in advice.add} == {(4, 2), (8, 4)}
    joined = [np.concatenate([a, b]) for a, b in zip(place, zip(*advice.add))]
    assert advise(*joined, "all_reduce").sentences == ()


def test_advice_for_one_rank_count_adds_others():
    advice = advise(*points([(32, 8)]), "all_reduce")
    assert any("base and steps are one figure" in s for s in advice.sentences)
    assert len({r for r, _, _ in advice.add} | {32}) >= 3
    assert all(r % n == 0 for r, n, _ in advice.add)


def test_advice_for_few_sizes_adds_smaller_and_larger_ones():
    advice = advise(*points([(2, 1), (4, 1), (8, 1)], [2**20, 2**21]), "all_reduce")
    sizes = {size for _, _, size in advice.add}
    assert min(sizes) < 2**18 and max(sizes) > 2**22
    text = " ".join(advice.sentences)
    assert "smaller sizes" in text and "larger sizes" in text and text.startswith("one node: ")


def test_a_design_that_tells_everything_gets_no_advice():
    assert advise(*points([(g * n, n) for g in (1, 4) for n in (2, 4, 8)]), "all_reduce").sentences == ()


def test_the_series_of_the_tests_is_such_a_design():
    table = series(ring_us)
    assert separable("all_reduce", "ring", table.ranks, table.nodes, table.size_bytes)[1] == {}
