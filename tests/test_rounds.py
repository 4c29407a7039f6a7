"""Rounds of pairs: disjoint, without repeats, and other partners for suspects."""

import pytest

from commbench.suite.groups import NotHere, split_rounds
from commbench.suite.rounds import AGAIN_ROUNDS, MOST_IN_CIRCLE, SAMPLED_ROUNDS, again, circle, first_rounds, sampled


def disjoint(rounds) -> bool:
    return all(len({node for pair in one for node in pair}) == 2 * len(one) for one in rounds)


@pytest.mark.parametrize("n", [65, 66, 127, 1024])
def test_drawn_rounds_are_disjoint_and_no_pair_meets_twice(n):
    rounds = first_rounds(n, seed=3)
    pairs = [pair for one in rounds for pair in one]
    assert len(rounds) == SAMPLED_ROUNDS and disjoint(rounds) and len(set(pairs)) == len(pairs)
    assert all(a < b for a, b in pairs) and {len(one) for one in rounds} == {n // 2}
    assert rounds == first_rounds(n, seed=3) != first_rounds(n, seed=4)


def test_few_nodes_all_meet():
    assert first_rounds(MOST_IN_CIRCLE) == circle(MOST_IN_CIRCLE)
    assert first_rounds(1) == first_rounds(0) == []
    assert len(sampled(6, 100)) == 5  # there are no more rounds than the circle has


def test_suspects_meet_good_partners_that_they_have_not_met():
    suspects, good, met = [2, 5, 9], [n for n in range(40) if n not in (2, 5, 9)], {(0, 2), (2, 3), (4, 5)}
    rounds = again(suspects, good, met)
    assert len(rounds) == AGAIN_ROUNDS and disjoint(rounds)
    assert all(len({*pair} & {2, 5, 9}) == 1 and pair not in met for one in rounds[:-1] for pair in one)
    pairs = [pair for one in rounds[:-1] for pair in one]
    assert len(set(pairs)) == len(pairs) == 9
    assert len(rounds[-1]) == 1 and set(rounds[-1][0]) < {2, 5, 9}  # and at last each other


def test_where_all_have_met_partners_take_turns():
    rounds = again([1], [0, 2, 3], {(0, 1), (1, 2), (1, 3)})
    partners = [sum(pair) - 1 for ((pair),) in rounds]
    assert len(rounds) == AGAIN_ROUNDS and set(partners) == {0, 2, 3}


def test_more_suspects_than_good_nodes():
    rounds = again([0, 1, 2], [3], set())
    assert all(len(one) == 1 for one in rounds) and again([0], [], set()) == []


@pytest.mark.parametrize(
    "split, node_of, rounds",
    [
        ("rail pairs", [0, 0, 1, 1], [[("rail round 1: 0,2", (0, 2)), ("rail round 1: 1,3", (1, 3))]]),
        ("rail pairs", [0, 0, 1], [[("rail round 1: 0,2", (0, 2))]]),
        ("first 1 node", [0, 0, 1], [[("first 1 nodes", (0, 1))]]),
        ("First 2 Nodes", [0, 1, 0, 2], [[("first 2 nodes", (0, 1, 2))]]),
        ("first nodes", [0, 1, 2, 3, 4], [
            [("first 2 nodes", (0, 1))], [("first 4 nodes", (0, 1, 2, 3))], [("first 5 nodes", (0, 1, 2, 3, 4))],
        ]),
        ("first nodes", [0, 1, 1, 0], [[("first 2 nodes", (0, 1, 2, 3))]]),
    ],
)  # fmt: skip
def test_splits_of_node_pairs_and_of_the_first_nodes(split, node_of, rounds):
    assert split_rounds(split, node_of) == rounds


@pytest.mark.parametrize(
    "split, node_of, told",
    [("rail pairs", [0, 0], "all ranks are on one node"), ("first nodes", [0], "all ranks are on one node"),
     ("first 3 nodes", [0, 1], "this world has 2 nodes"), ("first 0 nodes", [0], "this world has 1 node")],
)  # fmt: skip
def test_what_a_world_does_not_have(split, node_of, told):
    with pytest.raises(NotHere, match=told):
        split_rounds(split, node_of)


def test_above_64_nodes_a_node_meets_16_others():
    rounds = split_rounds("rail pairs", [rank // 2 for rank in range(200)])
    assert len(rounds) == SAMPLED_ROUNDS and {len(one) for one in rounds} == {100}
