"""Layers on the page and in a line: what adds up, and what is said of a layer whose calls or results are wrong."""

from dataclasses import replace

import pytest

from commbench.reports.layers import layer_sections
from commbench.results.layer_metrics import dispatch_GBps, layer_words, options_words
from commbench.results.metrics import exposed_us, overlap
from commbench.results.records import Point, Sample

POINT = Point(
    op="expert_parallel", backend="gloo", size_bytes=4096, kind="layer", params={"path": "direct", "tokens": "128"}, ranks=2,
    members=(0, 1), world_size=2,
)  # fmt: skip
SAMPLE = Sample(
    POINT, 1, "2026-01-01T00:00:00Z", samples_us=(100.0,) * 8,
    parts_us={"compute": (80.0,) * 8, "comm": (40.0,) * 8, "dispatch": (10.0,) * 8},
    flops=2e8, counted={"all.all_to_all": [6, 4096]}, wrong=0, error_max=1e-7,
    rank_facts={"selections": [80, 120], "unique_rank": [60, 60], "unique_node": [40, 40], "wire": [20, 20],
                "row_bytes": [1000, 1000]},
)  # fmt: skip


class _Run:
    def __init__(self, *samples):
        self._samples = samples

    def samples(self):
        return list(self._samples)


def test_overlap_and_exposed():
    """80 of computation and 40 of communication in 100: 20 of the 40 hide."""
    assert exposed_us(SAMPLE) == 20
    value, interval = overlap(SAMPLE)
    assert value == 0.5 and interval == (0.5, 0.5)
    assert overlap(replace(SAMPLE, samples_us=(130.0,) * 8))[0] == -0.25
    assert overlap(replace(SAMPLE, samples_us=(100.0,) * 5))[1] is None
    assert overlap(replace(SAMPLE, parts_us={})) is None


def test_overlap_interval_follows_the_spread():
    noisy = replace(SAMPLE, samples_us=tuple(90.0 + i for i in range(21)))
    value, (low, high) = overlap(noisy)
    assert value == 0.5 and 0.3 < low < 0.5 < high < 0.7


def test_four_bandwidths():
    """A row of 1,000 bytes, 100 selections a rank on average, in 10 us: 10 GB/s by selection, 2 on the wire."""
    assert dispatch_GBps(SAMPLE) == pytest.approx(
        {"per_selection": 10.0, "per_unique_rank": 6.0, "per_unique_node": 4.0, "wire": 2.0}
    )
    assert dispatch_GBps(replace(SAMPLE, rank_facts={})) is None


def test_words():
    assert "compute 80 us, comm 40 us" in layer_words(SAMPLE) and "overlap 0.50 [0.50, 0.50]" in layer_words(SAMPLE)
    other = replace(POINT, params={"path": "two_hop", "tokens": "128"})
    assert options_words([POINT, other]) == ["path direct", "path two_hop"]


def test_what_follows_from_the_rest_is_not_said_again():
    """scale goes with model, so model alone tells; tokens does not."""
    options = [("a", 1, 8), ("a", 1, 9), ("b", 2, 8), ("b", 2, 9)]
    points = [replace(POINT, params={"model": m, "scale": s, "tokens": t}) for m, s, t in options]
    assert options_words(points) == [
        "model a, tokens 8", "model a, tokens 9", "model b, tokens 8", "model b, tokens 9",
    ]  # fmt: skip
    assert options_words([POINT]) == [""] and options_words([POINT, POINT]) == ["", ""]


def test_what_sets_one_row_apart_is_said_of_it_also_where_the_rest_would_tell():
    """zero and bucket tell these rows apart; that one of them is cut over two ranks alone is said nevertheless."""
    options = [(2, 0, 8), (3, 2, 8), (3, 0, 9), (2, 0, 9)]
    points = [replace(POINT, params={"zero": z, "shard": s, "bucket": b}) for z, s, b in options]
    assert options_words(points) == [
        "zero 2, bucket 8", "zero 3, shard 2, bucket 8", "zero 3, bucket 9", "zero 2, bucket 9",
    ]  # fmt: skip


