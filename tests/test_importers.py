"""Importers on the kinds of output that a single example does not show: prefixes, orders, accidents, units."""

import json
import re

import pytest

from commbench.errors import MeasureError, UsageError
from commbench.importers import json_text
from commbench.importers.cells import listed, number, sized, whole
from commbench.importers.columns import column_names
from commbench.importers.found import Given
from commbench.importers.launchers import launched
from commbench.importers.nccl_infer import ranks_of_factors
from commbench.importers.osu import operation
from commbench.importers.read import read_file, read_lines
from commbench.importers.text import clean, lines_of

HEADER = """#
# Using devices
#  Rank  0 Group  0 Pid 19422 on node01 device  0 [0x0f] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 19423 on node01 device  1 [0x2d] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid 19431 on node02 device  0 [0x0f] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid 19432 on node02 device  1 [0x2d] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """  1073741824     268435456     float     sum      -1   4478.8  239.74  359.61      0   4463.7  240.55  360.82      0
  2147483648     536870912     float     sum      -1   8722.7  246.20  369.30      0   8717.9  246.33  369.49      0
"""
FOOTER = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 364.805
#
"""
TABLE = HEADER + ROWS + FOOTER
LOG = "node01:69:107 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def read(text, **given):
    return read_lines(lines_of(text), Given(**given)).tests


def each_line(change, text=TABLE):
    return "".join(change(line) for line in text.splitlines(keepends=True))


def as_expected(tests):
    (test,) = tests
    figures = [(s.point.size_bytes, s.point.in_place, s.samples_us[0], s.reported["busbw_GBps"]) for s in test.samples]
    assert figures == [
        (1073741824, False, 4478.8, 359.61), (1073741824, True, 4463.7, 360.82),
        (2147483648, False, 8722.7, 369.30), (2147483648, True, 8717.9, 369.49),
    ]  # fmt: skip
    assert {(s.point.op, s.point.ranks, s.point.nodes, s.wrong, s.status) for s in test.samples} == {
        ("all_reduce", 4, 2, 0, "ok")
    }
    return test


PREFIXES = {
    "srun -l": "0: ", "srun -l, padded": " 0: ", "srun -l, zeros": "00: ", "mpiexec -prepend-rank": "[0] ",
    "--tag-output": "[1,0]<stdout>:", "--tag-output of Open MPI 5": "[prterun-node01-7@1,0]<stdout>: ",
    "--timestamp-output": "Mon Apr 14 10:00:00 2025[1,0]<stdout>:", "kubectl --prefix": "[pod/nccl-launcher-x/main] ",
    "compose": "worker-0  | ", "pdsh": "node01: ", "kubelet": "2024-05-01T12:00:00.123456789Z stdout F ",
    "a time stamp": "[2025-03-01 12:00:00] ", "torchrun": "[default0]:", "a quotation": "> ", "a list": "- ",
    "a time and a tag": "2025-03-01T12:00:00Z [1,0]<stdout>: ", "colours": "\x1b[32m", "a byte order mark": "\ufeff",
}  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_prefixes_of_lines(prefix):
    as_expected(read(each_line(lambda line: prefix + line)))


WIDTHS = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "tabs": lambda text: re.sub(" {2,}", "\t", text),
    "one space": lambda text: re.sub(" +", " ", text),
    "hard spaces": lambda text: text.replace("  ", "\xa0\xa0"),
    "wide": lambda text: text.replace("  ", "      "),
    "no hash": lambda text: text.replace("# ", "  ").replace("#\n", "\n"),
    "escaped hash": lambda text: re.sub("^#", r"\\#", text, flags=re.MULTILINE),
    "a true minus": lambda text: text.replace("-1", "\u22121"),
    "newest header": lambda text: text.replace(" #wrong", "  #wrong"),
}


@pytest.mark.parametrize("change", WIDTHS.values(), ids=WIDTHS)
def test_widths_and_characters(change):
    as_expected(read(change(TABLE)))


def halves(line):
    return re.match(r"(\s+\d+\s+\d+\s+float\s+sum\s+-1)((?:\s+\S+){4})(.*)", line)


