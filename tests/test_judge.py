"""Verdicts on runs whose figures are known."""

from dataclasses import replace

import pytest
from judged import G, header_of, node, over_nodes, p5, row, stored
from measured import sample

from commbench.acceptance.bounds import hidden_share
from commbench.acceptance.judge import judge
from commbench.acceptance.profile import check_profile, load_profile
from commbench.acceptance.which import which
from commbench.errors import MeasureError
from commbench.fabrics import load_fabric

H100, H800 = load_profile("h100-8x400g"), load_profile("h800-8x400g")


def judged(tmp_path, rows, profile=H100, header=None):
    return judge(stored(tmp_path / "run", rows, header), profile)


def of(judgement, rule, word=None) -> list:
    return [v for v in judgement.verdicts if v.rule == rule and word in (None, v.word)]


def own(**rule):
    """A profile of one rule."""
    base = {
        "name": "r", "metric": "busbw_GBps", "op": "all_reduce", "size": {"from": "1G", "to": "16G"}, "expected": 400.0,
        "warn": 0.95, "fail": 0.9, "source": "a test",
    }  # fmt: skip
    made = {key: value for key, value in {**base, **rule}.items() if value is not None}
    return check_profile({"name": "own", "about": "x", "rule": [made]}, "own")


def test_the_published_h100_sweep_passes_though_its_average_is_157(tmp_path):
    rows = p5()
    told = judged(tmp_path, rows)
    assert (told.word, told.code, told.reason) == ("pass", 0, "")
    (verdict,) = of(told, "all_reduce in a node")
    assert verdict.word == "pass" and verdict.measured == pytest.approx(475.98, abs=0.1) and verdict.size_bytes == 4 * G
    assert verdict.expected == 475 and verdict.repeated == "measured once" and "Azure" in verdict.source
    assert "busbw is not the wire rate" in verdict.note  # 476 on links of 450 is right under NVLS


def test_cut_at_256_mib_it_is_an_error_and_no_pass(tmp_path):
    told = judged(tmp_path, p5(256 << 20))
    (verdict,) = of(told, "all_reduce in a node")
    assert verdict.word == "error" and "judged at 4G to 16G" in verdict.note and "8 to 256M only" in verdict.note
    assert (told.word, told.code) == ("error", 3) and verdict.again.startswith(
        "commbench run all_reduce --backend nccl"
    )


def h800_rows():
    return node("all_gather", 160, (1, 4, 16)) + node("all_reduce", 215, (1, 4, 16))


def test_figures_of_an_h800_fail_h100_and_pass_their_own(tmp_path):
    run = stored(tmp_path / "run", h800_rows())
    other, own_profile = judge(run, H100), judge(run, H800)
    assert (other.word, other.code) == ("fail", 1)
    assert [v.rule for v in other.verdicts if v.word == "fail"] == ["all_reduce in a node", "all_gather in a node"]
    assert (own_profile.word, own_profile.code) == ("pass", 0)


def test_held_against_both_it_is_named(tmp_path):
    machine = which(stored(tmp_path / "run", h800_rows()), [H100, H800])
    assert machine.name == "h800-8x400g" and [one.nearest for one in machine.evidence] == ["h800-8x400g"] * 2
    assert which(stored(tmp_path / "p5", p5()), [H100, H800]).name == "h100-8x400g"


def test_links_name_a_machine_whose_rates_are_broken(tmp_path):
    run = stored(tmp_path / "run", h800_rows(), header_of(1, nvlinks=18))
    machine = which(run, [H100, H800])
    assert machine.name == "h100-8x400g" and "but all_reduce in a node 215 where 475 is expected" in machine.reason
    eight = stored(tmp_path / "eight", h800_rows(), header_of(1, nvlinks=8))
    assert which(eight, [H100, H800]).name == "h800-8x400g"
    (verdict,) = of(judge(eight, H100), "NVLinks of each GPU")
    assert (verdict.word, verdict.measured, verdict.subject) == ("fail", 8, "host0")


def test_a_gpu_with_a_link_down_is_named(tmp_path):
    header = header_of(1, nvlinks=18)
    header["nodes"][0]["gpus"][5] = {"index": 5, "nvlink": {"links": 18, "active": 17}}
    (verdict,) = of(judged(tmp_path, p5(), header=header), "NVLinks of each GPU")
    assert (verdict.word, verdict.measured, verdict.note) == ("fail", 17, "GPU 5 of 8")


