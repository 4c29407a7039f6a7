"""The ratio of links within a node to links between nodes."""

import json
from dataclasses import replace

import pytest
from measured import sample, write_run
from runs import commbench

from commbench.models.ratio import datasheet, ratios, sentence

SIZE = 16 << 20


def rows(op="p2p_bw", intra_GBps=90.0, inter_GBps=10.0, size=SIZE, launch=1, noise=0.0, **what):
    """One row within a node and one between nodes, at those bus bandwidths on two ranks."""
    groups = {"p2p_bw": ("pair 0,1", "pair 0,2"), "all_gather": ("node #0", "rail 0")}[op]
    factor = 0.5 if op == "all_gather" else 1.0
    return [
        sample(factor * size / rate / 1e3, size, launch, op=op, ranks=2, nodes=nodes, scope=scope, group=group,
               noise=noise, **what)
        for scope, nodes, group, rate in (
            ("intra", 1, groups[0], intra_GBps), ("inter", 2, groups[1], inter_GBps),
        )
    ]  # fmt: skip


def test_both_ratios_are_one_way_rates_over_one_another():
    found = {ratio.name: ratio for ratio in ratios(rows() + rows("all_gather", 370.0, 48.0))}
    assert found["ratio_p2p"].value == pytest.approx(9) and found["ratio_ring"].value == pytest.approx(370 / 48)
    assert found["ratio_ring"].intra.busbw_GBps == pytest.approx(370)


def test_the_largest_size_that_both_sides_have_counts():
    both = rows(size=SIZE) + rows(intra_GBps=50.0, size=SIZE // 4) + rows(size=4 * SIZE)[:1]
    (found,) = ratios(both)
    assert found.size_bytes == SIZE and found.value == pytest.approx(9)


def test_intervals_come_from_launches_or_are_said_to_be_within_one():
    (one,) = ratios(rows(noise=0.02))
    assert one.label == "within-launch only" and one.low < one.value < one.high
    (several,) = ratios([s for launch, r in enumerate((88, 90, 92), 1) for s in rows(intra_GBps=r, launch=launch)])
    assert several.label == "3 launches" and several.low < 9 < several.high
    assert several.value == pytest.approx(9, rel=1e-3)


def test_the_median_of_the_nodes_counts():
    nodes = [
        sample(0.5 * SIZE / rate / 1e3, SIZE, op="all_gather", ranks=2, scope="intra", group=f"node #{i}", noise=0)
        for i, rate in enumerate((300, 370, 380))
    ]
    (found,) = ratios(nodes + rows("all_gather", inter_GBps=37.0)[1:])
    assert found.value == pytest.approx(10) and found.intra.groups == 3


def test_what_is_no_pair_alone_or_not_ok_takes_no_part():
    in_rounds = [replace(s, point=replace(s.point, group=f"round 1: {i},2")) for i, s in enumerate(rows())]
    assert ratios(in_rounds) == []
    assert ratios(rows()[:1]) == [] and ratios(rows(status="error")) == [] and ratios(rows(algorithm="own:ring")) == []


def test_a_rail_counts_where_no_other_one_hinders_it():
    def rails(count, rate):
        (found,) = rows("all_gather", inter_GBps=rate)[1:]
        return [replace(found, point=replace(found.point, group=f"rail #{i}")) for i in range(count)]

    (beside,) = ratios(rows("all_gather") + rails(2, rate=5.0))
    assert beside.value == pytest.approx(9)
    (only,) = ratios(rows("all_gather")[:1] + rails(1, rate=5.0))
    assert only.value == pytest.approx(18)
    assert ratios(rows("all_gather")[:1] + rails(2, rate=5.0)) == []


def test_backends_are_kept_apart():
    assert [r.backend for r in ratios(rows() + rows(backend="mpi", intra_GBps=20.0))] == ["gloo", "mpi"]


@pytest.mark.parametrize(
    "gpus, known",
    [
        (["NVIDIA H100 80GB HBM3"] * 8, ("h100-8x400g", 9.0, 18.0)),
        (["NVIDIA H800"], ("h800-8x400g", 4.0, 8.0)),
        (["NVIDIA H100 80GB HBM3", "NVIDIA H800"], None),
        (["Tesla T4"], None),
        ([], None),
    ],
)
def test_the_datasheet_in_both_conventions(gpus, known):
    assert datasheet(gpus) == known


def test_a_run_says_its_ratio(tmp_path):
    write_run(tmp_path / "run", rows() + rows("all_gather"))
    done = commbench("export", tmp_path / "run", "--format", "json")
    told = json.loads(done.stdout)["ratios"]
    assert {r["name"]: round(r["value"], 6) for r in told} == {"ratio_p2p": 9, "ratio_ring": 9}
    line = sentence(ratios(rows())[0], ("h100-8x400g", 9.0, 18.0))
    assert line.startswith("ratio_p2p 9 (") and "90 GB/s within a node over 10 GB/s between nodes, one way" in line
    assert line.endswith("datasheet of h100-8x400g: 9 one way, 18 as both directions over one")
    assert sentence(ratios(rows())[0], None, 8.0).endswith("; set in the lab: 8")