CUTS = {
    "after the root": lambda m: f"{m[1]}{LOG}{m[2]}{m[3]}\n",
    "twice": lambda m: f"{m[1]}{LOG}{m[2]}{LOG}{m[3]}\n",
    "several lines": lambda m: f"{m[1]}{LOG}{LOG}{LOG}{m[2]}{m[3]}\n",
    "after the size": lambda m: m[1][:12] + LOG + m[1][12:] + m[2] + m[3] + "\n",
    "a stamped line": lambda m: f"{m[1]}[2025-07-01 10:00:00] {LOG}{m[2]}{m[3]}\n",
    "a host of digits": lambda m: f"{m[1]}{LOG.replace('node01', '10-0-0-1')}{m[2]}{m[3]}\n",
    "a warning": lambda m: f"{m[1]}node01:7:8 [0] misc/ibvwrap.cc:63 NCCL WARN no libibverbs\n{m[2]}{m[3]}\n",
}  # fmt: skip


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_rows_that_log_lines_cut(cut):
    text = each_line(lambda line: cut(m) if (m := halves(line)) else line)
    as_expected(read(LOG.replace("node01", "10-0-0-1") + text))


MIDWAY = {
    "[0]": "[0]", "[1,0]<stdout>:": "[1,0]<stdout>:", "0: ": "0: ",
}  # fmt: skip


@pytest.mark.parametrize("tag", MIDWAY.values(), ids=MIDWAY)
def test_tags_within_a_row(tag):
    as_expected(
        read(each_line(lambda line: tag + (f"{m[1]}{tag}{m[2]}{tag}{m[3]}\n" if (m := halves(line)) else line)))
    )


def test_columns_are_found_by_name_in_any_order():
    order = [0, 1, 2, 3, 4, 7, 6, 5, 8, 11, 10, 9, 12]

    def reordered(line):
        cells = line.lstrip("#").split()
        row = len(cells) == 13 and (cells[0] == "size" or cells[0].isdigit())
        return (("# " if cells[0] == "size" else "") + "  ".join(cells[i] for i in order) + "\n") if row else line

    as_expected(read(each_line(reordered)))


def test_further_columns_of_rccl_and_their_algorithm():
    def wider(line):
        if "count" in line:
            return line.rstrip() + "    algo    proto    nchannels\n"
        return line.rstrip() + "    Ring    Simple    64\n" if halves(line) else line

    test = as_expected(read(each_line(wider)))
    assert {(s.algorithm_seen, s.protocol_seen) for s in test.samples} == {("ring", "simple")}


def test_the_algorithm_that_the_log_tells_stands_in_the_row():
    tuned = "node01:69:107 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}\n"
    test = as_expected(read(HEADER + tuned + ROWS))
    assert [s.algorithm_seen for s in test.samples] == ["nvlstree", "nvlstree", "not observed", "not observed"]


def test_in_place_alone():
    text = re.sub("out-of-place +", "", HEADER).replace("     time   algbw   busbw #wrong\n", "\n")
    (test,) = read(text + "  1073741824     268435456     float     sum      -1   4478.8  239.74  359.61      0\n")
    assert [s.point.in_place for s in test.samples] == [True]


def test_the_half_that_the_header_names_first():
    swapped = HEADER.replace(
        "out-of-place                       in-place", "in-place                       out-of-place"
    )
    (test,) = read(swapped + ROWS)
    assert [(s.point.in_place, s.samples_us[0]) for s in test.samples[:2]] == [(False, 4463.7), (True, 4478.8)]


def test_a_row_that_ends_too_early_is_named():
    for end in (-30, -60, -90, -105):
        (test,) = read(HEADER + ROWS[:end])
        assert test.rows == 1 and test.cut.startswith("line 12: the row ends after") and "1073741824 B" in test.cut