def test_what_does_not_tell_machines_apart(tmp_path):
    run = stored(tmp_path / "run", p5())
    assert which(run, [H100, load_profile("h200-8x400g")]).name == ""
    assert "nothing that tells" in which(stored(tmp_path / "two", over_nodes("all_reduce", 470)), [H100, H800]).reason
    torn = which(stored(tmp_path / "torn", node("all_gather", 160) + node("all_reduce", 475)), [H100, H800])
    assert torn.name == "" and "contradict" in torn.reason


def test_two_nodes_at_231_fail_with_what_to_look_at(tmp_path):
    told = judged(tmp_path, over_nodes("all_reduce", 231), header=header_of(2, environment={"NCCL_IB_HCA": "mlx5_1"}))
    (verdict,) = of(told, "all_reduce over 2 nodes")
    assert (verdict.word, told.code) == ("fail", 1) and verdict.measured == pytest.approx(231)
    things = "\n".join(verdict.look_at)
    assert verdict.look_at[0].startswith("231 is about 1/2 of what is expected")
    for thing in ("NCCL_IB_HCA=mlx5_1 was set", "all 8 NICs", "GPUDirect", "nvidia-smi topo -m", "each rail", "ring"):
        assert thing in things
    assert judged(tmp_path, over_nodes("all_reduce", 467)).word == "pass"


def test_what_the_library_said_comes_first(tmp_path):
    library = {"network": "Socket", "transports": ["NET/Socket"], "gpudirect": False}
    told = judged(tmp_path, over_nodes("all_reduce", 5), header=header_of(2) | {"library": library})
    look_at = of(told, "all_reduce over 2 nodes")[0].look_at
    assert "over sockets" in look_at[0] and "GPUDirect RDMA is off" in look_at[1]


def test_a_library_that_left_nvls_out_fails_although_a_ring_could_do_no_more(tmp_path):
    told = judged(tmp_path, node("all_reduce", 370, seen="ring"))
    (verdict,) = of(told, "all_reduce in a node")
    assert verdict.word == "fail" and verdict.algorithm == "ring" and "where nvls is expected" in verdict.note
    assert "whether NVLS ran (ring instead)" in verdict.look_at[0]
    asked = judged(tmp_path, node("all_reduce", 370, algorithm="ring"))
    assert of(asked, "all_reduce in a node, by ring")[0].word == "pass" and asked.code == 0


def test_a_figure_that_no_link_lets_through_is_an_error(tmp_path):
    told = judged(tmp_path, node("all_gather", 483))
    (verdict,) = of(told, "all_gather in a node")
    assert verdict.word == "error" and "above the 450" in verdict.note and told.code == 3
    assert of(judged(tmp_path, p5(), H800), "all_reduce in a node")[0].word == "error"  # an H800 cannot do 476


def test_the_h800_says_that_its_nics_do_not_show(tmp_path):
    assert hidden_share(load_fabric("h800-8x400g")) == pytest.approx(160 * 8 / 7 / 384)
    assert hidden_share(load_fabric("h100-8x400g")) is None and hidden_share(load_fabric("gb200-nvl72")) is None
    told = judged(tmp_path, over_nodes("all_reduce", 188), H800)
    (note,) = told.notes
    assert told.word == "pass" and "22.9 a NIC" in note and "48%" in note and "the NICs are not tested" in note
    rails = [row("all_gather", 48, G, 2, nodes=2, scope="inter", group=f"rail #{i}") for i in range(8)]
    (note,) = judged(tmp_path, over_nodes("all_reduce", 188) + rails, H800).notes
    assert "the rails were judged by themselves" in note


def test_each_rail_has_its_verdict(tmp_path):
    rates = [47.5, 47.9, 48.1, 24.0, 48, 48, 48, 48]
    rails = [
        row("all_gather", rate, size, 2, nodes=2, scope="inter", group=f"rail #{i}")
        for i, rate in enumerate(rates)
        for size in (G, 2 * G)
    ]
    told = judged(tmp_path, rails, H800)
    assert [v.subject for v in of(told, "rails by all_gather", "fail")] == ["rail #3"]
    assert [v.subject for v in of(told, "rails alike", "fail")] == ["rail #3"]
    assert len(of(told, "rails by all_gather", "pass")) == 7
    assert (
        of(told, "rails by all_gather", "fail")[0].again
        == "commbench run all_gather --backend nccl --size 1G --split rail"
    )


def test_each_node_has_its_verdict_by_host(tmp_path):
    rows = [
        r
        for n, rate in enumerate((476, 477, 440, 475))
        for r in node("all_reduce", rate, group=f"node #{n}", members=tuple(range(8 * n, 8 * n + 8)))
    ]
    told = judged(tmp_path, rows, header=header_of(4))
    assert {v.subject: v.word for v in of(told, "all_reduce in a node")} == {
        "host0": "pass", "host1": "pass", "host2": "fail", "host3": "pass",
    }  # fmt: skip
    assert [v.subject for v in of(told, "nodes alike", "fail")] == ["host2"]
    assert of(told, "all_reduce in a node", "fail")[0].again.endswith("--split node")


