"""Traffic against a count token by token, the theory of uniform routing, and the figures that DeepEP prints."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.routing.balance import balanced
from commbench.routing.matrices import max_over_mean, traffic
from commbench.routing.named import generate
from commbench.routing.placement import assign, linear
from commbench.routing.routing import Routing, masked

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)


@st.composite
def cases(draw):
    """(routing, placement, ranks per node) with masked selections, empty ranks, and sometimes copies of experts."""
    nodes, each, own = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    ranks, experts = nodes * each, nodes * each * own
    top_k = draw(st.integers(1, min(experts, 5)))
    tokens = draw(st.lists(st.integers(0, 6), min_size=ranks, max_size=ranks))
    routing = generate("log_normal:1", tokens, ranks, experts, top_k, draw(st.integers(0, 99)))
    routing = masked(routing, draw(st.sampled_from([0, 0.3, 1])), 0)
    if draw(st.booleans()):
        load = np.bincount(np.concatenate([i[i >= 0] for i in routing.ids]), minlength=experts)
        return routing, balanced(load, ranks, nodes, draw(st.integers(0, 2)) * ranks), each
    return routing, linear(experts, ranks), each


@fixed
@given(cases())
def test_every_matrix_is_what_counting_by_hand_gives(case):
    routing, placement, each = case
    found, ranks = traffic(routing, placement, each), placement.ranks
    selection, rank, first, second = (np.zeros((ranks, ranks), np.int64) for _ in range(4))
    node, load = np.zeros((ranks, ranks // each), np.int64), np.zeros(routing.experts, np.int64)
    for source, (ids, own) in enumerate(zip(assign(routing, placement), routing.ids)):
        for chosen, logical in zip(ids.tolist(), own.tolist()):
            assert [p < 0 for p in chosen] == [e < 0 for e in logical]
            assert all(placement.logical_of[p] == e for p, e in zip(chosen, logical) if e >= 0)
            to = [int(placement.rank_of[p]) for p in chosen if p >= 0]
            for destination in to:
                selection[source, destination] += 1
            for destination in set(to):
                rank[source, destination] += 1
            for there in {d // each for d in to}:
                node[source, there] += 1
                through = there * each + source % each
                if there != source // each:
                    first[source, through] += 1
                for destination in {d for d in to if d // each == there}:
                    second[through, destination] += 1
            for expert in logical:
                load[expert] += expert >= 0
    for name, wanted in (
        ("per_selection", selection), ("per_rank", rank), ("per_node", node), ("first_hop", first),
        ("second_hop", second), ("expert_load", load),
    ):  # fmt: skip
        assert np.array_equal(getattr(found, name), wanted), name
        assert getattr(found, name).dtype == np.int64
    assert np.array_equal(np.bincount(placement.logical_of, found.physical_load, routing.experts), load)


@fixed
@given(cases())
def test_two_hops_move_the_distinct_pairs_and_reach_the_same_ranks(case):
    routing, placement, each = case
    found, ranks = traffic(routing, placement, each), placement.ranks
    node = np.arange(ranks) // each
    remote = node[:, None] != np.arange(ranks // each)
    assert found.first_hop.sum() == found.per_node[remote].sum() == found.counts["wire"]
    assert (found.first_hop[node[:, None] == node] == 0).all()  # the first hop leaves the node
    assert (found.second_hop[node[:, None] != node] == 0).all()  # the second one does not
    assert np.array_equal(found.second_hop.sum(axis=0), found.per_rank.sum(axis=0))  # all arrive
    counts = found.counts
    assert counts["selections"] >= counts["unique_rank"] >= counts["unique_node"] >= counts["wire"]
    assert counts["selections"] == found.expert_load.sum() == sum((ids >= 0).sum() for ids in routing.ids)


def test_a_declared_single_node_has_nothing_on_the_wire():
    found = traffic(generate("uniform", 50, 4, 16, 4), linear(16, 4), 4)
    assert found.counts["wire"] == 0 and found.counts["unique_node"] == 200
    assert np.array_equal(found.second_hop, found.per_rank)


def per_token(spec, ranks, experts, each, tokens=4096, seed=0):
    counts = traffic(generate(spec, tokens, ranks, experts, 8, seed), linear(experts, ranks), each).counts
    return {name: count / (ranks * tokens) for name, count in counts.items()}


def test_remote_copies_agree_with_theory():
    """64 experts on 4 nodes, top-8: 3 (1 - C(48,8)/C(64,8)) = 2.74; in 2 uniformly chosen nodes 3/2 (1 - C(16,8)/C(32,8))."""
    assert per_token("uniform", 16, 64, 4)["wire"] == pytest.approx(3 * (1 - comb(48, 8) / comb(64, 8)), rel=0.005)
    limited = per_token("node_limited:4:2:uniform", 16, 64, 4)["wire"]
    assert limited == pytest.approx(1.5 * (1 - comb(16, 8) / comb(32, 8)), rel=0.01)
    assert round(per_token("uniform", 16, 64, 4)["wire"], 2) in (2.74, 2.75) and abs(limited - 1.50) < 0.01


@pytest.mark.parametrize("groups", [2, 4, 8, 16, 32, 64])
def test_distinct_destinations_agree_with_deepep(groups):
    """DeepEP's get_theoretical_num_sms: G (1 - C(E - E/G, K) / C(E, K)) destinations of top-8 of 256."""
    wanted = groups * (1 - comb(256 - 256 // groups, 8) / comb(256, 8))
    assert per_token("uniform", groups, 256, groups, tokens=16384 // groups)["unique_rank"] == pytest.approx(
        wanted, rel=0.01
    )


@pytest.mark.parametrize(
    "ranks, spec, printed",
    [
        (16, "uniform", (470, 382, 117, 59)),
        (64, "uniform", (470, 452, 311, 272)),
        (64, "node_limited:8:4", (470, 437, 234, 206)),
    ],
)
def test_the_four_bandwidths_that_tools_print_of_one_routing(ranks, spec, printed):
    """4096 tokens of hidden 7168 in bf16, top-8 of 256, nodes of 8 ranks, taken as 1 ms: low-latency tests print the
    first, NVL columns the second, DeepEP V1's RDMA columns the third, and the last is on the wire."""
    counts = per_token(spec, ranks, 256, 8)
    found = [
        counts[name] * 4096 * 7168 * 2 / 1e-3 / 1e9 for name in ("selections", "unique_rank", "unique_node", "wire")
    ]
    assert found == pytest.approx(printed, rel=0.01)


def test_at_two_nodes_deepeps_rdma_figure_is_twice_the_wire():
    counts = per_token("uniform", 16, 256, 8)  # issues 51, 285 and 407 of DeepEP: N/(N-1)
    assert counts["unique_node"] / counts["wire"] == pytest.approx(2, rel=0.02)


def test_what_does_not_fit_is_refused():
    routing = generate("uniform", 5, 4, 16, 2)
    with pytest.raises(UsageError, match="4 ranks do not divide into nodes of 3"):
        traffic(routing, linear(16, 4), 3)
    with pytest.raises(UsageError, match="tokens on 4 ranks, the placement is for 8"):
        traffic(routing, linear(16, 8), 4)
    with pytest.raises(UsageError, match="copies of 8 experts, the routing chooses among 16"):
        traffic(routing, linear(8, 4), 4)
    with pytest.raises(UsageError, match="10 experts do not divide over 4 ranks; 8 or 12 would"):
        linear(10, 4)


def test_nobody_sends_anything():
    nothing = Routing(8, 2, (np.zeros((0, 2), np.int32),) * 4, (np.zeros((0, 2), np.float32),) * 4)
    found = traffic(nothing, linear(8, 4), 2)
    assert set(found.counts.values()) == {0} and max_over_mean(found.per_rank.sum(axis=0)) is None


WIRED = [(ranks, nodes) for ranks in (2, 3, 4, 8) for nodes in (1, 2, 4) if ranks % nodes == 0]
EVERY = {
    "uniform": 4, "zipf:1.2": 4, "log_normal:1": 4, "hot:4:0.4": 4, "round_robin": 4, "ratio:1.5": 4, "gshard:1:1": 2,
    "switch:1:1": 1, "node_limited:4:2": 4, "node_limited:4:2:top2": 4, "node_limited:4:2:uniform": 4,
}  # fmt: skip


@pytest.mark.parametrize("ranks, nodes", WIRED)
@pytest.mark.parametrize("spec", EVERY)
def test_predicted_wire_copies_are_those_counted_token_by_token(spec, ranks, nodes):
    experts, each = 24 * ranks, ranks // nodes
    routing = generate(spec, 30, ranks, experts, EVERY[spec], seed=2)
    for placement in (linear(experts, ranks), balanced(np.arange(experts), ranks, nodes, ranks)):
        wire = 0
        for source, ids in enumerate(assign(routing, placement)):
            for chosen in ids.tolist():
                there = {int(placement.rank_of[p]) // each for p in chosen if p >= 0}
                wire += len(there - {source // each})
        assert traffic(routing, placement, each).counts["wire"] == wire
        assert wire == 0 if nodes == 1 else wire > 0