def test_the_page_draws_what_was_measured():
    slow = replace(
        SAMPLE, point=replace(POINT, params={"path": "<b>two</b>", "tokens": "128"}), samples_us=(150.0,) * 8
    )
    (section,) = layer_sections(_Run(SAMPLE, slow))
    compute, exposed, alone = section["figure"]["data"]
    assert compute["x"] == [0.08, 0.08] and exposed["x"] == pytest.approx([0.02, 0.07]) and alone["x"] == [0.04, 0.04]
    assert section["figure"]["layout"]["yaxis"]["ticktext"][1] == "path &lt;b&gt;two&lt;/b&gt;"
    assert section["rows"][0]["calls"] == "6 all.all_to_all, 4K" and section["rows"][0]["overlap"] == "0.50"
    assert section["parts"]["data"][0]["x"] == [0.01, 0.01] and len(section["bandwidths"]) == 2


def test_a_whole_that_is_shorter_than_its_computation_is_marked():
    """Timed by turns, noise can make a step shorter than the same step without its calls."""
    (section,) = layer_sections(
        _Run(SAMPLE, replace(SAMPLE, point=replace(POINT, dtype="bfloat16"), samples_us=(70.0,) * 8))
    )
    *_, mark = section["figure"]["data"]
    assert mark["x"] == [0.07] and mark["y"] == [1] and "shorter" in mark["name"]


def test_rows_of_different_models_say_so():
    """The schedule alone would tell them apart."""
    points = [replace(POINT, params={"model": m, "schedule": s}) for m, s in (("a", "1f1b"), ("b", "zb_h1"))]
    (section,) = layer_sections(_Run(*(replace(SAMPLE, point=point) for point in points)))
    assert [row["label"] for row in section["rows"]] in (
        ["model a, schedule 1f1b", "model b, schedule zb_h1"], ["model a", "model b"]
    )  # fmt: skip


def test_no_bytes_on_the_wire_are_no_bandwidth():
    alone = replace(SAMPLE, rank_facts=SAMPLE.rank_facts | {"wire": [0, 0]})
    (section,) = layer_sections(_Run(alone))
    assert dict(section["bandwidths"][0]["rates"])["wire"] == "–"


def test_a_step_without_calls_is_drawn_whole():
    point = replace(POINT, op="offload", params={"link": "memory"})
    (section,) = layer_sections(_Run(replace(SAMPLE, point=point, counted={}, parts_us={"out": (1.0,) * 8})))
    (bar,) = section["figure"]["data"]
    assert bar["name"] == "whole step" and bar["x"] == [0.1]
    assert section["parts"]["data"][0]["showlegend"]


def test_every_knee_tells_where_it_is():
    def gathers(group, ranks):
        members = tuple(range(ranks))
        point = Point(
            "all_gather", "gloo", 0, group=group, ranks=ranks, members=members, world_size=4, timing="streaming"
        )
        return [
            Sample(replace(point, size_bytes=4 * n), 1, "", samples_us=(1e6 + n,)) for n in (1024, 2048, 4096, 8192)
        ]

    layer = replace(POINT, op="data_parallel", params={"zero": 3, "bucket": 1024})
    run = _Run(replace(SAMPLE, point=layer), *gathers("all", 4), *gathers("DIV 2 #0", 2))
    (section,) = layer_sections(run)
    assert len(set(section["notes"])) == len(section["notes"]) == 2
    assert "(gloo, group DIV 2 #0, 2 ranks, float32, streaming)" in section["notes"][1]
    assert "above 8,192 elements" in section["notes"][0]


def test_a_wrong_layer_is_in_the_table_and_not_drawn():
    (section,) = layer_sections(_Run(replace(SAMPLE, status="wrong", reason="1 wrong tensors", wrong=1)))
    assert section["figure"] is None and section["rows"][0]["status"] == "wrong"
