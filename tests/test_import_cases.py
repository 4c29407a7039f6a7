"""Sixty outputs of other tools as people posted them: what a correct reader gets from each (sources: data/cases/README.md)."""

from pathlib import Path

import pytest

from commbench.cli.import_view import told
from commbench.errors import MeasureError
from commbench.importers.found import Given
from commbench.importers.read import read_file
from commbench.results.metrics import busbw_GBps

CASES = Path(__file__).parent / "data" / "cases"
GIB, MIB = 2**30, 2**20


def case(number: str, **given):
    (path,) = CASES.glob(f"{number}-*")
    return read_file(path, Given(**given))


def one(number: str, **given):
    (test,) = case(number, **given).tests
    return test


def placed(test, in_place=False):
    return [s for s in test.samples if s.point.in_place == in_place]


def at(test, size, in_place=False):
    (found,) = [s for s in placed(test, in_place) if s.point.size_bytes == size]
    return found


def statuses(test):
    return {s.status for s in test.samples}


# number: tool, operation, table rows, ranks, (size of the peak, busbw out of place, in place), printed average
NCCL = {
    "01": ("nccl-tests", "all_reduce", 34, 8, (8 * GIB, 235.26, 235.03), 68.4048),
    "02": ("nccl-tests", "all_gather", 34, 8, (8 * GIB, 223.39, 230.07), 58.2651),
    "03": ("nccl-tests", "all_to_all", 34, 8, (8 * GIB, 224.31, 226.16), 58.6481),
    "06": ("nccl-tests", "reduce_scatter", 34, 8, (8 * GIB, 231.52, 231.25), 60.168),
    "10": ("nccl-tests", "all_reduce", 29, 16, (2 * GIB, 78.33, 78.33), None),
    "12": ("nccl-tests", "all_reduce", 32, 8, (16 * GIB, 483.05, 483.35), 156.742),
    "16": ("nccl-tests", "all_gather", 31, 16, (8 * GIB, 188.73, 188.9), 53.8932),
    "19": ("nccl-tests", "all_reduce", 5, 16, (16 * GIB, 471.22, 470.75), 464.075),
    "33": ("nccl-tests", "all_reduce", 10, 24, (32 * MIB, 29.5, 28.14), None),
    "35": ("nccl-tests", "all_gather", 1, 8, (4 * GIB, 129.05, 128.84), 128.942),
    "39": ("nccl-tests", "all_to_all", 2, 8, (64 * MIB, 20.628529, 20.60911), None),
    "40": ("rccl-tests", "all_reduce", 2, 4, (2048, 0.1581332859757086, 0.15163), None),
    "42": ("nccl-tests", "all_gather", 13, 2, (64 * MIB, 21.40, 21.50), 6.6972),
    "43": ("nccl-tests", "all_reduce", 6, 128, (131072, 2.15, 2.22), None),
    "45": ("nccl-tests", "all_reduce", 6, 24, (131072008, 96.45, 95.5), 84.8558),
    "48": ("nccl-tests", "reduce_scatter", 12, 8, (128 * MIB, 16.99, 16.98), None),
    "50": ("rccl-tests", "all_reduce", 4, 16, (16 * GIB, 360.98, 361.17), 142.652),
    "73": ("nccl-tests", "all_reduce", 3, 8, (256 * MIB, 208.98, 211.76), None),
    "77": ("nccl-tests", "all_reduce", 8, 2, (128 * MIB, 2.30, 2.31), 1.57614),
    "80": ("nccl-tests", "all_to_all", 2, 4, (16 * GIB, 627.69, 680.7), 381.478),
    "81": ("nccl-tests", "all_to_all", 7, 16, (8 * GIB, 34.17, 38.31), 7.39538),
}  # fmt: skip


@pytest.mark.parametrize("number", NCCL)
def test_a_table_of_nccl_tests(number):
    tool, op, rows, ranks, (size, out_of_place, in_place), average = NCCL[number]
    test = one(number)
    assert test.tool.split()[0] == tool
    assert (test.rows, len(test.samples)) == (rows, 2 * rows)
    assert {s.point.op for s in test.samples} == {op}
    assert {s.point.ranks for s in test.samples} == {ranks}
    assert at(test, size).reported["busbw_GBps"] == out_of_place
    assert at(test, size, True).reported["busbw_GBps"] == pytest.approx(in_place, rel=1e-4)
    assert test.facts["average_busbw_GBps"] == average


