"""Splits of the world: every rank in exactly one group, and nothing misread."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.suite.groups import NotHere, circle, split_groups, split_rounds

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=300)


def members(split, ranks):
    return [group for _, group in split_groups(split, ranks)]


@pytest.mark.parametrize(
    "split, ranks, groups",
    [
        ("all", 3, [(0, 1, 2)]), (" ALL ", 1, [(0,)]),
        ("MOD 2", 5, [(0, 2, 4), (1, 3)]), ("%2", 4, [(0, 2), (1, 3)]), ("mod 8", 3, [(0,), (1,), (2,)]),
        ("MOD 1", 3, [(0, 1, 2)]),
        ("DIV 2", 5, [(0, 1), (2, 3), (4,)]), ("/ 2", 4, [(0, 1), (2, 3)]), ("DIV 100", 3, [(0, 1, 2)]),
        ("DIV 0x2", 4, [(0, 1), (2, 3)]),
        ("AND 0x1", 4, [(0, 2), (1, 3)]), ("& 3", 5, [(0, 4), (1,), (2,), (3,)]), ("AND 0", 3, [(0, 1, 2)]),
        ("OR 0x1", 4, [(0, 1), (2, 3)]), ("|0X1", 4, [(0, 1), (2, 3)]), ("OR 7", 9, [(0, 1, 2, 3, 4, 5, 6, 7), (8,)]),
        # a leading zero is no octal here
        ("MOD 02", 4, [(0, 2), (1, 3)]), ("DIV 08", 9, [(0, 1, 2, 3, 4, 5, 6, 7), (8,)]),
        ("0,1;2,3", 4, [(0, 1), (2, 3)]), ("0, 3", 4, [(0, 3)]), ("3;1,2;", 4, [(3,), (1, 2)]),
        (" 1 ; 0 ", 2, [(1,), (0,)]),
    ],
)  # fmt: skip
def test_splits(split, ranks, groups):
    assert members(split, ranks) == groups


def test_members_are_in_rising_order():
    """torch sorts the members of a group, so rank 0 of "2,0" is rank 0 of the world whatever was written."""
    assert split_groups("3,1;2,0", 4) == [("1,3", (1, 3)), ("0,2", (0, 2))]


def test_labels_tell_groups_apart():
    for split in ("MOD 3", "DIV 3", "AND 0x5", "OR 0x5", "0,1;2"):
        labels = [label for label, _ in split_groups(split, 8)]
        assert len(set(labels)) == len(labels) > 1
    assert [label for label, _ in split_groups("% 2", 4)] == ["MOD 2 #0", "MOD 2 #1"]
    assert split_groups("all", 2)[0][0] == "all"


@fixed
@given(
    st.sampled_from(["MOD", "DIV", "AND", "OR", "%", "/", "&", "|"]),
    st.integers(0, 70),
    st.integers(1, 64),
    st.booleans(),
)
def test_a_colour_puts_every_rank_into_one_group(word, value, ranks, as_hex):
    if word in ("MOD", "DIV", "%", "/"):
        value += 1
    groups = members(f"{word} {hex(value) if as_hex else value}", ranks)
    assert sorted(rank for group in groups for rank in group) == list(range(ranks))
    assert all(group and list(group) == sorted(group) for group in groups)
    colour = {
        "MOD": lambda r: r % value,
        "DIV": lambda r: r // value,
        "AND": lambda r: r & value,
        "OR": lambda r: r | value,
    }
    name = {"%": "MOD", "/": "DIV", "&": "AND", "|": "OR"}.get(word, word)
    assert all(len({colour[name](rank) for rank in group}) == 1 for group in groups)
    assert len({colour[name](group[0]) for group in groups}) == len(groups)


@pytest.mark.parametrize(
    "split, told",
    [
        ("MOD 0", "divides by zero"), ("/0x0", "divides by zero"),
        ("0,4", "names rank 4.*0 to 3"), ("-1,0", "names rank -1"), ("0,1;1,2", "rank 1 twice"),
        ("0,0", "rank 0 twice"),
        ("", "not understood"), (";", "not understood"), (" ; ; ", "not understood"), ("MOD", "not understood"),
        ("MOD x", "not understood"),
        ("MOD 2 3", "not understood"), ("MOD -1", "not understood"), ("XOR 2", "not understood"),
        ("0;;1,", "not understood"),
        ("0 1", "not understood"), ("MOD 1.5", "not understood"), ("MOD 0x", "not understood"),
        ("0-3", "not understood"),
        ("MOD " + "9" * 5000, "not understood"), ("9" * 5000, "not understood"),
    ],
)  # fmt: skip
def test_what_is_no_split_is_refused(split, told):
    with pytest.raises(UsageError, match=told):
        split_groups(split, 4)


@fixed
@given(st.text(st.sampled_from("0123456789,;xX %/&|MODIVANRall-"), max_size=12), st.integers(1, 9))
def test_any_text_is_a_split_or_a_usage_error(text, ranks):
    try:
        groups = members(text, ranks)
    except UsageError:
        return
    named = [rank for group in groups for rank in group]
    assert named and len(set(named)) == len(named) and set(named) <= set(range(ranks))


@pytest.mark.parametrize(
    "split, node_of, rounds",
    [
        ("node", [0, 0, 1, 1], [[("node #0", (0, 1)), ("node #1", (2, 3))]]),
        ("node", [0, 0, 1], [[("node #0", (0, 1))]]),
        ("Rail", [0, 0, 1, 1], [[("rail #0", (0, 2)), ("rail #1", (1, 3))]]),
        ("rail", [0, 1, 0, 1], [[("rail #0", (0, 1)), ("rail #1", (2, 3))]]),  # ranks dealt out to nodes in turn
        ("rail", [0, 0, 0, 1], [[("rail #0", (0, 3))]]),
        ("rail 0", [0, 0, 1, 1], [[("rail 0", (0, 2))]]),
        ("pair intra", [0, 1, 1], [[("pair 1,2", (1, 2))]]),
        ("pair  inter", [1, 1, 0], [[("pair 0,2", (0, 2))]]),
        ("pairs", [0, 0, 0], [[("round 1: 1,2", (1, 2))], [("round 2: 0,2", (0, 2))], [("round 3: 0,1", (0, 1))]]),
        ("node pairs", [0, 0, 1, 1, 5], [
            [("node round 1: 2,4", (2, 4))], [("node round 2: 0,4", (0, 4))], [("node round 3: 0,2", (0, 2))],
        ]),
        ("DIV 2", [0, 0, 0], [[("DIV 2 #0", (0, 1)), ("DIV 2 #1", (2,))]]),
    ],
)  # fmt: skip
def test_groups_by_place(split, node_of, rounds):
    assert sorted(split_rounds(split, node_of)) == sorted(rounds)


@pytest.mark.parametrize("split", ["rail", "rail 0", "pair inter", "node pairs"])
def test_one_node_has_nothing_between_nodes(split):
    with pytest.raises(NotHere, match="all ranks are on one node"):
        split_rounds(split, [0, 0])


@pytest.mark.parametrize("split", ["node", "pair intra"])
def test_one_rank_a_node_has_nothing_within(split):
    with pytest.raises(NotHere, match="every node has one rank"):
        split_rounds(split, [0, 1, 2])


@pytest.mark.parametrize("n", range(1, 34))
def test_every_pair_meets_once_and_no_rank_is_in_two_pairs_at_a_time(n):
    rounds = circle(n)
    assert sorted(pair for one in rounds for pair in one) == [(a, b) for a in range(n) for b in range(a + 1, n)]
    assert all(len({rank for pair in one for rank in pair}) == 2 * len(one) for one in rounds)
    assert len(rounds) == (0 if n < 2 else n - 1 if n % 2 == 0 else n)


def test_too_many_pairs_are_not_measured():
    with pytest.raises(NotHere, match="all pairs of 257 ranks are too many rows; measure split 'node pairs'"):
        split_rounds("pairs", [0] * 257)
