"""The gates against their papers' algorithms, token by token in plain Python."""

import numpy as np
import pytest

from commbench.errors import UsageError
from commbench.routing import gates
from commbench.routing.named import generate


def softmax(row):
    powers = [np.exp(float(x)) for x in row]
    return [p / sum(powers) for p in powers]


def test_switch_drops_who_comes_late():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((200, 8)) + np.array([2, 1, 0, 0, 0, 0, 0, 0])
    ids, weights = gates.within_capacity(*gates.switch_top1(logits), capacity=30, experts=8)
    taken, dropped = [0] * 8, 0
    for token, row in enumerate(logits):
        expert = int(np.argmax(row))
        if taken[expert] < 30:
            taken[expert] += 1
            assert ids[token, 0] == expert and weights[token, 0] == pytest.approx(softmax(row)[expert], rel=1e-5)
        else:
            dropped += 1
            assert ids[token, 0] == -1 and weights[token, 0] == 0
    assert dropped > 50 and taken[0] == 30


def test_gshard_is_its_algorithm_1():
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((300, 8)) + np.array([1.5, 1, 0, 0, 0, 0, 0, 0])
    capacity = 60
    chance = np.random.default_rng(7).random(300)
    ids, weights = gates.gshard_top2(logits, np.random.default_rng(7))
    ids, weights = gates.within_capacity(ids, weights, capacity, 8)
    wanted = np.full((300, 2), -1)
    taken, best = [0] * 8, []
    for token, row in enumerate(logits):
        gate = softmax(row)
        e1, e2 = sorted(range(8), key=lambda e: -gate[e])[:2]
        g1, g2 = gate[e1] / (gate[e1] + gate[e2]), gate[e2] / (gate[e1] + gate[e2])
        best.append((e1, e2, g1, g2))
        if taken[e1] < capacity:
            wanted[token, 0] = e1
        taken[e1] += 1
    for token, (_, e2, _, g2) in enumerate(best):
        if 2 * g2 > chance[token]:
            if taken[e2] < capacity:
                wanted[token, 1] = e2
            taken[e2] += 1
    assert np.array_equal(ids, wanted)
    assert (wanted[:, 0] == -1).sum() > 20 and (wanted[:, 1] == -1).sum() > 50 and (wanted[:, 1] >= 0).sum() > 50
    for token, (_, _, g1, g2) in enumerate(best):
        for column, gate in enumerate((g1, g2)):
            assert weights[token, column] == pytest.approx(gate if wanted[token, column] >= 0 else 0, rel=1e-5)


@pytest.mark.parametrize("score", ["max", "top2", "uniform"])
def test_node_limited_takes_the_best_groups_then_the_best_experts(score):
    rng = np.random.default_rng(2)
    scores = rng.random((100, 32), np.float32)
    ids, weights = gates.node_limited(scores, 8, 3, 6, score, np.random.default_rng(9))
    drawn = np.random.default_rng(9).random((100, 8), np.float32)
    for token, row in enumerate(scores):
        groups = row.reshape(8, 4)
        value = {"max": groups.max(1), "top2": np.sort(groups, 1)[:, -2:].sum(1), "uniform": drawn[token]}[score]
        allowed = set(np.argsort(-value)[:3].tolist())
        best = sorted((e for e in range(32) if e // 4 in allowed), key=lambda e: -row[e])[:6]
        assert ids[token].tolist() == best
        assert weights[token] == pytest.approx(row[best] / row[best].sum(), rel=1e-5)


def test_top2_of_groups_of_one_expert_is_its_score():
    scores = np.random.default_rng(0).random((20, 6), np.float32)
    one = gates.node_limited(scores, 6, 3, 2, "top2")[0]
    assert np.array_equal(one, gates.node_limited(scores, 6, 3, 2, "max")[0])


def test_capacity_is_counted_over_all_tokens_of_a_rank():
    experts, tokens = 16, 20000  # more than a chunk
    routing = generate("gshard:1:1.5", [tokens, 100], 2, experts, 2)
    capacity = gates.capacity_of(1, tokens, experts, 2)
    load = np.bincount(routing.ids[0][routing.ids[0] >= 0], minlength=experts)
    assert capacity == 2500 and load.max() == 2500 and (load < 2500).any()
    assert np.bincount(routing.ids[1][routing.ids[1] >= 0]).max() <= gates.capacity_of(1, 100, experts, 2) == 13


def test_no_capacity_is_refused():
    with pytest.raises(UsageError, match="a capacity of 0 would drop every token"):
        gates.within_capacity(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32), 0, 4)
    with pytest.raises(UsageError, match="capacity factor of 0 leaves experts without a place"):
        gates.capacity_of(0, 100, 8, 2)
    assert gates.capacity_of(0.01, 1, 64, 1) == 1