@pytest.mark.parametrize("number", [n for n in NCCL if n != "43"])
def test_busbw_computed_from_size_and_time_is_what_was_printed(number):
    for sample in one(number).samples:
        printed, computed = sample.reported["busbw_GBps"], busbw_GBps(sample)
        if computed and printed > 1:
            assert computed == pytest.approx(printed, rel=0.006)


def test_the_peaks_are_the_highest():
    for number, (_, _, _, _, (size, highest, _), _) in NCCL.items():
        if number not in ("45", "73"):  # 45: in the text as its peak, one row is a little higher in place
            best = max(placed(one(number)), key=lambda s: s.reported["busbw_GBps"])
            assert (best.point.size_bytes, best.reported["busbw_GBps"]) == (size, highest)


def test_an_error_column_of_na_is_not_a_pass():
    for number in ("01", "02", "03", "06", "47"):
        test = one(number)
        assert {s.wrong for s in test.samples} == {None} and statuses(test) == {"ok"}
        assert "no result was checked for wrong data" in test.notes


def test_rows_of_size_0_are_kept_apart():
    for number in ("02", "16"):
        empty = [s for s in placed(one(number)) if s.point.size_bytes == 0]
        assert len(empty) == 5 and len({s.point.id for s in empty}) == 5
    assert [s.point.params["requested_bytes"] for s in placed(one("02"))][:6] == [1, 2, 4, 8, 16, 32]
    assert len([s for s in placed(one("01")) if s.point.size_bytes == 0]) == 2
    assert not case("01").dropped and case("01").log_lines == 1


def test_all_gathers_size_is_the_total():
    for sample in placed(one("02")):
        assert sample.point.size_bytes == sample.point.count * 4 * 8
        assert sample.point.send_bytes * 8 == sample.point.size_bytes


def test_two_hosts_and_the_library_are_read_from_the_device_list():
    test = one("19")
    assert test.hosts == ["node01", "node02"] and len(test.ranks) == 16 and test.versions == {"nccl": "2.23.4+cuda12.6"}
    assert {s.point.nodes for s in test.samples} == {2}
    assert [gpu["name"] for gpu in test.nodes[0]["gpus"]] == ["NVIDIA H100 80GB HBM3"] * 8
    assert case("19").dropped["not understood"][:2] == (3, 1)  # the machine file


def test_a_prefix_within_the_row_and_a_row_of_one_half():
    file = case("33")
    assert at(file.tests[0], 64 * MIB).reported["busbw_GBps"] == 5.27
    assert sum(count for count, _, _ in file.dropped.values()) == 1  # the end of a row whose beginning is missing


@pytest.mark.parametrize("number", ["35", "42"])
def test_the_old_algbw_that_holds_the_factor_is_named_and_not_applied_twice(number):
    test = one(number)
    assert any("before 2020" in note for note in test.notes)
    for sample in test.samples:
        assert busbw_GBps(sample) == pytest.approx(sample.reported["busbw_GBps"], rel=0.005)


def test_a_failed_check_is_a_failed_check():
    test = one("35")
    assert statuses(test) == {"wrong"} and [s.error_max for s in test.samples] == [1.0, 1.0]
    test = one("73")
    assert [(s.status, s.error_max) for s in placed(test)] == [("ok", 2e-07), ("ok", 2e-07), ("wrong", 3.0)]
    assert at(test, 512 * MIB, True).error_max == 20.0
    assert "FAILED CHECK" in "\n".join(told(case("73")))


def test_a_rounding_error_is_no_count_of_wrong_values():
    test = one("43")
    assert statuses(test) == {"ok"} and {s.error_max for s in test.samples} == {1e-06}
    assert {s.wrong for s in test.samples} == {0}


def test_world_of_one_rank():
    test = one("37")
    assert test.rows == 1 and {s.point.op for s in test.samples} == {"all_to_all"}
    assert [s.wrong for s in test.samples] == [0, None]
    assert {busbw_GBps(s) for s in test.samples} == {None} and test.samples[1].reported["algbw_GBps"] == 43046.10
    assert any("one rank" in note for note in test.notes) and any("more than any memory" in note for note in test.notes)
    assert "highest busbw" not in "\n".join(told(case("37")))


