"""Every routing is a routing: the right experts, reproducible, with the skew that its name says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.routing.even import highest_ratio, ratio
from commbench.routing.matrices import max_over_mean, traffic
from commbench.routing.named import ROUTINGS, generate, parse
from commbench.routing.placement import linear
from commbench.routing.routing import CHUNK, Unreachable, masked

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)
EVERY = [
    ("uniform", 8), ("zipf:1.2", 8), ("log_normal:1", 8), ("hot:4:0.4", 8), ("round_robin", 8), ("ratio:2", 8),
    ("gshard:1.25", 2), ("gshard:1.25:1", 2), ("switch:1", 1), ("node_limited:4:2", 8), ("node_limited:4:2:top2", 8),
    ("node_limited:4:2:uniform", 8),
]  # fmt: skip


def load(routing):
    chosen = np.concatenate([ids.ravel() for ids in routing.ids])
    return np.bincount(chosen[chosen >= 0], minlength=routing.experts)


@pytest.mark.parametrize("spec, top_k", EVERY)
def test_a_token_chooses_different_experts_and_its_weights_are_of_them(spec, top_k):
    routing = generate(spec, [100, 0, 37, 1], 4, 64, top_k, seed=3)
    assert routing.tokens == [100, 0, 37, 1] and routing.ranks == 4
    for ids, weights in zip(routing.ids, routing.weights):
        assert ids.dtype == np.int32 and weights.dtype == np.float32 and ids.shape == weights.shape
        assert ids.shape[1] == top_k and (ids >= -1).all() and (ids < 64).all()
        assert (weights[ids >= 0] > 0).all() and (weights[ids < 0] == 0).all() and (weights.sum(axis=1) < 1.001).all()
        for row in ids:
            chosen = row[row >= 0]
            assert len(set(chosen.tolist())) == len(chosen)


@pytest.mark.parametrize("spec, top_k", EVERY)
def test_the_seed_decides_and_a_rank_needs_no_other(spec, top_k):
    one, again, other = (generate(spec, 50, 4, 64, top_k, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.ids + one.weights, again.ids + again.weights))
    assert not all(np.array_equal(a, b) for a, b in zip(one.weights, other.weights))
    if not spec.startswith("ratio"):  # which spreads one total over all ranks
        fewer = generate(spec, [50, 50, 7, 7], 4, 64, top_k, seed=1)
        assert all(np.array_equal(a, b) for a, b in zip(one.ids[:2], fewer.ids[:2]))
    assert set(ROUTINGS) == {spec.partition(":")[0] for spec, _ in EVERY} | {"trace"}


def test_uniform_is_uniform():
    routing = generate("uniform", 3 * CHUNK, 2, 32, 4)
    mean = 6 * CHUNK * 4 / 32
    assert np.abs(load(routing) - mean).max() < 5 * np.sqrt(mean)
    pairs = np.zeros((32, 32), np.int64)
    for ids in routing.ids:
        for i in range(4):
            for j in range(4):
                np.add.at(pairs, (ids[:, i], ids[:, j]), i != j)
    wanted = 6 * CHUNK * 12 / (32 * 31)
    off = pairs[~np.eye(32, dtype=bool)]
    assert np.abs(off - wanted).max() < 5.5 * np.sqrt(wanted)


def test_one_of_k_follows_the_popularity():
    found = np.sort(load(generate("zipf:1", 20000, 1, 16, 1)))[::-1] / 20000
    wanted = (1 / np.arange(1, 17)) / (1 / np.arange(1, 17)).sum()
    assert np.abs(found - wanted).max() < 0.02
    # Two without replacement: the second is drawn from what is left. P(the most popular is among them) by hand.
    p = wanted
    among = p[0] + sum(p[i] * p[0] / (1 - p[i]) for i in range(1, 16))
    assert abs(load(generate("zipf:1", 20000, 1, 16, 2)).max() / 20000 - among) < 0.015


def test_more_skew_is_more_skew():
    skews = [max_over_mean(load(generate(f"zipf:{s}", 2000, 4, 64, 4))) for s in (0, 0.5, 1, 2)]
    assert skews == sorted(skews) and skews[0] < 1.2 and skews[-1] > 10
    skews = [max_over_mean(load(generate(f"log_normal:{s}", 2000, 4, 64, 4))) for s in (0, 0.5, 1, 2)]
    assert skews == sorted(skews) and skews[0] < 1.2 and skews[-1] > 8


def test_hot_experts_get_their_share():
    for share in (0.0, 0.125, 0.3, 0.5):
        found = load(generate(f"hot:4:{share}", 5000, 2, 64, 8))
        assert abs(found[:4].sum() / found.sum() - share) < 0.005
        assert max_over_mean(found[4:]) < 1.1 and (share == 0 or max_over_mean(found[:4]) < 1.05)
    with pytest.raises(Unreachable, match="4 of 64 experts.*0.6.*0 to 0.5"):
        generate("hot:4:0.6", 10, 2, 64, 8)
    with pytest.raises(Unreachable, match="0.5 to 1"):
        generate("hot:12:0.2", 10, 2, 16, 8)


@fixed
@given(st.data())
def test_a_ratio_is_reached_exactly(data):
    ranks, own = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    experts = ranks * own
    top_k = data.draw(st.integers(1, experts))
    tokens = [data.draw(st.integers(0, 9)) * ranks for _ in range(ranks)]
    total, most = sum(tokens) * top_k, highest_ratio(ranks, experts, top_k)
    # Whole selections: H of rank 0 for any H between the mean and all that it can get.
    hot = data.draw(st.integers(total // ranks, round(most * total / ranks)))
    wanted = hot * ranks / total if total else 1.0
    routing = ratio(tokens, ranks, experts, top_k, 0, min(wanted, most))
    for ids in routing.ids:
        assert all(len(set(row)) == top_k for row in ids.tolist())
    received = traffic(routing, linear(experts, ranks), ranks).per_selection.sum(axis=0)
    assert received[0] == hot and received.sum() == total
    if total:
        assert max_over_mean(received) == pytest.approx(wanted, abs=1e-12)
    assert received[1:].size == 0 or np.ptp(received[1:]) <= 1


def test_every_source_sends_the_same_share_to_the_hot_rank():
    matrix = traffic(ratio(4096, 8, 256, 8, 0, 3), linear(256, 8), 4).per_selection
    assert max_over_mean(matrix.sum(axis=1)) == 1 and np.ptp(matrix[:, 0]) <= 1


@pytest.mark.parametrize("ranks, experts, top_k, most", [(4, 256, 8, 4), (64, 256, 8, 32), (8, 8, 8, 1), (2, 4, 1, 2)])
def test_the_bound_of_a_ratio_is_named(ranks, experts, top_k, most):
    assert highest_ratio(ranks, experts, top_k) == most
    ratio(5, ranks, experts, top_k, 0, most)
    with pytest.raises(Unreachable, match=f"{ranks} ranks and top-{top_k} of {experts}.*1 to {most} times"):
        ratio(5, ranks, experts, top_k, 0, most + 0.01)
    with pytest.raises(Unreachable, match=r"receive 0.9 times the mean"):
        ratio(5, ranks, experts, top_k, 0, 0.9)


def test_round_robin_is_even_over_experts_but_not_over_ranks_at_every_step():
    routing = generate("round_robin", 32, 2, 64, 8)
    assert set(load(routing).tolist()) == {8}
    assert routing.ids[0][:2].tolist() == [list(range(8)), list(range(8, 16))]
    few = generate("round_robin", 4, 2, 64, 8)  # 4 tokens of top-8 reach the first 32 experts: half of the ranks starve
    assert traffic(few, linear(64, 2), 1).per_selection.sum(axis=0).tolist() == [64, 0]


def test_masking():
    routing = generate("uniform", 4000, 2, 64, 8)
    some = masked(routing, 0.3, seed=5)
    hidden = [ids < 0 for ids in some.ids]
    assert abs(np.concatenate(hidden).mean() - 0.3) < 0.01
    for before, after, gone, weights in zip(routing.ids, some.ids, hidden, some.weights):
        assert np.array_equal(before[~gone], after[~gone]) and (weights[gone] == 0).all()
    assert all((ids == -1).all() for ids in masked(routing, 1, 0).ids)
    assert all(np.array_equal(a, b) for a, b in zip(masked(routing, 0, 0).ids, routing.ids))
    with pytest.raises(UsageError, match="masked share of 1.5"):
        masked(routing, 1.5, 0)


@pytest.mark.parametrize(
    "spec, told",
    [
        ("zipf", "write zipf:S"), ("zipf:", "write zipf:S"), ("zipf:1:2", "write zipf:S"), ("zipf:much", "write zipf:S"),
        ("zipf:nan", "write zipf:S"), ("zipf:inf", "write zipf:S"), ("zipf:-1", "between 0 and 8"),
        ("log_normal:99", "between 0 and 8"), ("random", "no routing 'random'; there are uniform, zipf:S"),
        ("hot:4.5:0.1", "write hot:HOT_EXPERTS:SHARE"), ("hot:64:0.1", "1 to 63"), ("hot:4:1.1", "between 0 and 1"),
        ("uniform:3", "write uniform"), ("node_limited:8", r"write node_limited:GROUPS:LIMIT\[:SCORE\]"),
        ("node_limited:5:2", "64 experts do not divide into 5 groups"), ("node_limited:8:9", "best 9 of 8"),
        ("node_limited:64:2", "fewer than the top-8"), ("node_limited:8:4:mean", "max, top2, uniform; found 'mean'"),
        ("gshard:1.25", "chooses 2 experts, but top_k is 8"), ("switch:1", "chooses 1 expert, but"),
    ],
)  # fmt: skip
def test_what_is_no_routing_is_refused_in_a_sentence(spec, told):
    with pytest.raises(UsageError, match=told):
        generate(spec, 10, 2, 64, 8)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="top-9 of 8 experts: a token's experts differ, so k is at most 8"):
        generate("uniform", 10, 2, 8, 9)
    with pytest.raises(UsageError, match="both are 1 or more"):
        generate("uniform", 10, 2, 8, 0)
    with pytest.raises(UsageError, match="3 ranks were given, the group has 2"):
        generate("uniform", [1, 2, 3], 2, 8, 2)
    with pytest.raises(UsageError, match="-2 tokens on rank 1"):
        generate("uniform", [1, -2], 2, 8, 2)
    with pytest.raises(UsageError, match="10 experts do not divide over 4 ranks; 8 or 12 would"):
        generate("ratio:1", 10, 4, 10, 2)
    for zero in ("gshard:0", "gshard:-1"):
        with pytest.raises(UsageError, match="leaves experts without a place"):
            generate(zero, 10, 2, 8, 2)


@fixed
@given(st.text(max_size=30))
def test_any_text_is_a_routing_or_a_usage_error(text):
    for spec in (text, f"zipf:{text}", f"hot:{text}", f"node_limited:{text}"):
        try:
            name, _ = parse(spec)
        except UsageError:
            continue
        assert name in ROUTINGS
