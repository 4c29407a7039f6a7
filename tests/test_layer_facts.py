"""Figures beside a layer's times: rates of links, memory, and what recomputation costs."""

from dataclasses import replace

from commbench.results.layer_facts import facts_words, link_GBps, recompute
from commbench.results.layer_metrics import layer_words
from commbench.results.records import Point, Sample

POINT = Point("moe", "gloo", 0, kind="layer", ranks=2, world_size=2, members=(0, 1))


def _row(op, time_us, parts, facts):
    return Sample(replace(POINT, op=op), 1, "", samples_us=(time_us,) * 3, parts_us=parts, rank_facts=facts)


def test_rates_of_a_link():
    row = _row(
        "offload", 2000.0, {"out": [1000.0], "back": [500.0]}, {"moved_bytes": [10**6] * 2, "page_cache": [0, 1]}
    )
    assert link_GBps(row) == {"out": 1.0, "back": 2.0, "both": 1.0}
    assert "out 1 GB/s, back 2 GB/s, both 1 GB/s, through the page cache" in layer_words(row)
    host = _row("host_optimizer", 3.0, {"out": [1.0], "adam": [1.0], "back": [1.0]}, {"moved_bytes": [1000, 1000]})
    assert link_GBps(host) == {"out": 1.0, "back": 1.0}
    assert link_GBps(_row("moe", 3.0, {}, {})) == {}
    request = replace(POINT, op="kv_transfer", size_bytes=10**6)
    assert link_GBps(Sample(request, 1, "", samples_us=(500.0,) * 3)) == {"a pair": 2.0}
    assert link_GBps(Sample(request, 1, "", status="skip")) == {}


def test_what_recomputation_costs():
    facts = {"kept_bytes": [2**20] * 2, "kept_published_bytes": [2.0**21] * 2, "extra_flops_share": [1 / 3] * 2}
    row = _row("tensor_parallel", 150.0, {"without_recompute": [100.0]}, facts)
    cost = recompute(row)
    assert (cost.time_ratio, cost.flops_ratio, cost.kept_bytes, cost.kept_published_bytes) == (1.5, 4 / 3, 2**20, 2**21)
    assert facts_words(row)[-1] == "recompute time x1.50, FLOPs x1.333"
    assert recompute(_row("tensor_parallel", 150.0, {}, facts)) is None


def test_memory_beside_its_formula():
    words = facts_words(
        _row("data_parallel", 1.0, {}, {"state_bytes": [2**24] * 2, "state_formula_bytes": [2.0**24] * 2})
    )
    assert words == ["state 16.00 MiB (by formula 16.00 MiB)"]