def test_json_that_is_cut_gives_what_is_complete_and_says_where():
    test = one("39")
    assert at(test, 32 * MIB).reported["busbw_GBps"] == 19.648366
    assert test.cut == "line 9, character 653: the JSON is cut or damaged (Expecting value)"
    assert [s.wrong for s in test.samples] == [0, None, 0, None]  # ip_error is "N/A"


def test_json_lines_of_rccl():
    test = one("40")
    assert at(test, 1024).reported["busbw_GBps"] == 0.08006609623048194
    assert {s.wrong for s in test.samples} == {0}


def test_broadcast_with_warnings_in_its_header():
    test = one("47")
    assert test.rows == 1 and at(test, 8).samples_us == (45.82,)
    assert {(s.point.op, s.point.ranks, s.point.nodes, s.point.root) for s in test.samples} == {("broadcast", 2, 2, 0)}
    assert "2147483648" in test.cut and case("47").log_lines == 2 and test.versions == {"nccl": "2.9.6+cuda11.2"}


def test_two_ranks_on_one_device_are_named():
    test = one("77")
    assert test.tool == "nccl-tests 2.18.0" and test.versions == {"nccl": "2.29.7"}
    assert any("share one device" in note for note in test.notes)


def test_one_half_of_the_columns():
    test = one("78")
    assert (test.rows, len(test.samples)) == (1, 1) and test.facts["average_busbw_GBps"] == 68.6248
    assert at(test, 34359738368).reported["busbw_GBps"] == 68.66 and test.samples[0].point.ranks == 8


def test_a_floor_of_100_ms_comes_out_as_times():
    times = [s.samples_us[0] for s in placed(one("81"))]
    assert times[0] == 103114 and min(times) > 100_000
    assert at(one("81"), 128 * MIB).reported["busbw_GBps"] == 1.22


def test_reduce_with_a_slow_first_call():
    test = one("92")
    assert test.rows == 9 and [s.samples_us[0] for s in placed(test)][:2] == [33.99, 10.28]
    assert {(s.point.op, s.point.root, s.point.ranks) for s in test.samples} == {("reduce", 0, 0)}
    assert test.tool == "rccl-tests"  # by its file's name, for its text does not tell
    assert {s.point.ranks for s in one("92", ranks=2).samples} == {2}  # the factor of reduce does not tell it


@pytest.mark.parametrize(
    "number, line, words",
    [
        ("18", 5, "'XXXXX' stands where time should be"),
        ("75", 4, "a table header with no row below it (16 rank(s) are named)"),
        ("91", 11, "the row ends after 'sum' (1 rank(s) are named)"),
        ("94", 1, "not one job: 2 jobs"),
    ],
)
def test_a_file_without_a_result_names_its_first_odd_line(number, line, words):
    with pytest.raises(MeasureError, match="holds nothing that can be used") as error:
        case(number)
    assert f"line {line}: " in str(error.value) and words in str(error.value)


# number: (operation, rows, ranks, a size, its time)
OSU = {
    "51": [("reduce", 11, 192, 1024, 55.48)],
    "60": [("p2p_bw", 1, 2, 268435456, None), ("all_reduce", 27, 144, 268435456, 496306.98)],
    "65": [("all_reduce", 12, 96, 256, 6846.33)],
    "53": [("p2p_latency", 23, 2, 4194304, 8.94), ("all_to_all", 21, 0, 0, None)],
    "58": [("p2p_bw", 11, 2, 1024, None)],
    "62": [("all_gather", 14, 64, 64 * 8192, 434.72)],
}


@pytest.mark.parametrize("number", OSU)
def test_osu(number):
    tests = case(number).tests
    assert len(tests) == len(OSU[number])
    for test, (op, rows, ranks, size, time) in zip(tests, OSU[number], strict=True):
        assert (test.rows, {s.point.op for s in test.samples}) == (rows, {op})
        assert {s.point.ranks for s in test.samples} == {ranks}
        if time:
            assert at(test, size).samples_us == (time,)


