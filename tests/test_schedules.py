"""Every schedule proved for every N, and its traffic counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.schedules import pat, tree
from commbench.schedules.catalogue import BY_NODE, PIPELINED, SCHEDULES, build, params, per_node, refusal
from commbench.schedules.counting import bounds, count
from commbench.schedules.proof import prove
from commbench.schedules.schedule import Block, Schedule, one_by_one, step

NAMES = [(op, name) for op in SCHEDULES for name in SCHEDULES[op]]
SIZES = [*range(1, 65), 67, 71, 97]


def divisors(n):
    return [g for g in range(1, n + 1) if n % g == 0]


def shapes(op, name, n):
    """Every (ranks per node, pieces) worth a test at n ranks."""
    per_node = divisors(n) if (op, name) in BY_NODE else [1]
    return [(g, pieces) for g in per_node for pieces in ((1, 2, 5) if (op, name) in PIPELINED else (1,))]


@pytest.mark.parametrize("op, name", [pair for pair in NAMES if pair[0] != "all_to_all"])
def test_each_contribution_arrives_exactly_once(op, name):
    for n in SIZES if name != "rail_ring" else [*range(1, 33), 48]:  # it has n * g chunks
        for g, pieces in shapes(op, name, n)[:: 1 if n < 24 else 2]:
            prove(build(op, name, n, g, pieces))


@pytest.mark.parametrize("name", SCHEDULES["all_to_all"])
def test_each_block_of_an_all_to_all_arrives_exactly_once(name):
    for n in [*range(1, 33), 37, 64]:
        for g, _ in shapes("all_to_all", name, n)[:: 1 if n < 24 else 2]:
            prove(build("all_to_all", name, n, g))


@given(n=st.integers(1, 40), aggregate=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_pat_is_right_for_any_aggregation(n, aggregate):
    schedule = pat.all_gather(n, aggregate)
    prove(schedule)
    prove(pat.reduce_scatter(n, aggregate))
    assert all(np.bincount(one.src, one.count).max() <= aggregate for one in schedule.steps())


def test_proof_finds_what_is_wrong():
    good = build("all_reduce", "ring", 5)
    twice = Schedule("all_reduce", "ring", 5, 5, good.blocks + good.blocks[:1])
    short = Schedule("all_reduce", "ring", 5, 5, good.blocks[:1])
    with pytest.raises(AssertionError, match="twice"):
        prove(twice)
    with pytest.raises(AssertionError, match="contributions are missing"):
        prove(short)
    with pytest.raises(AssertionError, match="does not have"):
        prove(Schedule("broadcast", "x", 3, 1, one_by_one([step(1, 2), step(0, 1)])))
    with pytest.raises(AssertionError, match="replaced while it is sent"):
        prove(Schedule("broadcast", "x", 3, 1, one_by_one([step(0, 1), step([0, 1], [1, 2])])))
    with pytest.raises(AssertionError, match="two ranks write"):
        prove(Schedule("broadcast", "x", 3, 1, one_by_one([step(0, 1), step([0, 1], [2, 2])])))


@pytest.mark.parametrize("op, name", [pair for pair in NAMES if pair[1] != "nvls"])
def test_a_step_has_one_message_from_and_to_each_rank(op, name):
    for n in (2, 3, 8, 13, 24):
        for g, pieces in shapes(op, name, n):
            for one in build(op, name, n, g, pieces).steps():
                assert one.src.size, "an empty step"
                pairs = np.unique(np.stack([one.src, one.dst]), axis=1)
                most = 2 if name == "rail_ring" and 1 < g < n else 1  # within the node and to the next one
                assert np.bincount(pairs[0]).max() == np.bincount(pairs[1]).max() == most


@pytest.mark.parametrize("n", [2, 3, 5, 8, 16, 31, 64])
def test_ring_all_reduce_moves_the_least_there_is(n):
    elements = 10_007
    counted = count(build("all_reduce", "ring", n), elements)
    assert counted.sent.sum() == 2 * elements * (n - 1)
    assert np.abs(counted.sent - 2 * elements * (n - 1) / n).max() < 2 * (n - 1)
    assert np.abs(counted.received - 2 * elements * (n - 1) / n).max() < 2 * (n - 1)
    assert np.count_nonzero(counted.links) == n  # each rank talks to the next one only


@pytest.mark.parametrize("k, g", [(2, 8), (4, 4), (3, 2), (1, 8), (5, 1)])
def test_hierarchical_moves_little_between_nodes(k, g):
    elements = 16 * 9 * 5 * 7 * 8
    counted = count(build("all_reduce", "hierarchical", k * g, g), elements, per_node=g)
    assert set(counted.sent_between_nodes) == {2 * (k - 1) * elements // (k * g)}  # two passes between nodes
    assert set(counted.received_between_nodes) == set(counted.sent_between_nodes)
    assert set(counted.sent - counted.sent_between_nodes) == {2 * (g - 1) * elements // g}


@pytest.mark.parametrize("k, g", [(2, 8), (4, 4), (3, 2)])
def test_rings_on_all_rails_share_the_traffic_between_nodes(k, g):
    n, elements = k * g, 16 * 9 * 8 * 5
    counted = count(build("all_reduce", "rail_ring", n, g), elements, per_node=g)
    assert counted.sent.sum() == 2 * elements * (n - 1)
    assert set(counted.sent_between_nodes) == {2 * elements * (n - 1) // n // g}
    one_ring = count(build("all_reduce", "ring", n), elements, per_node=g)
    assert one_ring.sent_between_nodes.max() == g * counted.sent_between_nodes.max()


def test_in_switch_reduction_moves_one_nth_more_than_the_data():
    counted = count(build("all_reduce", "nvls", 8), 800)
    assert set(counted.sent[:8]) == set(counted.received[:8]) == {900}


@pytest.mark.parametrize("n", [2, 7, 16, 33])
def test_each_rank_of_the_double_tree_moves_at_most_twice_the_data(n):
    counted = count(build("all_reduce", "tree", n, pieces=4), 8000)
    assert counted.sent.max() <= 2 * 8000 and counted.sent.sum() == 2 * 8000 * (n - 1)


def test_a_rank_is_an_inner_node_of_at_most_one_tree_and_trees_are_low():
    for n in range(2, 300):
        up = tree.parents(n)
        inner = [set(row[row >= 0].tolist()) for row in up]
        assert not inner[0] & inner[1]
        for t in range(2):
            assert np.bincount(up[t][up[t] >= 0]).max() <= 2 and np.count_nonzero(up[t] < 0) == 1
            rank, depth = np.arange(n), 0
            while (rank := np.where(rank >= 0, up[t][rank], -1)).max() >= 0:
                depth += 1
            assert depth <= int(np.log2(n)) + 1


@pytest.mark.parametrize("n", [5, 8, 100])
def test_messages_are_as_many_as_the_algorithm_has(n):
    logarithm = int(np.ceil(np.log2(n)))
    assert build("all_gather", "bruck", n).n_steps == logarithm
    assert build("all_gather", "pat", n).n_steps == logarithm
    assert build("all_to_all", "bruck", n).n_steps == logarithm
    assert build("all_to_all", "pairwise", n).n_steps == n - 1
    assert build("all_reduce", "ring", n).n_steps == 2 * (n - 1)
    assert build("broadcast", "chain", n, pieces=7).n_steps == n - 2 + 7


def test_repeated_steps_are_held_once():
    ring = build("all_reduce", "ring", 1000)
    assert len(ring.blocks) == 2 and sum(len(block.steps) for block in ring.blocks) == 2
    deep, deeper = (build("all_reduce", "tree", 64, pieces=p) for p in (50, 5000))
    assert len(deep.blocks) == len(deeper.blocks) and deeper.n_steps > 10_000


def test_a_block_backwards_is_the_same_messages_backwards():
    block = Block((step(0, 1, 0, every=1), step([0, 1], [2, 3], [1, 2])), times=3, shift=2, modulus=4)
    forward = list(Schedule("broadcast", "x", 4, 4, (block,)).steps())
    backward = list(Schedule("broadcast", "x", 4, 4, (block.reversed(),)).steps())
    rows = [sorted(zip(s.src.tolist(), s.dst.tolist(), s.first.tolist(), s.count.tolist())) for s in forward]
    assert rows[::-1] == [
        sorted(zip(s.src.tolist(), s.dst.tolist(), s.first.tolist(), s.count.tolist())) for s in backward
    ]


@given(chunks=st.integers(1, 50), elements=st.integers(0, 10_000))
def test_slices_are_as_equal_as_can_be(chunks, elements):
    at = bounds(chunks, elements, whole_blocks=False)
    assert at[0] == 0 and at[-1] == elements and np.ptp(np.diff(at)) <= 1


def test_refusals_and_parameters():
    assert "has no schedules of its own for gather" in refusal("gather", "ring", [0, 0])
    assert "it has ring, rail_ring, tree" in refusal("all_reduce", "rong", [0, 0])
    assert "simulated and drawn, not executed" in refusal("all_reduce", "nvls", [0, 0])
    assert "same number of ranks on every node" in refusal("all_reduce", "hierarchical", [0, 0, 1])
    assert "in-place" in refusal("all_to_all", "bruck", [0, 0], in_place=True)
    assert refusal("all_reduce", "hierarchical", [3, 3, 1, 1]) is None
    assert params("all_reduce", "hierarchical", [3, 3, 1, 1], 100) == {"per_node": 2}
    assert params("all_reduce", "tree", [0], 8 << 20) == {"pieces": 16}
    assert params("broadcast", "chain", [0], 100) == {"pieces": 1}
    assert params("all_reduce", "ring", [0], 100) == {}


def test_ranks_per_node_needs_nodes_of_one_size_in_order():
    assert per_node([0, 0, 1, 1]) == 2 and per_node([0, 1, 2]) == 1 and per_node([5]) == 1
    assert per_node([0, 1, 0, 1]) is None and per_node([0, 0, 1]) is None and per_node([0, 0, 1, 1, 0, 0]) is None