def test_links_name_both_ends_and_the_direction(tmp_path):
    pair = {"ranks": 2, "nodes": 2, "scope": "inter", "group": "node round 1: 0,8", "size_bytes": 64 << 20}
    rows = [row("p2p_bw", rate, root=root, **pair) for root, rate in ((0, 48.0), (1, 20.0))]
    rows = [replace(r, point=replace(r.point, members=(0, 8), params={"window": 4})) for r in rows]
    told = judged(tmp_path, rows, header=header_of(2))
    assert {v.subject: v.word for v in of(told, "links between nodes")} == {
        "rank 0 on host0 -> rank 8 on host1": "pass", "rank 8 on host1 -> rank 0 on host0": "fail",
    }  # fmt: skip
    assert "--split 0,8 --window 4 --root 1" in of(told, "links between nodes", "fail")[0].again


def test_the_best_of_three_repeats_counts_and_no_fourth(tmp_path):
    def launches(*rates):
        return [row("all_reduce", rate, launch=n) for n, rate in enumerate(rates, 1)]

    def verdict(*rates):
        (found,) = judged(tmp_path, launches(*rates), own()).verdicts
        return found.word, round(found.measured), found.repeated

    assert verdict(300) == ("fail", 300, "measured once")
    assert verdict(300, 399) == ("pass", 399, "best of 2")
    assert verdict(300, 370, 310) == ("warn", 370, "best of 3")
    assert verdict(300, 310, 320, 399) == ("fail", 320, "best of 3")


def test_the_worst_of_the_sizes_counts(tmp_path):
    rows = [row("all_reduce", 399, G), row("all_reduce", 350, 8 * G), row("all_reduce", 1, 1 << 20)]
    (verdict,) = judged(tmp_path, rows, own()).verdicts
    assert (verdict.word, verdict.size_bytes) == ("fail", 8 * G)


@pytest.mark.parametrize("figure, word", [(399, "pass"), (381, "pass"), (379, "warn"), (361, "warn"), (359, "fail")])
def test_levels(tmp_path, figure, word):
    told = judged(tmp_path, [row("all_reduce", figure)], own())
    assert told.verdicts[0].word == told.word == word and told.code == (word == "fail")
    assert told.verdicts[0].tolerance == "warn below 380, fail below 360"
    (alone,) = judged(tmp_path, [row("all_reduce", figure)], own(minimum=360.0, fail=None)).verdicts
    assert alone.word == word


@pytest.mark.parametrize("time, word", [(19, "pass"), (31, "warn"), (45, "fail")])
def test_of_a_time_less_is_better(tmp_path, time, word):
    rule = own(metric="time_us", size="32K", expected=20.0, warn=1.5, fail=2.0)
    told = judged(tmp_path, [sample(time, 32768, noise=0)], rule)
    assert told.verdicts[0].word == word and "warn above 30, fail above 40" == told.verdicts[0].tolerance


@pytest.mark.parametrize("inter, word", [(48, "pass"), (24, "fail"), (41, "warn"), (110, "fail")])
def test_a_ratio_may_be_off_either_way(tmp_path, inter, word):
    rows = [
        row("all_gather", 370, G, group="node #0"),
        row("all_gather", inter, G, 2, nodes=2, scope="inter", group="rail #0"),
    ]
    assert of(judged(tmp_path, rows), "NVLink over network")[0].word == word


@pytest.mark.parametrize(
    "figures, word",
    [
        ((100, 200, 300, 310, 305), "pass"),
        ((100, 200, 300, 280, 310), "warn"),
        ((100, 200, 300, 250, 310), "fail"),
        ((300, 291, 282, 274, 265), "fail"),  # -3 % a step, which the size before alone would let through
        ((100, 200), "skip"),
    ],
)
def test_no_dip_below_the_running_maximum(tmp_path, figures, word):
    rule = own(check="dip", expected=None, size={"from": "1M", "to": "16G"})
    rows = [row("all_reduce", figure, (1 << 20) << i) for i, figure in enumerate(figures)]
    (verdict,) = judged(tmp_path, rows, rule).verdicts
    assert verdict.word == word
    if word == "fail":
        assert "after 300 at" in verdict.note


def soak(times):
    made = row("all_reduce", 300, 64 << 20)
    return replace(made, point=replace(made.point, params={"soak_s": 180.0}), samples_us=tuple(times))


