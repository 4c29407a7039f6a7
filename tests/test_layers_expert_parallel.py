"""The expert-parallel layer: right on one process, equal by both ways, and its bytes as the matrices say."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_ranks import built_on, on_ranks, tried

from commbench.layers import load
from commbench.layers.expert_exchange import dispatch, ways_of
from commbench.layers.expert_parallel import _plan, _recipe, moved, wire_bytes
from commbench.layers.expert_rows import rows_of
from commbench.layers.fp8 import from_fp8, row_bytes, to_fp8
from commbench.layers.layer import Place
from commbench.layers.numbers import TOLERANCE
from commbench.routing.recipe import Recipe, routed
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite

SMALL = {"experts": 16, "top_k": 4, "scale": 56}
SKEWED = {"routing": "zipf:1.2", "masked": 0.2, "placement": "balanced:8"}


def _cases(tokens: str, per_node: int):
    return [
        SMALL | {"path": path, "per_node": per_node, "dtype": dtype, "payload": payload} | what
        for path in ("direct", "two_hop")
        for dtype, payload in (("float32", "same"), ("float32", "fp8"), ("bfloat16", "same"))
        for what in ({"tokens": "24"}, SKEWED | {"tokens": tokens})
    ]


@pytest.mark.parametrize(
    "ranks, per_node, tokens",
    [
        (4, 2, "20,0,7,13"),
        pytest.param(2, 1, "9,0", marks=pytest.mark.full),
        pytest.param(4, 1, "5,6,0,8", marks=pytest.mark.full),
        pytest.param(4, 4, "5,6,0,8", marks=pytest.mark.full),
        pytest.param(8, 2, "5,6,0,8,9,1,1,40", marks=pytest.mark.full),
    ],
)
def test_results_calls_and_bytes(ranks, per_node, tokens):
    cases = _cases(tokens, per_node)
    for rank, rows in enumerate(on_ranks(ranks, tried, "expert_parallel", cases)):
        for case, row in zip(cases, rows, strict=True):
            assert row["wrong"] == 0 and row["error"] < TOLERANCE[case["dtype"]], (case, row)
            if case["payload"] == "fp8" and case["tokens"] == "24":  # e4m3 keeps 4 bits; SwiGLU takes a product
                assert 0.01 < row["facts"]["fp8_error"] < 0.06
            assert row["counted"] == row["wanted"], case
            params = load("expert_parallel").options | case
            assert row["facts"]["wire_bytes"] == wire_bytes(params, Place(rank, ranks)), case


def test_three_ranks_on_one_node():
    cases = [SMALL | {"experts": 12, "path": path, "tokens": "11"} for path in ("direct", "two_hop")]
    for rows in on_ranks(3, tried, "expert_parallel", cases):
        assert all(row["wrong"] == 0 and row["counted"] == row["wanted"] for row in rows)
        assert all(row["facts"]["wire_bytes"] == 0 for row in rows)


def test_both_ways_bring_the_same_rows_and_results():
    def both(world):
        found = []
        for path in ("direct", "two_hop"):
            built, _, record, params, place = built_on(
                world, "expert_parallel", SMALL | SKEWED | {"path": path, "per_node": 2, "tokens": "20,3,7,33"}
            )
            wires = {}
            from commbench.layers.wire import Tape, Wire

            tape = Tape()
            for name, groups in record.grids(params, world.size).items():
                members = next(group for group in groups if world.rank in group)
                wires[name] = Wire(world.split(groups), tape, name, members)
            ways = ways_of(_plan(params, place), wires, "cpu")
            own = torch.arange(int(params["tokens"].split(",")[world.rank])).float()[:, None] + 1000 * world.rank
            built.step()
            y = next(c.cell_contents for c in built.step.__closure__ if isinstance(c.cell_contents, dict))["y"]
            found.append((dispatch(ways, own), y.detach()))
        (rows, y), (rows_2, y_2) = found
        return torch.equal(rows, rows_2), float((y - y_2).abs().max()), len(rows)

    for equal, difference, count in on_ranks(4, both):
        assert equal and count and difference < 1e-6


@given(
    st.sampled_from([(2, 1), (2, 2), (3, 3), (4, 1), (4, 2), (4, 4), (8, 2), (8, 4), (8, 8)]),
    st.sampled_from(["uniform", "zipf:1.5", "hot:2:0.5", "log_normal:1.0", "round_robin"]),
    st.lists(st.integers(0, 30), min_size=8, max_size=8),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=60, deadline=None)
def test_rows_follow_the_matrices(world, name, tokens, seed, masked):
    """Every rank's splits are the traffic matrices, sent equals received, and both ways compute the same selections."""
    ranks, per_node = world
    recipe = Recipe(name, ranks, per_node, ",".join(map(str, tokens[:ranks])), 24, 3, seed, masked)
    if not any(tokens[:ranks]):
        return
    routing, placement, counted = routed(recipe)
    for two_hop in (False, True):
        plans = [rows_of(routing, placement, per_node, rank, two_hop) for rank in range(ranks)]
        for rank, plan in enumerate(plans):
            assert plan.received == counted.per_rank[:, rank].sum()
            assert sum(plan.per_expert) == len(plan.row) == counted.per_selection[:, rank].sum()
            assert len(set(zip(plan.row.tolist(), plan.slot.tolist()))) == len(plan.row)
            for _, hop in plan.hops:
                assert len(hop.send) == sum(hop.in_splits)
        if two_hop:
            first = np.array([dict(plan.hops)["inter"].in_splits for plan in plans])
            assert first.sum() == counted.counts["wire"]
            second = np.array([dict(plan.hops)["intra"].in_splits for plan in plans])
            for rank in range(ranks):
                node = rank // per_node
                assert (
                    second[rank].tolist() == counted.second_hop[rank, node * per_node : (node + 1) * per_node].tolist()
                )
        else:
            assert [dict(plan.hops)["all"].in_splits for plan in plans] == counted.per_rank.tolist()