def test_osu_statistics_and_tail():
    sample = at(one("51"), 1024)
    assert (sample.reported["min_us"], sample.reported["max_us"], sample.reported["iterations"]) == (
        24.05,
        134.61,
        1000,
    )
    (sample,) = one("64").samples
    assert sample.samples_us == (467.38,) and sample.point.op == "all_to_all_v"
    assert (sample.reported["p50_us"], sample.reported["p99_us"]) == (407.18, 634.30)
    assert at(one("65"), 256).reported["max_us"] == 7516.33


def test_osu_bandwidth_is_of_millions_of_bytes():
    assert at(one("58"), 1024).reported["bandwidth_GBps"] == pytest.approx(2.06814)
    first, second = case("60").tests
    assert first.samples[0].reported["bandwidth_GBps"] == pytest.approx(12.25416)
    assert {s.point.nodes for s in second.samples} == {4}  # -n 144 -N 36
    assert at(second, 32768).samples_us == (3214.49,) and at(second, 65536).samples_us == (160.17,)


def test_osu_block_sizes_become_whole_buffers_where_the_ranks_are_known():
    all_to_all = case("53").tests[1]
    assert {s.point.size_bytes for s in all_to_all.samples} == {0} and "--ranks" in all_to_all.notes[0]
    pair, known = case("53", ranks=16).tests
    assert {s.point.ranks for s in pair.samples} == {2}  # a ping-pong has two ranks, whatever the world has
    assert [s.point.size_bytes for s in known.samples] == [16 * s.point.params["block_bytes"] for s in known.samples]


def test_a_hang_is_told_by_where_it_stopped():
    assert one("62").cut.startswith("stops at 8192 B (line 20)")


def test_nccom():
    test = one("14")
    assert (test.rows, test.facts["average_busbw_GBps"]) == (17, 0.2346)
    best = max(test.samples, key=lambda s: s.reported["busbw_GBps"])
    assert (best.point.op, best.point.size_bytes, best.reported["busbw_GBps"]) == ("all_reduce", 524288, 2.80)
    assert test.samples[2].samples_us == (294.82,)


def test_all_reduce_bench_with_busbw_before_algbw():
    test = one("23")
    assert (test.rows, {s.point.ranks for s in test.samples}) == (20, {32})
    best = max(test.samples, key=lambda s: s.reported["busbw_GBps"])
    assert (best.point.size_bytes, best.reported["busbw_GBps"]) == (32 * MIB, 98.34)
    assert at(test, 16 * GIB, True).reported == {"algbw_GBps": 47.32, "busbw_GBps": 91.69}
    assert not any(s.samples_us for s in test.samples)


def test_ncclscout_pairs():
    test = one("21")
    assert [s.reported["busbw_GBps"] for s in test.samples] == [448.35, 450.33]
    assert [s.point.group for s in test.samples] == ["pair node01,node02", "pair node03,node01"]
    assert test.hosts == ["node01", "node02", "node03"]
    assert test.notes == ["tested more than once, as the partner of unpaired nodes: node01"]
    assert (test.facts["threshold_GBps"], test.facts["good_nodes"], test.facts["average_GBps"]) == (440.0, 3, 449.34)


def test_mpi_benchmarks_in_seconds():
    test = one("67")
    assert test.rows == 14 and {s.point.op for s in test.samples} == {"scatter_v"}
    last = test.samples[-1]
    assert last.point.params["block_bytes"] == 16384 and last.point.ranks == 2
    assert last.samples_us[0] == pytest.approx(1.762724423315376) and last.reported["iterations"] == 16384


def test_ucc_size_is_per_peer_and_min_is_the_least():
    test = one("68")
    assert (test.rows, {s.point.ranks for s in test.samples}) == (7, {8})
    last = at(test, 8 * 16777216)
    assert last.reported["busbw_GBps"] == 45.96 and busbw_GBps(last) == pytest.approx(45.96, rel=1e-3)
    assert (last.reported["lowest_busbw_GBps"], last.reported["highest_busbw_GBps"]) == (44.89, 46.83)