def test_wrong_data():
    (test,) = read(TABLE.replace("360.82      0", "360.82     17"))
    assert [(s.status, s.wrong) for s in test.samples] == [("ok", 0), ("wrong", 17), ("ok", 0), ("ok", 0)]
    (test,) = read(TABLE.replace("360.82      0", "360.82  1e+06"))
    assert test.samples[1].wrong == 1_000_000


def test_a_footer_that_failed_fails_rows_that_do_not_show_it():
    (test,) = read(TABLE.replace("values : 0 OK", "values : 3 FAILED"))
    assert {s.status for s in test.samples} == {"wrong"} and "line 13: Out of bounds values : 3" in test.samples[
        0
    ].reason


def test_a_unit_of_time_is_taken_from_the_header_and_one_that_is_mixed_up_is_said():
    milliseconds = ROWS.replace("4478.8", "4.4788").replace("4463.7", "4.4637").replace("8722.7", "8.7227")
    milliseconds = milliseconds.replace("8717.9", "8.7179")
    as_expected(read(HEADER.replace("(us)", "(ms)") + milliseconds))
    (test,) = read(HEADER + milliseconds)
    assert any("in 4 of 4 results (typically 0.001 times it)" in note for note in test.notes)


def test_a_figure_that_contradicts_the_others_is_damage():
    (test,) = read(TABLE.replace("8717.9", "1717.9"))
    assert [s.status for s in test.samples] == ["ok", "ok", "ok", "error"]
    assert "line 12" in test.samples[3].reason and not test.samples[3].samples_us