def test_two_hops_send_less_over_the_network():
    params = load("expert_parallel").options | {"dtype": "float32", "experts": 64, "tokens": "256", "per_node": 4}
    direct, two_hop = (
        sum(wire_bytes(params | {"path": path}, Place(rank, 16)) for rank in range(16))
        for path in ("direct", "two_hop")
    )
    assert two_hop < 0.65 * direct


@pytest.mark.parametrize("payload, row_size", [("same", 512), ("fp8", 132)])
@pytest.mark.parametrize("path", ["direct", "two_hop"])
def test_the_bytes_of_a_row_leave_out_what_stays_on_the_rank(path, payload, row_size):
    given = SMALL | {
        "path": path,
        "per_node": 2,
        "tokens": "24",
        "routing": "ratio:3.5",
        "payload": payload,
        "dtype": "float32",
    }
    params = load("expert_parallel").options | given
    _, _, counted = routed(_recipe(params, 4))
    rows = counted.per_rank if path == "direct" else counted.first_hop + counted.second_hop
    rows = rows - np.diag(np.diag(rows))
    there, home = row_size + 512 + 16, 2 * 512 + 16  # rows of 128, and 4 weights
    for rank in range(4):
        sent, received = rows[rank].sum(), rows[:, rank].sum()
        wanted = sent * there + received * home, received * there + sent * home
        assert moved(params, Place(rank, 4)) == wanted
    measure = {"layer": "expert_parallel", "set": {k: v for k, v in given.items() if k != "dtype"}}
    ((point,),) = expand(check_suite({"name": "t", "measure": [measure]}, "t"), 4, ["gloo"], [0] * 4)
    assert (point.send_bytes, point.recv_bytes) == moved(params, Place(0, 4))
    assert point.send_bytes != round(point.size_bytes * 3 / 4)  # as if shares were even


def test_fp8_rows_come_back_within_half_a_step():
    rows = torch.randn(5, 256, generator=torch.Generator().manual_seed(3)) * torch.logspace(-3, 3, 5)[:, None]
    raw = to_fp8(rows)
    assert raw.shape == (5, row_bytes(256)) and raw.dtype == torch.uint8
    back = from_fp8(raw, torch.float32)
    scale = rows.view(5, 2, 128).abs().amax(dim=2).repeat_interleave(128, dim=1)
    # Half a step of e4m3 is 1/16 of the value for normal numbers, and 2^-10 of 448 for the smallest.
    assert ((back - rows).abs() <= rows.abs() / 16 + scale * 2**-10 / 448 * 1.01).all()
    assert to_fp8(rows[:0]).shape == (0, row_bytes(256))


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({"experts": 63}, 4, "63 experts do not divide over 4 ranks"),
        ({"experts": 4, "top_k": 8}, 4, "k is at most 4"),
        ({"model": "llama3-8b"}, 4, "has no experts"),
        ({"payload": "fp8", "scale": 16}, 4, "no multiple of 128"),
        ({"routing": "zipf"}, 4, "write zipf:S"),
        ({"per_node": 3}, 4, "do not divide into nodes of 3"),
        ({"scale": 5}, 4, "scale 5 does not divide"),
        ({"routing": "gshard:0", "top_k": 2}, 4, "capacity"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    record = load("expert_parallel")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, ranks)


def test_the_recipe_of_a_layer_is_that_of_the_operations():
    params = load("expert_parallel").options | {"dtype": "float32", "per_node": 2}
    assert _recipe(params, 4) == Recipe("uniform", 4, 2, "128", 64, 8, 1)