def test_deepspeed_prints_gigabits():
    test = one("89")
    found = [(s.point.op, s.point.size_bytes) for s in test.samples]
    assert [op for op, _ in found].count("broadcast") == 7 and found[-1][0] == "barrier"
    (largest,) = [s for s in test.samples if s.point.size_bytes == round(1.45 * GIB)]
    assert largest.reported["busbw_GBps"] == pytest.approx(11.46, abs=0.005) and largest.samples_us == (135560.0,)
    assert test.samples[0].reported.get("busbw_GBps") is None  # 0B


def test_perftest_megabytes_are_binary_and_two_ends_are_one_result():
    test = one("07")
    assert len(test.samples) == 1 and test.samples[0].point.size_bytes == 8388608
    assert test.samples[0].reported["bandwidth_GBps"] == pytest.approx(25.225, abs=0.001)
    assert any("both printed" in note for note in test.notes)


def test_perftest_json_that_is_none():
    test = one("55")
    assert test.samples[0].samples_us == (2.42,) and test.samples[0].point.op == "rdma_write_latency"
    assert any("no valid JSON (line 2" in note for note in test.notes)
    assert test.samples[0].reported["p99.9_us"] == 4.03


def test_perftest_gigabits_and_a_peak_that_was_not_measured():
    (sample,) = one("56").samples
    assert sample.point.size_bytes == 8 and sample.reported["bandwidth_GBps"] == pytest.approx(0.06)
    assert sample.reported["messages_per_s"] == 7498617.0 and "peak_GBps" not in sample.reported


def test_nvbandwidth_with_waived_tests():
    test = one("09")
    assert test.rows == 15 and len(test.facts["sums"]) == 15 and test.facts["waived"] == 17
    assert test.samples[-1].reported == {"latency_ns": 772.58} and len(test.samples) == 21
    assert not any("None" in s.point.op for s in test.samples)
    cells = [s.reported["bandwidth_GBps"] for s in test.samples if s.point.op == "host_to_device_memcpy_ce"]
    assert cells == [369.36, 269.33, 412.11, 323.36, 299.33, 312.11]


def test_nvbandwidth_that_is_cut():
    test = one("25")
    assert [s.reported["bandwidth_GBps"] for s in test.samples] == [359.05, 377.15, 175.38, 171.76]
    assert test.cut == "ends before the SUM of device_to_host_bidirectional_memcpy_ce"


def test_nvbandwidths_empty_diagonal_is_left_out():
    cells = [s.reported["bandwidth_GBps"] for s in one("31").samples]
    assert (len(cells), min(cells), max(cells)) == (56, 274.89, 276.76)


def paths(test):
    return {(s.point.params["first"], s.point.params["second"]): s.reported["path"] for s in test.samples}


def test_topologies():
    assert (one("26").facts["gpus"], one("26").facts["between_gpus"]) == (8, "NV18")
    assert [t.facts["between_gpus"] for t in case("28").tests] == ["NV2", "PHB"]
    mesh = paths(one("36"))
    assert (mesh["GPU0", "GPU3"], mesh["GPU0", "GPU4"]) == ("NV2", "SYS") and one("36").facts[
        "between_gpus"
    ] == "not uniform"
    a800 = one("82")
    assert (a800.facts["gpus"], a800.facts["nics"], a800.facts["between_gpus"]) == (8, 8, "NV8")
    assert {s.reported["nvlinks"] for s in a800.samples if s.point.params["kind"] == "GPU-GPU"} == {8}
    near = [pair for pair, path in paths(a800).items() if path == "PIX" and pair[0] == "GPU2"]
    assert near == [("GPU2", "NIC2"), ("GPU2", "NIC3")]
    pcie = paths(one("84"))
    assert [pair for pair, path in pcie.items() if path == "PHB"] == [("GPU6", "NIC0"), ("GPU6", "NIC1")]
    assert one("84").facts["between_gpus"] == "SYS"


def test_nccls_topology_dump():
    test = one("29")
    assert (test.facts["gpus"], test.facts["nets"], test.facts["sm"], test.facts["nvlinks_per_gpu"]) == (
        8,
        16,
        ["90"],
        18,
    )
    gpu = test.samples[0]
    assert gpu.reported["nvlinks"] == 18 and gpu.reported["sm"] == 90
    assert test.samples[8].reported["speed_GBps"] == 22.5  # 180000 Mbit/s