def one_rank(pid):
    head = HEADER.split("#  Rank")[0] + f"#  Rank  0 Group  0 Pid {pid} on node01 device  0 [0x0f] NVIDIA H100\n#\n"
    head += "".join(HEADER.splitlines(keepends=True)[-3:])
    row = "        {0}             {1}     float     sum      -1     5.{2}    0.00    0.00      0     0.30    0.03    0.00      0\n"
    return head + "".join(row.format(size, size // 4, pid) for size in (1024, 2048, 4096)) + FOOTER


@pytest.mark.parametrize("joined", ["pasted", "interleaved", "rows only"])
def test_sixteen_jobs_of_one_rank_are_not_one_job(joined):
    jobs = [one_rank(pid) for pid in range(10, 26)]
    lines = ["".join(same) for same in zip(*(job.splitlines(keepends=True) for job in jobs))]
    text = {"pasted": "".join(jobs), "interleaved": "".join(lines), "rows only": "".join(lines[-6:-3])}[joined]
    with pytest.raises(MeasureError, match="not one job: 16 jobs"):
        read(text)


def test_runs_one_after_the_other_are_apart():
    first, second = read(TABLE + TABLE.replace("node0", "node1"))
    assert (first.hosts, second.hosts) == (["node01", "node02"], ["node11", "node12"])
    first, second = read(
        TABLE + HEADER.partition("# ")[2][-400:] + ROWS.replace("sum      -1", "none     -1"), op="all_reduce"
    )
    assert second.hosts == []  # a table without its own list of devices says nothing of its hosts


def test_a_file_of_several_tools():
    osu = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4   1.11\n8   1.20\n"
    topo = "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      NV18     0-23            0\nGPU1    NV18      X      0-23            0\n"
    tools = [test.tool.split()[0] for test in read("prose\n" + topo + TABLE + osu + "more prose\n")]
    assert tools == ["nvidia-smi", "nccl-tests", "OSU"]


def test_ranks_from_a_command_line_where_the_factor_does_not_tell():
    row = "   8388608       2097152     float    none       0    100.0   83.89   83.89      0    100.0   83.89   83.89      0\n"
    (test,) = read("$ mpirun -np 32 -N 8 ./build/broadcast_perf -b 8M -e 8M -g 1\n" + HEADER[-330:] + row)
    assert {(s.point.op, s.point.ranks, s.point.nodes) for s in test.samples} == {("broadcast", 32, 4)}


def test_a_collective_that_cannot_be_told_must_be_named():
    row = "   8388608       1048576     float    none      -1    100.0   83.89   41.94    N/A    100.0   83.89   41.94    N/A\n"
    with pytest.raises(MeasureError, match="all_gather or all_to_all; say which with --op"):
        read(row)
    (test,) = read(row, op="all_to_all")
    assert {(s.point.op, s.point.ranks) for s in test.samples} == {("all_to_all", 2)}


@pytest.mark.parametrize(
    "command, expected",
    [
        ("mpirun -n 144 -N 36 -x A=b osu_allreduce -x 10 -i 10", (144, 4)),
        ("$ srun -n64 -N2 -t00:10:00 --exclusive osu_allgather", (64, 2)),
        ("srun --nodes=4 --ntasks-per-node=8 all_reduce_perf -n 20", (32, 4)),
        ("mpirun --map-by ppr:8:node -np 16 ./all_reduce_perf", (16, 2)),
        ("/usr/bin/mpirun -np 8 ./all_reduce_perf -n 100", (8, 0)),
        ("./all_reduce_perf -n 100 -g 8", (0, 0)),
        ("srun: job 1416696 queued", (0, 0)),
        ("mpirun -np 99999999999999 x", (0, 0)),
        ("running on 8 nodes", (0, 0)),
    ],
)
def test_command_lines(command, expected):
    assert launched(command) == expected


RESULT = {
    "size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
    "out_of_place": {"time": 10.0, "alg_bw": 0.1024, "bus_bw": 0.1792, "nwrong": 0.0},
    "in_place": {"time": 9.0, "alg_bw": 0.113778, "bus_bw": 0.199111, "nwrong": None},
    "experiment_name": "all_reduce_perf", "out_of_place_per_iter": {"times_us": [9.0, 10.0, 11.0]},
}  # fmt: skip
DEVICES = [
    {
        "rank": i,
        "group": 0,
        "pid": 1,
        "hostname": "n1",
        "device": i,
        "device_hex": "0000:10:00",
        "device_info": "NVIDIA H100",
    }
    for i in range(8)
]
DOCUMENT = {
    "version": 3, "args": ["/opt/all_reduce_perf", "-g", "8"], "env": ["TOKEN=secret"], "nccl_version": 22807,
    "config": {"warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "devices": DEVICES},
    "results": [RESULT, RESULT | {"size": 2048, "count": 512, "out_of_place": {"time": 10.0, "alg_bw": 0.2048, "bus_bw": 0.3584, "nwrong": 3.0},
                          "in_place": {"time": 10.0, "alg_bw": 0.2048, "bus_bw": 0.3584, "nwrong": None}}],
    "out_of_bounds": {"count": 1, "okay": "false"}, "average_bus_bandwidth": {"bandwidth": 0.2, "okay": "unchecked"},
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_nccl_tests_json(indent):
    (test,) = read(json.dumps(DOCUMENT, indent=indent))
    assert [(s.status, s.wrong) for s in test.samples] == [("ok", 0), ("ok", None), ("wrong", 3), ("ok", None)]
    assert test.samples[0].samples_us == (9.0, 10.0, 11.0) and test.samples[0].point.over_ranks == "max"
    assert {(s.point.ranks, s.point.nodes) for s in test.samples} == {(8, 1)} and test.hosts == ["n1"]
    assert "secret" not in repr(test) and test.versions == {"nccl": "2.28.7"}


def test_json_that_is_cut_keeps_what_is_complete():
    text = json.dumps(DOCUMENT)
    (test,) = read(text[: text.index('"size": 2048') + 40])
    assert test.rows == 1 and test.cut.startswith("line 1, character ")
    with pytest.raises(MeasureError, match="line 1, character .* nothing complete stands before it"):
        read(text[: text.index('"results"') + 80])


def test_json_of_others_is_dropped_and_does_not_swallow_a_table():
    as_expected(read('{"loss": 1.5}\n{\n' + TABLE))
    with pytest.raises(MeasureError, match="JSON of no tool that is known"):
        read('{"loss": 1.5}\n')


def test_deep_json_is_refused():
    (document,) = json_text.documents(lines_of("[{" + "[" * 100_000))
    assert document.data is None and document.fault


def test_rccl_records_as_one_list():
    record = {"#wrong": "0", "algBw": 0.0533, "busBw": 0.08, "gpus": 4, "inPlace": 0, "name": "AllReduce", "redop": "sum",
              "size": 1024, "time": 19.2, "type": "float"}  # fmt: skip
    for text in (
        json.dumps([record, record | {"inPlace": 1}]),
        json.dumps([record, record | {"inPlace": 1}], indent=2),
    ):
        (test,) = read(text)
        assert [(s.point.ranks, s.point.in_place) for s in test.samples] == [(4, False), (4, True)]


def test_nvbandwidth_json():
    cases = [
        {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 552.0,
         "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
         "bandwidth_matrix": [["N/A", "276.1"], ["275.9", "N/A"]]},
        {"name": "multinode_x", "status": "Waived"},
    ]  # fmt: skip
    (test,) = read(json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": cases}}, indent=3))
    assert [(s.status, s.point.op) for s in test.samples][-1] == ("skip", "multinode_x")
    assert [s.reported["bandwidth_GBps"] for s in test.samples[:2]] == [276.1, 275.9]


def test_nvbandwidth_sum_that_does_not_add_up():
    text = "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n   0   1\n 0 50.0 50.1\nSUM host_to_device_memcpy_ce {}\n"
    (test,) = read(text.format("100.10"))
    assert test.notes == []
    (test,) = read(text.format("200.00"))
    assert "line 5: the SUM of host_to_device_memcpy_ce is 200" in test.notes[0]


PERFTEST = " RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : {0}\n #bytes     #iterations    BW peak[{1}]    BW average[{1}]   MsgRate[Mpps]\n 65536      5000             {2}            {2}             0.7\n"


@pytest.mark.parametrize(
    "unit, value, GBps", [("MB/sec", "1000.00", 1.048576), ("MiB/sec", "1000.00", 1.048576), ("Gb/sec", "8.00", 1.0)]
)
def test_perftest_units(unit, value, GBps):
    (test,) = read(PERFTEST.format("mlx5_0", unit, value))
    assert test.samples[0].reported["bandwidth_GBps"] == pytest.approx(GBps)


def test_perftest_of_two_cards_are_two_results_and_a_negative_one_is_none():
    tests = read(PERFTEST.format("mlx5_0", "Gb/sec", "380.1") + PERFTEST.format("mlx5_1", "Gb/sec", "190.0"))
    assert [t.samples[0].reported["bandwidth_GBps"] for t in tests] == [47.5125, 23.75]
    with pytest.raises(MeasureError, match="line 4 .* holds no number above 0"):
        read(PERFTEST.format("mlx5_0", "Gb/sec", "-12.3"))


@pytest.mark.parametrize("bandwidth, rate, GBps", [(372.5, 0.710487, 46.5625), (44404.0, 0.710464, 46.561)])
def test_perftest_json_tells_its_unit_by_the_message_rate(bandwidth, rate, GBps):
    data = {
        "test_info": {"test": "RDMA_Write_BW_Test"},
        "results": {"MsgSize": 65536, "BW_average": bandwidth, "MsgRate": rate},
    }
    for indent in (None, 0):
        (test,) = read(json.dumps(data, indent=indent))
        assert test.samples[0].reported["bandwidth_GBps"] == pytest.approx(GBps, rel=1e-4)


def test_osu_columns():
    text = "# OSU MPI Non-blocking Allreduce Latency Test v7.4\n# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n4   20.11   10.01   10.00   12.50\n"
    (test,) = read(text, ranks=4)
    assert test.samples[0].samples_us == (20.11,) and test.samples[0].reported["overlap_percent"] == 12.5
    assert test.samples[0].point.params == {"nonblocking": True}
    (test,) = read("# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)   Iterations\n   3.21   1000\n", ranks=4)
    assert (test.samples[0].point.op, test.samples[0].samples_us) == ("barrier", (3.21,))
    (test,) = read(
        "# OSU MPI Allreduce Latency Test v7.4\n# Size   Avg Latency(us)   Validation\n4  1.1  Pass\n8  1.2  Fail\n"
    )
    assert [(s.status, s.wrong) for s in test.samples] == [("ok", 0), ("wrong", None)]


@pytest.mark.parametrize(
    "title, op",
    [
        ("Latency", "p2p_latency"), ("Bandwidth", "p2p_bw"), ("Bi-Directional Bandwidth", "p2p_bibw"),
        ("Multi-threaded Latency", "p2p_latency"), ("Reduce_scatter_block Latency", "reduce_scatter"),
        ("Non-blocking All-to-All Latency", "all_to_all"), ("Broadcast Persistent Latency", "broadcast"),
        ("Allgatherv Latency", "all_gather_v"), ("Barrier Latency", "barrier"),
    ],
)  # fmt: skip
def test_osu_titles(title, op):
    assert operation(title)[0] == op


def test_deepspeeds_benchmark_and_gigabytes():
    text = "---- Performance of all_reduce on 8 devices ------\nSize (Bytes)   Description   Duration   Throughput (Gbps)   BusBW (Gbps)\n-----\n1.0 GB    268435456x4   4.0 ms   4294.967   3758.096\n"
    (test,) = read(text)
    sample = test.samples[0]
    assert (sample.point.size_bytes, sample.point.ranks, sample.samples_us) == (2**30, 8, (4000.0,))
    assert sample.reported["busbw_GBps"] == pytest.approx(469.762)
    (test,) = read(text.replace("Gbps", "GBps"))
    assert test.samples[0].reported["busbw_GBps"] == pytest.approx(3758.096)


def test_xml_that_declares_entities_is_refused_and_cut_xml_is_named():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n<system><cpu><pci><gpu dev="0" sm="90"/></pci></cpu></system>\n'
    with pytest.raises(MeasureError, match="line 1: the XML declares a document type or an entity, which is refused"):
        read(bomb)
    with pytest.raises(MeasureError, match="refused"):
        read('<?xml version="1.0"?>\n' + bomb)
    (test,) = read('<system version="1">\n<cpu numaid="0">\n<pci busid="0:1">\n<gpu dev="0" sm="90">\n')
    assert test.cut == "ends inside <gpu>" and test.samples[0].reported["sm"] == 90
    with pytest.raises(MeasureError, match="too deep or too large"):
        read("<system>" + "<pci>" * 100 + "\n")


def test_a_topology_whose_directions_differ():
    text = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tSYS\t X \n"
    with pytest.raises(MeasureError):
        read(text)


def test_numbers():
    assert (number("1e-06"), number("12."), number("0")) == (1e-06, 12.0, 0.0)
    for text in ("-1", "nan", "inf", "1e999", "0x10", "", "1_000", "9" * 40, "1,,5", "1,2,3", "XXX.XX"):
        assert number(text) is None
    for text, value in {"1,5": 1.5, "1,048,576": 1048576, "1.048.576": 1048576, "1.234,50": 1234.5, "1,2e-05": 1.2e-05,
                        "1,234.5": 1234.5, "12,345": 12345, "0,710487": 0.710487}.items():  # fmt: skip
        assert number(text) == value
    assert (whole("1,048,576"), whole("1.048.576"), whole("1,5")) == (1048576, 1048576, None)
    assert (whole("12"), whole("-1"), whole("1.0"), whole("9" * 30)) == (12, None, None, None)
    assert (sized("32KiB"), sized("1.45 GB"), sized("512B"), sized("10.0 KB")) == (32768, 1556925645, 512, 10240)
    assert (sized("x GB"), sized("-1 GB"), sized("1e9"), listed(True), listed("12.5"), listed(-1)) == (
        None,
        None,
        None,
        None,
        12.5,
        None,
    )


def test_column_names():
    assert column_names("# Size   P50 Tail Lat(us)  Iterations", ("Size", "Iterations")) == [
        "Size",
        "P50 Tail Lat(us)",
        "Iterations",
    ]


def test_ranks_that_factors_allow():
    assert ranks_of_factors("all_reduce", [(1.7499, 1.7501)] * 3) == (8, 8)
    assert ranks_of_factors("all_gather", [(0.9374, 0.9376), (0.1, 0.2)] + [(0.93, 0.94)] * 8) == (
        16,
        16,
    )  # one is damaged
    assert ranks_of_factors("all_reduce", [(1.97, 1.99)])[0] < 128 < ranks_of_factors("all_reduce", [(1.97, 1.99)])[1]
    assert ranks_of_factors("broadcast", [(1.0, 1.0)]) == (1, 131_072)


def test_lines_without_what_stands_around_them():
    assert clean("[1,0]<stdout>:  8   2[1,0]<stdout>:  5.1\r\n") == "  8   2   5.1"
    assert clean(" 3%\r 50%\r100% done") == "100% done"
    assert clean("\x1b[1;32mok\x1b[0m") == "ok"


def test_files_that_are_no_text(tmp_path):
    for name, data, why in [
        ("a.gz", b"\x1f\x8b\x08\x00rest", "compressed"), ("b.bin", bytes(range(256)) * 40, "no text"),
        ("empty.txt", b"", "it is empty"), ("random.txt", bytes(range(128, 256)) * 20, "not understood"),
    ]:  # fmt: skip
        (tmp_path / name).write_bytes(data)
        with pytest.raises(MeasureError, match=why):
            read_file(tmp_path / name, Given())
    with pytest.raises(UsageError, match="does not exist"):
        read_file(tmp_path / "none", Given())
    with pytest.raises(UsageError, match="is a folder"):
        read_file(tmp_path, Given())
    (tmp_path / "utf16.txt").write_bytes(TABLE.encode("utf-16"))
    as_expected(read_file(tmp_path / "utf16.txt", Given()).tests)


def test_rccl_csv():
    text = "gpus,name,size,type,redop,inPlace,time,algBw,busBw,#wrong\n4,AllReduce,1024,float,sum,0,19.2,0.0533,0.08,0\n4,AllReduce,1024,float,sum,1,19.9,0.0515,0.0772,2\n4,AllReduce,2048,fl\n"
    file = read_lines(lines_of(text), Given())
    (test,) = file.tests
    assert [(s.point.ranks, s.point.in_place, s.status) for s in test.samples] == [(4, False, "ok"), (4, True, "wrong")]
    assert file.dropped["a row that is not complete"][:2] == (1, 4)


def test_intel_mpi_benchmarks():
    text = "#-----\n# Benchmarking {0} \n# #processes = 4 \n#-----\n       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n            0         1000         0.05         0.06         0.05\n         1024         1000         8.00         9.50         8.80\n"
    first, second = read(text.format("Allreduce") + text.format("Alltoall"))
    assert [(s.point.op, s.point.ranks, s.point.size_bytes) for s in first.samples] == [
        ("all_reduce", 4, 0),
        ("all_reduce", 4, 1024),
    ]
    assert second.samples[1].point.size_bytes == 4096 and second.samples[1].samples_us == (8.8,)
    (test,) = read(
        "# Benchmarking PingPong\n# #processes = 2\n #bytes #repetitions      t[usec]   Mbytes/sec\n   8   1000   1.20   6.67\n"
    )
    assert (test.samples[0].point.op, test.samples[0].samples_us) == ("p2p_latency", (1.2,))


def test_what_the_caller_says_does_not_overrule_what_the_figures_prove():
    (test,) = read("mpirun -np 4 ./all_reduce_perf -g 1\n" + TABLE, ranks=16, op="reduce")
    assert {(s.point.op, s.point.ranks) for s in test.samples} == {("all_reduce", 4)}
    assert "busbw / algbw says 4 rank(s), but 16 were given by --ranks" in test.notes


def test_rows_of_several_types_are_no_interleaved_jobs():
    rows = "".join(row + row.replace(" float", " int32") for row in ROWS.splitlines(keepends=True))
    (test,) = read(HEADER + rows)
    assert [s.point.dtype for s in test.samples[:4]] == ["float32", "float32", "int32", "int32"]