@pytest.mark.parametrize("slow, word", [(1.1, "pass"), (1.3, "warn"), (1.6, "fail")])
def test_a_soak_is_judged_by_its_tail(tmp_path, slow, word):
    told = judged(tmp_path, [soak([400.0] * 190 + [400.0 * slow] * 10)])
    (verdict,) = of(told, "steady for minutes")
    assert verdict.word == word and verdict.measured == pytest.approx(slow)
    (few,) = of(judged(tmp_path, [soak([400.0] * 50)]), "steady for minutes")
    assert few.word == "error" and "a p99 needs 100 samples" in few.note
    assert of(judged(tmp_path, [row("all_reduce", 300, 64 << 20)]), "steady for minutes")[0].word == "skip"


def test_one_node_has_no_spread(tmp_path):
    assert of(judged(tmp_path, p5()), "nodes alike")[0].word == "skip"


def test_wrong_data_is_told_as_such(tmp_path):
    rows = [replace(row("all_reduce", 476), status="wrong", wrong=3), row("all_reduce", 480, 8 * G)]
    told = judged(tmp_path, rows)
    (verdict,) = of(told, "all_reduce in a node")
    assert (verdict.word, verdict.note, told.code, told.word) == ("fail", "wrong data: 3 elements differ", 5, "fail")


def test_rows_in_error_are_no_pass(tmp_path):
    lost = replace(row("all_reduce", 476), status="error", reason="rank 3 was lost", samples_us=())
    told = judged(tmp_path, [lost])
    assert of(told, "all_reduce in a node")[0].word == "error" and told.code == 3
    assert "rank 3 was lost" in of(told, "all_reduce in a node")[0].note
    half = judged(tmp_path, [lost, row("all_reduce", 476, launch=2)])
    assert "1 more of its launches did not come out: rank 3 was lost" in of(half, "all_reduce in a node")[0].note
    skipped = replace(row("all_reduce", 476), status="skip", reason="does not fit", samples_us=())
    told = judged(tmp_path, [skipped])
    assert {v.word for v in told.verdicts} == {"skip"} and told.code == 3


def test_a_profile_for_something_else_judges_nothing_and_says_so(tmp_path):
    told = judged(tmp_path, [row("broadcast", 200)])
    assert (told.word, told.code) == ("error", 3)
    assert "nothing of this run is judged" in told.reason and "broadcast of 8 ranks over nccl" in told.notes[0]
    assert judged(tmp_path, node("all_reduce", 476, backend="gloo")).code == 3


def test_a_world_of_one_is_named_as_the_reason(tmp_path):
    with pytest.raises(MeasureError, match="run of 1 rank"):
        judged(tmp_path, [sample(10, G, ranks=1, backend="nccl")])
    with pytest.raises(MeasureError, match="holds no rows"):
        judged(tmp_path, [])


def test_an_import_without_times_is_judged_by_its_printed_figure(tmp_path):
    printed = replace(row("all_reduce", 476), samples_us=(), reported={"busbw_GBps": 441.0})
    (verdict,) = of(judged(tmp_path, [printed]), "all_reduce in a node")
    assert (verdict.word, verdict.measured) == ("fail", pytest.approx(441))


def test_an_import_without_hosts_has_its_nodes_from_its_ranks(tmp_path):
    rows = [row("all_reduce", 5.3, G, 24, nodes=0, scope="unknown")]
    told = judged(tmp_path, rows)
    assert of(told, "all_reduce over 3 nodes and more", "fail") and "8 a node" in told.notes[0]


def test_a_slow_all_to_all_fails_by_what_a_nic_carries(tmp_path):
    (verdict,) = of(judged(tmp_path, over_nodes("all_to_all", 34.17, sizes=(8,))), "all_to_all over nodes")
    assert verdict.word == "fail" and verdict.measured == pytest.approx(34.17 * 8 / 15)
    assert of(judged(tmp_path, over_nodes("all_to_all", 90.9, sizes=(1,))), "all_to_all over nodes", "pass")


def test_an_algorithm_that_nobody_saw_says_nothing_of_a_nic(tmp_path):
    rule = {"metric": "nic_GBps", "expected": 48.0, "scope": "mixed"}
    profile = check_profile(
        {"name": "x", "about": "x", "fabric": "h100-8x400g", "rule": [own(**{"scope": "mixed"}).rule[0].model_dump(
            by_alias=True, exclude_none=True) | rule]}, "x",
    )  # fmt: skip
    (verdict,) = judged(tmp_path, over_nodes("all_reduce", 380), profile).verdicts
    assert verdict.word == "error" and "not observed" in verdict.note
    (seen,) = judged(tmp_path, over_nodes("all_reduce", 380, seen="ring"), profile).verdicts
    assert seen.word == "pass" and seen.measured == pytest.approx(47.5)