def test_deepeps_tables():
    normal, low_latency = case("32").tests
    assert (normal.rows, low_latency.rows) == (4, 6)
    rates = [(s.point.op, s.point.ranks, s.reported["bandwidth_GBps"], s.point.params["link"]) for s in normal.samples]
    assert rates[:2] == [("moe_dispatch", 8, 153.0, "nvlink"), ("moe_combine", 8, 158.0, "nvlink")]
    assert rates[-2:] == [("moe_dispatch", 64, 51.0, "rdma"), ("moe_combine", 64, 50.0, "rdma")]
    first, last = low_latency.samples[0], low_latency.samples[-2]
    assert (first.samples_us, first.reported["bandwidth_GBps"]) == ((77.0,), 98.0)
    assert (last.point.ranks, last.samples_us) == (256, (194.0,))


def test_deepep_of_some_ranks():
    test = one("69")
    assert [s.point.params["rank"] for s in test.samples] == [1, 2, 3, 4, 6, 0]
    rates = [s.reported["bandwidth_GBps"] for s in test.samples]
    assert (min(rates), max(rates), test.samples[0].samples_us) == (42.22, 42.25, (521.97,))
    test = one("72")
    assert len(test.samples) == 7 and {s.point.ranks for s in test.samples} == {16}
    assert {s.reported["scale_out_GBps"] for s in test.samples} == {115.0, 118.0}
    assert len({s.point.size_bytes for s in test.samples}) == 7 and "differ from rank to rank" in test.notes[1]


def test_deepeps_best_lines():
    tests = case("71").tests
    best = [s for test in tests for s in test.samples]
    assert len(best) == 9 and len(tests) == 3
    assert best[0].reported["rdma_GBps"] == 4.47 and best[0].reported["nvlink_GBps"] == 9.0
    assert [s.reported["nvlink_GBps"] for s in tests[1].samples] == [326.56, 344.45, 332.57]


def test_attention_kernels_that_did_not_run_are_no_zeros():
    test = one("86")
    assert test.rows == 4 and statuses(test) == {"ok", "skip"}
    assert {s.point.params["method"] for s in test.samples if s.status == "skip"} == {"Triton"}
    first = test.samples[0]
    assert (first.point.params["method"], first.point.params["seqlen"], first.reported["TFLOPS"]) == (
        "Flash2",
        "512",
        84.08,
    )
    test = one("87")
    assert (test.rows, len(test.samples)) == (3, 15)
    fav3 = [s for s in test.samples if s.point.params["method"] == "Fav3"]
    assert (fav3[0].reported["TFLOPS"], fav3[0].samples_us) == (120.1, (572.0,))


# number: for each test (operation or the first of them, ranks, nodes), 0 where neither the file nor its name tells.
WHERE = {
    "01": [("all_reduce", 8, 1)], "02": [("all_gather", 8, 1)], "03": [("all_to_all", 8, 1)],
    "06": [("reduce_scatter", 8, 1)], "07": [("rdma_write_bw", 2, 0)], "09": [("all_to_host_bidirectional_memcpy_ce", 2, 1)],
    "10": [("all_reduce", 16, 2)], "12": [("all_reduce", 8, 1)], "14": [("all_reduce", 0, 0)],
    "16": [("all_gather", 16, 2)], "19": [("all_reduce", 16, 2)], "21": [("all_reduce", 0, 2)],
    "23": [("all_reduce", 32, 4)], "25": [("device_to_host_bidirectional_memcpy_ce", 2, 1)], "26": [("topology", 2, 1)],
    "28": [("topology", 2, 1)] * 2, "29": [("topology", 1, 1)], "31": [("device_to_device_memcpy_write_ce", 2, 1)],
    "32": [("moe_combine", 64, 8), ("moe_combine", 256, 32)], "33": [("all_reduce", 24, 3)], "35": [("all_gather", 8, 1)],
    "36": [("topology", 2, 1)], "37": [("all_to_all", 1, 1)], "39": [("all_to_all", 8, 1)], "40": [("all_reduce", 4, 1)],
    "42": [("all_gather", 2, 1)], "43": [("all_reduce", 128, 16)], "45": [("all_reduce", 24, 3)], "47": [("broadcast", 2, 2)],
    "48": [("reduce_scatter", 8, 1)], "50": [("all_reduce", 16, 2)], "51": [("reduce", 192, 0)],
    "53": [("p2p_latency", 2, 0), ("all_to_all", 0, 0)], "55": [("rdma_write_latency", 2, 0)], "56": [("rdma_write_bw", 2, 0)],
    "58": [("p2p_bw", 2, 0)], "60": [("p2p_bw", 2, 2), ("all_reduce", 144, 4)], "62": [("all_gather", 64, 2)],
    "64": [("all_to_all_v", 0, 0)], "65": [("all_reduce", 96, 0)], "67": [("scatter_v", 2, 0)], "68": [("all_to_all", 8, 1)],
    "69": [("moe_dispatch_combine", 16, 2)], "71": [("moe_combine", 0, 0), ("moe_combine", 0, 1), ("moe_combine", 0, 0)],
    "72": [("moe_expanded_dispatch", 16, 2)], "73": [("all_reduce", 8, 1)], "77": [("all_reduce", 2, 1)],
    "78": [("all_reduce", 8, 1)], "80": [("all_to_all", 4, 1)], "81": [("all_to_all", 16, 2)], "82": [("topology", 2, 1)],
    "84": [("topology", 2, 1)], "86": [("attention_backward", 1, 1)], "87": [("attention_forward", 1, 1)],
    "89": [("barrier", 0, 0)], "92": [("reduce", 0, 0)],
}  # fmt: skip


