"""Placements: linear, balanced, with copies, and how a token chooses among copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.routing.balance import balanced, packed, replicated
from commbench.routing.matrices import max_over_mean, traffic
from commbench.routing.named import generate
from commbench.routing.placement import assign, linear

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=80)


@fixed
@given(st.data())
def test_a_balanced_placement_is_a_placement(data):
    nodes, each, own = (data.draw(st.integers(1, 3)) for _ in range(3))
    ranks, replicas = nodes * each, data.draw(st.integers(0, 2)) * nodes * each
    load = data.draw(st.lists(st.integers(0, 1000), min_size=ranks * own, max_size=ranks * own))
    found = balanced(load, ranks, nodes, replicas)
    assert found.ranks == ranks and found.per_rank == own + replicas // ranks
    assert np.array_equal(found.rank_of, np.repeat(np.arange(ranks), found.per_rank))
    copies = np.bincount(found.logical_of, minlength=ranks * own)
    assert copies.min() >= 1 and copies.sum() == ranks * own + replicas
    # All copies of an expert are on one node, where groups were packed.
    node = found.rank_of // each
    assert all(len(set(node[found.logical_of == expert].tolist())) == 1 for expert in range(ranks * own))


@fixed
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=12), st.integers(0, 20))
def test_a_further_copy_goes_where_a_copy_has_the_most_to_do(load, replicas):
    load = np.array(load, float)
    copies = replicated(load, replicas)
    assert copies.sum() == len(load) + replicas
    # Optimal: with one copy fewer of any expert, that expert's copies would have at least the most there is now.
    most = (load / copies).max()
    assert all(load[e] / (copies[e] - 1) >= most for e in range(len(load)) if copies[e] > 1)


def test_packing_by_hand():
    assert [bin.tolist() for bin in packed(np.array([8, 1, 7, 2, 6, 3]), 3)] == [[0, 1], [2, 3], [4, 5]]
    assert [bin.tolist() for bin in packed(np.array([9, 1, 1, 1]), 2)] == [
        [0, 3],
        [1, 2],
    ]  # equally many, not equal load


def test_groups_stay_together_on_a_node():
    load = np.random.default_rng(0).random(64)
    found = balanced(load, 8, 4, 16, groups=8)
    group = found.logical_of // 8
    node = found.rank_of // 2
    assert all(len(set(node[group == g].tolist())) == 1 for g in range(8))


@pytest.mark.parametrize("spec", ["zipf:1.2", "log_normal:1.5", "hot:8:0.5"])
def test_balancing_takes_the_skew_away(spec):
    routing = generate(spec, 4096, 8, 256, 8, seed=4)
    before = traffic(routing, linear(256, 8), 4)
    skew = [max_over_mean(before.per_selection.sum(axis=0))]
    for replicas in (0, 32):
        after = traffic(routing, balanced(before.expert_load, 8, 1, replicas), 4)
        assert np.array_equal(after.expert_load, before.expert_load)
        skew.append(max_over_mean(after.per_selection.sum(axis=0)))
    assert skew[0] > 1.2 and skew[1] < 1.07 and skew[2] < 1.01


def test_copies_share_the_load_of_any_routing():
    load = np.ones(16)
    load[5] = 100
    placement = balanced(load, 4, 1, 4)
    assert np.count_nonzero(placement.logical_of == 5) == 5
    # Round robin is the trap: expert 5 is chosen by every 4th token only, so token number modulo copies would starve some.
    for spec in ("uniform", "round_robin"):
        found = traffic(generate(spec, 8000, 4, 16, 4), placement, 4)
        assert max_over_mean(found.physical_load[placement.logical_of == 5]) < 1.06


def test_the_choice_of_a_copy_hangs_on_rank_and_token_alone():
    placement = balanced(np.arange(16), 4, 1, 8)
    whole, part = generate("uniform", 100, 4, 16, 4, 1), generate("uniform", [100, 20, 0, 0], 4, 16, 4, 1)
    assert np.array_equal(assign(whole, placement)[1][:20], assign(part, placement)[1])


@pytest.mark.parametrize(
    "arguments, told",
    [
        ((4, 1, 1), "17 experts do not divide over 4 ranks; 16 or 20 would"),
        ((4, 3, 0), "4 ranks do not divide over 3 nodes"),
        ((8, 4, 8, 2), "2 groups do not divide over 4 nodes"),
        ((4, 1, 0, 5), "16 experts do not divide into 5 groups"),
    ],
)
def test_what_does_not_divide_is_refused(arguments, told):
    with pytest.raises(UsageError, match=told):
        balanced(np.ones(16), *arguments)
