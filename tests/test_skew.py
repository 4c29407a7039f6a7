"""Skew as an axis: from a suite's keys to matrices, to real ranks, to what a row says of them."""

import csv
import json
import re
import time

import numpy as np
import pytest
from runs import commbench, points, run_in_process

import commbench.measure as loop
from commbench.errors import UsageError
from commbench.ops.op import call_of
from commbench.results.metrics import flow_words, load, load_words
from commbench.results.records import Point, Sample
from commbench.routing.named import generate
from commbench.routing.placement import linear
from commbench.suite.expand import at_size, expand
from commbench.suite.schema import check_suite


def planned(ranks=4, nodes=1, **keys):
    """The points of one measure on ranks that lie on `nodes` nodes."""
    measure = {"op": "all_to_all_v", "size": "64K", "tokens": 128} | keys
    suite = check_suite({"name": "x", "measure": [measure]}, "the suite")
    node_of = [rank * nodes // ranks for rank in range(ranks)]
    return [p for step in expand(suite, ranks, ["gloo"], node_of) for p in step]


def matrix_of(point):
    return np.array(call_of(point).matrix)


def test_the_skew_axis_moves_the_same_bytes_and_reaches_its_ratio():
    found = planned(op=["all_to_all_v", "all_to_all_padded"], skew=[1, 1.5, 2, 3, 4])
    assert [p.op for p in found] == ["all_to_all_v"] * 5 + ["all_to_all_padded"] * 5
    for point, skew in zip(found, [1, 1.5, 2, 3, 4] * 2):
        assert matrix_of(point).sum() == 4 * 16384 and point.params["requested_bytes"] == 65536
        told = load(Sample(point, 1, ""))
        assert told["received_max_over_mean"] == pytest.approx(skew, abs=1e-12) and told["busiest_rank"] == 0
        assert told["sent_max_over_mean"] == 1 and point.size_bytes == skew * 65536
        padded = 4 * int(matrix_of(point).max()) * 4
        assert point.send_bytes == (padded if point.op == "all_to_all_padded" else 65536)


def test_a_skew_out_of_reach_is_a_skip_that_names_the_bound():
    good, bad = planned(skew=[4, 5])
    assert good.status == "ok" and (bad.status, bad.params["routing"]) == ("skip", "ratio:5")
    assert "with 4 ranks and top-8 of 256 experts, 64 on each, it is 1 to 4 times" in bad.reason
    few, more = planned(8, skew=[2, 3], experts=16, top_k=8)  # 2 experts on a rank, so at most 2 of 8 go to one
    assert few.status == "ok" and "it is 1 to 2 times" in more.reason
    (starved,) = planned(routing="hot:1:0.5")
    assert starved.status == "skip" and "0 to 0.125" in starved.reason
    (single,) = planned(1, skew=2)
    assert "1 to 1 times" in single.reason
    (copies,) = planned(routing="zipf:1", placement="balanced:30")
    assert copies.status == "skip" and "30 further copies of experts do not divide over 4 ranks" in copies.reason


def test_a_point_keeps_the_recipe_and_the_sums_but_no_matrix():
    (point,) = planned(16, routing="zipf:1.2", routing_seed=7, experts=64, masked=0.1, placement="balanced:16")
    assert "matrix" not in point.params and len(json.dumps(point.to_json())) < 2000
    assert {"routing": "zipf:1.2", "routing_seed": 7, "experts": 64, "top_k": 8, "tokens": 128, "masked": 0.1,
            "placement": "balanced:16"}.items() <= point.params.items()  # fmt: skip
    matrix = matrix_of(point)
    assert matrix.sum(axis=1).tolist() == point.params["sent"]
    assert matrix.sum(axis=0).tolist() == point.params["received"]
    again = Point.from_json(json.loads(json.dumps(point.to_json())))
    assert np.array_equal(matrix_of(again), matrix) and again.id == point.id


def test_the_matrix_is_that_of_the_routing():
    (point,) = planned(routing="zipf:1.2", experts=64)
    ids = generate("zipf:1.2", 128, 4, 64, 8).ids
    tokens = np.array([np.bincount(linear(64, 4).rank_of[own].ravel(), minlength=4) for own in ids])
    assert np.array_equal(matrix_of(point), tokens * 16)  # 16384 elements are 1024 selections
    assert np.array_equal(matrix_of(at_size(point, 128 << 10, [0] * 4)), tokens * 32)


def test_copies_of_one_routing_differ_as_their_counts_do():
    every = planned(
        8, nodes=2, routing="uniform", experts=64, copies=["selection", "rank", "first_hop", "second_hop"]
    )  # fmt: skip
    selection, rank, first, second = (matrix_of(point) for point in every)
    node = np.arange(8) // 4
    assert selection.sum() > rank.sum() > first.sum() > 0
    assert not first[node[:, None] == node].any() and not second[node[:, None] != node].any()
    assert second.sum(axis=0).tolist() == rank.sum(axis=0).tolist()
    (declared,) = planned(8, routing="uniform", experts=64, copies="first_hop", ranks_per_node=4)
    assert np.array_equal(matrix_of(declared), first)
    (none,) = planned(8, routing="uniform", copies="first_hop")
    assert none.status == "skip" and "moves nothing of kind first_hop" in none.reason


def test_ranks_that_lie_across_nodes_have_no_hops():
    suite = {"op": "all_to_all_v", "size": 4096, "routing": "uniform", "tokens": 16, "copies": ["rank", "first_hop"]}
    steps = expand(check_suite({"name": "x", "measure": [suite]}, ""), 4, ["gloo"], [0, 1, 0, 1])
    rank, hop = (p for step in steps for p in step)
    assert rank.status == "ok" and hop.status == "skip" and "do not lie in order" in hop.reason


def test_uneven_tokens_and_a_rank_without_any():
    (point,) = planned(routing="uniform", tokens=[128, 128, 0, 4], experts=16, top_k=2)
    sent = point.params["sent"]
    assert sent[2] == 0 and sent[0] == pytest.approx(sent[1], rel=0.01) == pytest.approx(32 * sent[3], rel=0.01)
    assert point.params["tokens"] == "128,128,0,4"
    with pytest.raises(UsageError, match="3 ranks were given, the group has 4"):
        planned(routing="uniform", tokens=[1, 2, 3])


def test_words_of_a_row():
    point, *_ = planned(routing="zipf:2", placement="balanced", copies="rank", experts=64)
    assert flow_words(point) == "zipf:2, balanced, copies rank"
    (skewed,) = planned(skew=2)
    assert load_words(Sample(skewed, 1, "")) == "sends 1 x, receives 2 x the mean, rank 0 busiest"
    plain = Point("all_to_all_v", "gloo", 8, params={"matrix": [[0, 2], [0, 4]]}, members=(0, 1), ranks=2)
    assert flow_words(plain) == "" and load(Sample(plain, 1, "")) == {
        "sent_max_over_mean": pytest.approx(4 / 3), "received_max_over_mean": 2.0, "busiest_rank": 1
    }  # fmt: skip
    assert load(Sample(Point("all_reduce", "gloo", 8), 1, "")) is None


@pytest.mark.parametrize(
    "keys, told",
    [
        ({"experts": 10, "skew": 2}, "10 experts do not divide over 4 ranks; 8 or 12 would"),
        ({"experts": 4, "skew": 2, "top_k": 8}, "top-8 of 4 experts: a token's experts differ, so k is at most 4"),
        ({"routing": "gshard:0", "top_k": 2}, "a capacity factor of 0 leaves experts without a place"),
        ({"routing": "trace:/nonexistent.csv"}, "trace /nonexistent.csv cannot be read"),
        ({"skew": 0.5}, "greater than or equal to 1"),
        ({"skew": []}, "empty"),
        ({"routing": "zip:1"}, "there is no routing 'zip'; there are uniform, zipf:S"),
        ({"routing": "uniform", "matrix": "ramp"}, "give a matrix, or skew and routing, not both"),
        ({"experts": 16}, "experts is of a routing, and there is none; give skew or routing"),
        ({"routing": "uniform", "placement": "balanced:x"}, "write linear, balanced or balanced:REPLICAS"),
        ({"routing": "uniform", "copies": "node"}, "'selection', 'rank', 'first_hop' or 'second_hop'"),
        ({"routing": "uniform", "ranks_per_node": 3}, "4 ranks do not divide into nodes of 3"),
        ({"routing": "uniform", "masked": 1.0}, "less than 1"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(keys, told):
    measure = {"op": "all_to_all_v", "size": "64K"} | keys
    with pytest.raises(UsageError, match=re.escape(told)):
        expand(check_suite({"name": "x", "measure": [measure]}, "the suite"), 4, ["gloo"], [0] * 4)


def test_a_trace_with_ids_out_of_range_ends_with_2(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("0,1\n9,3\n" * 4)
    done = commbench(
        "run", "all_to_all_v", "--routing", f"trace:{trace}", "--experts", 8, "--top-k", 2, "--tokens", 4, "--ranks", 2
    )
    assert done.returncode == 2 and "token 2: 9 is no expert; ids are 0 to 7, or -1" in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


MEASURES = [
    {"op": ["all_to_all_v", "all_to_all_padded"], "size": ["1K", "64K"], "skew": [1, 3], "tokens": 64},
    {"op": "all_to_all_v", "size": "64K", "routing": ["zipf:1.2", "node_limited:4:2"], "tokens": [64, 3, 0, 17],
     "copies": ["selection", "rank", "first_hop", "second_hop"], "ranks_per_node": 2, "masked": 0.2},
    {"op": "all_to_all_v", "size": "64K", "routing": "gshard:1:1", "top_k": 2, "placement": "balanced:8", "tokens": 64,
     "dtype": ["bfloat16", "int8"]},
    {"op": "count_exchange"},
]  # fmt: skip


@pytest.mark.parametrize("backend", ["gloo", pytest.param("mpi", marks=pytest.mark.full)])
def test_every_traffic_arrives_element_by_element(tmp_path, backend):
    tables = {"name": "x", "settings": {"iters": 2, "warmup": 1}, "measure": MEASURES}
    code, reason = run_in_process(tables, tmp_path, 4, backend)
    rows = points(tmp_path)
    assert code == 0, reason
    assert len(rows) == 8 + 8 + 2 + 1 and all((r["status"], r["wrong"]) == ("ok", 0) for r in rows)
    counts = rows[-1]
    assert (counts["op"], counts["dtype"], counts["size_bytes"], counts["recv_bytes"]) == (
        "count_exchange", "int64", 0, 32
    )  # fmt: skip


def test_the_table_of_perf_and_the_columns_of_the_export(tmp_path):
    out = tmp_path / "run"
    done = commbench(
        "perf", "alltoallv", "--skew", "1,2,5", "-g", 2, "-b", "64K", "-e", "128K", "-f", 2, "-n", 2, "--out", out
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    assert [(int(row[0]), int(row[1])) for row in rows[:4]] == [
        (65536, 16384), (131072, 32768), (131072, 16384), (262144, 32768)
    ]  # fmt: skip
    assert "# Traffic ratio:2: each rank sends 1 x, receives 2 x the mean, rank 0 busiest" in done.stdout
    assert "it is 1 to 2 times" in done.stdout and rows[4][5] == "N/A"
    exported = commbench("export", out, "--format", "csv")
    table = list(csv.DictReader(exported.stdout.splitlines()))
    assert [float(row["received_max_over_mean"]) for row in table[:4]] == [1, 1, 2, 2]
    assert {row["busiest_rank"] for row in table[:4]} == {"0"} and float(table[0]["p95_us"]) > 0
    refused = commbench("perf", "all_reduce", "--skew", "2")
    assert refused.returncode == 2 and "--skew and --routing are for alltoallv" in refused.stderr


def test_the_gap_between_ranks_is_not_in_the_time(tmp_path, monkeypatch):
    """DeepEP issue 28: the first collective absorbs the time by which one rank comes later. Here all wait first."""
    honest = loop._stopwatch

    def late(world, *arguments):
        align = world.align
        if world.rank == 1:
            world.align = lambda: (time.sleep(np.random.default_rng().uniform(0.02, 0.06)), align())
        return honest(world, *arguments)

    monkeypatch.setattr(loop, "_stopwatch", late)
    plan = {"op": "all_to_all_v", "size": "1K", "skew": 2, "tokens": 16}
    code, reason = run_in_process({"name": "x", "settings": {"iters": 20, "warmup": 1}, "measure": [plan]}, tmp_path, 2)
    (row,) = points(tmp_path)
    assert code == 0, reason
    assert np.median(row["samples_us"]) < 10_000