@pytest.mark.parametrize("number", WHERE)
def test_where_it_was_measured(number):
    """The most ranks and nodes of each test. What is not in the text but assumed, or in the file's name, is said."""
    tests = case(number).tests
    points = [[s.point for s in test.samples] for test in tests]
    found = [(min(p.op for p in own), max(p.ranks for p in own), max(p.nodes for p in own)) for own in points]
    assert found == WHERE[number]


def test_every_case_is_read_or_refused():
    assert {path.name[:2] for path in CASES.glob("*.txt")} - set(WHERE) == {"18", "75", "91", "94"}


@pytest.mark.parametrize(
    "number, words",
    [
        ("16", "no host is named; 16 GPUs are taken to be in 2 nodes of 8"), ("33", "24 GPUs are taken to be in 3 nodes of 8"),
        ("10", "the file's name says 2 node(s)"), ("23", "the file's name says 4 node(s)"), ("72", "taken to be in 2 nodes of 8"),
        ("51", "the file's name says 192 rank(s)"), ("69", "the file's name says 16 rank(s)"),
        ("14", "busbw / algbw allows 52 to 113"), ("64", "give it with --ranks"), ("71", "give it with --ranks"),
        ("45", "lines were taken out of the file at `...`"), ("45", "but 4 device(s) are listed"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_text_is_said(number, words):
    assert any(words in note for test in case(number).tests for note in test.notes)


def test_what_the_index_tells_and_no_file_does():
    """384 ranks of case 64, 64 of case 14, 2 of case 92: the caller knows."""
    (sample,) = one("64", ranks=384).samples
    assert (sample.point.ranks, sample.point.size_bytes) == (384, 384 * 4096)
    assert {s.point.ranks for s in one("14", ranks=64).samples} == {64}
    pair, everyone = case("53", ranks=16, nodes=4).tests
    assert {s.point.ranks for s in pair.samples} == {2} and {s.point.nodes for s in everyone.samples} == {4}


def test_further_facts_of_the_index():
    assert one("37").facts["average_busbw_GBps"] == 0
    assert max(s.reported["busbw_GBps"] for s in placed(one("42"), True)) == 21.86
    assert {s.reported["iterations"] for s in case("60").tests[1].samples} == {10}
    assert [gpu["name"] for gpu in one("01").nodes[0]["gpus"]] == ["A100-SXM4-40GB"] * 8
    assert one("26").facts["numa_nodes"] == 2 and "numa_nodes" not in case("28").tests[0].facts
    assert one("58").samples[0].point.params == {"pairs": 1, "window": 64}
    assert {s.point.params["type"] for s in case("71").tests[1].samples} == {"intranode"}


def test_all_sixty_are_here():
    assert len(list(CASES.glob("*.txt"))) == 60
