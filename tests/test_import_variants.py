"""Every case, and further kinds of output, as launchers, terminals, locales, versions and people change them."""

import re

import pytest
from test_import_cases import CASES
from test_importers import FOOTER, HEADER, ROWS, TABLE, as_expected, read

from commbench.errors import MeasureError
from commbench.importers.found import Given
from commbench.importers.names import named_rccl, nodes_named, ranks_named
from commbench.importers.read import read_file, read_lines
from commbench.importers.text import lines_of


def each(change):
    return lambda text: "".join(change(line) for line in text.splitlines(keepends=True))


def before(prefix):
    return each(lambda line: prefix + line)


CHANGES = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "blanks at line ends": each(lambda line: line.rstrip("\n") + "   \n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "colours": each(lambda line: f"\x1b[32m{line[:-1]}\x1b[0m\n" if line.endswith("\n") else line),
    "tabs": lambda text: re.sub(" {2,}", "\t", text),
    "one blank": lambda text: re.sub(" +", " ", text),
    "wide": lambda text: text.replace("  ", "     "),
    "hard blanks": lambda text: text.replace("  ", "\xa0\xa0"),
    "srun -l": before("0: "),
    "--tag-output": before("[1,0]<stdout>:"),
    "--tag-output of Open MPI 5": before("[prterun-node01-7@1,0]<stdout>: "),
    "time stamps": before("2025-03-01T12:00:00.123Z "),
    "other time stamps": before("[2025-03-01 12:00:00] "),
    "kubectl": before("[pod/launcher-x/main] "),
    "torchrun": before("[default0]:"),
    "a quotation": before("> "),
    "indented": before("    "),
    "blank lines": each(lambda line: line + "\n"),
    "in prose": lambda text: "Here is what I get:\n```\n" + text.rstrip("\n") + "\n```\nIs this expected?\n",
    "a job's log": lambda text: "+ module load cuda\nWARNING: no topology file\n" + text + "srun: job done\n",
    "hashes taken off": lambda text: re.sub("^# ?", "  ", text, flags=re.MULTILINE),
    "no line end": lambda text: text.rstrip("\n"),
}


def figures(text):
    """All that may not change, of every test in a text; what is said where nothing can be used."""
    try:
        tests = read_lines(lines_of(text), Given()).tests
    except MeasureError as error:
        return re.sub(r"line \d+.*", "", str(error))
    return [
        (test.tool, test.rows, sorted(test.hosts), bool(test.cut), [
            (s.point.op, s.point.size_bytes, s.point.in_place, s.point.ranks, s.point.nodes, s.point.dtype, s.point.redop,
             s.point.group, str(s.point.params), s.samples_us, s.status, s.wrong, s.error_max, sorted(s.reported.items()))
            for s in test.samples
        ])
        for test in tests
    ]  # fmt: skip


@pytest.mark.parametrize("file", sorted(CASES.glob("*.txt")), ids=lambda file: file.name[:2])
def test_a_case_is_the_same_however_it_was_copied(file):
    text = file.read_text(errors="replace")
    expected = figures(text)
    assert [name for name, change in CHANGES.items() if figures(change(text)) != expected] == []


GROUPED = {"1073741824": "1,073,741,824", "268435456": "268,435,456", "4478.8": "4,478.8", "4463.7": "4,463.7"}
LOCALES = {
    "commas for points": lambda text: re.sub(r"(?<=\d)\.(?=\d)", ",", text),
    "commas between thousands": lambda text: re.sub(r"\b\d{4,}(?=[. ])", lambda m: f"{int(m[0]):,}", text),
    "points between thousands": lambda text: re.sub(r"\b\d{7,}\b", lambda m: f"{int(m[0]):,}".replace(",", "."), text),
}


@pytest.mark.parametrize("change", LOCALES.values(), ids=LOCALES)
def test_locales(change):
    as_expected(read(HEADER + change(ROWS) + FOOTER))


def test_a_locale_of_osu():
    (test,) = read("# OSU MPI Latency Test v7.4\n# Size          Latency (us)\n1            1,78\n1048576   1.234,50\n")
    assert [s.samples_us for s in test.samples] == [(1.78,), (1234.5,)]


def told(text, **given):
    """(operation, size, ranks, nodes, time, GB/s) of each result of the one test in a text."""
    (test,) = read(text, **given)
    return [
        (s.point.op, s.point.size_bytes, s.point.ranks, s.point.nodes, s.samples_us[0] if s.samples_us else None,
         s.reported.get("bandwidth_GBps", s.reported.get("busbw_GBps")))
        for s in test.samples
    ]  # fmt: skip


OLD = """# Using devices
#   Rank  0 Pid 112424 on sb-container device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid 112424 on sb-container device  1 [0x00] A100-SXM4-40GB
#
#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456   float       0   4718.0  227.58  227.58    N/A   4719.7  227.50  227.50    N/A
"""


def test_nccl_tests_of_other_generations():
    assert told(OLD)[0] == ("broadcast", 1 << 30, 2, 1, 4718.0, 227.58)
    reduce = OLD.replace("type    root", "type   redop    root").replace("float       0", "float     sum       0")
    assert told(reduce)[0] == ("reduce", 1 << 30, 2, 1, 4718.0, 227.58)
    newest = HEADER.replace(" #wrong", "  #wrong  i_min  i_max  i_p99")
    rows = re.sub(r"      0(?=\s)", "      0   4400.0   4500.0   4490.0", ROWS)
    (test,) = read("# Collective test starting: all_reduce_perf\n" + newest + rows + FOOTER)
    assert test.samples[0].reported["p99_us"] == 4490.0 and test.rows == 2
    table = (
        "|"
        + "|".join("size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split())
        + "|\n|---|\n"
    )
    as_expected(read(HEADER.split("#       size")[0] + table + re.sub(" +", " | ", ROWS)))


def test_a_name_is_no_device_list():
    """Devices whose bus ids were wiped out are told apart by their numbers."""
    (test,) = read(OLD)
    assert len(test.nodes[0]["gpus"]) == 2


def test_prose_above_a_table_is_said_to_be_the_source():
    text = "I ran it on 16 GPUs\n" + OLD.split("#\n")[1]
    (test,) = read(text)
    assert {s.point.ranks for s in test.samples} == {16}
    assert "16 rank(s) are taken from a sentence above the table" in test.notes


def test_osu_of_other_kinds():
    put = (
        "# OSU MPI_Put Latency Test v7.4\n# Window creation: MPI_Win_allocate\n# Size          Latency (us)\n1   1.78\n"
    )
    assert told(put) == [("put_latency", 1, 2, 0, 1.78, None)]
    many = "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 16 ] [ window size: 64 ]\n# Size  MB/s  Messages/s\n1  33.60  33601712.11\n"
    assert told(many) == [("p2p_bw", 1, 32, 0, None, pytest.approx(0.0336))]
    ibcast = (
        "# OSU MPI Non-Blocking Broadcast Latency Test v5.9\n# Size  Overall(us)  Compute(us)  Coll. Init(us)  MPI_Test(us)"
        "  MPI_Wait(us)  Pure Comm.(us)  Overlap(%)\n1  13.52  5.93  1.64  0.50  5.70  5.79  0.00\n"
    )
    (test,) = read(ibcast, ranks=4)
    assert [test.samples[0].reported[name] for name in ("coll_init_us", "mpi_test_us", "mpi_wait_us")] == [
        1.64,
        0.5,
        5.7,
    ]


def test_all_reduce_bench_of_older_versions():
    text = "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):\n algbw: 295.176 GBps (2361.4 Gbps)\n busbw: 553.455 GBps (4427.6 Gbps)\n"
    assert told(text) == [("all_reduce", 4 * 10**9, 16, 2, None, 553.455)]


def test_deepep_of_other_versions():
    new = "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 28, transmit: 1134.53 us, notify: 45.54 us, BW: 43.26 GB/s (RDMA), 141.69 GB/s (NVL)\n"
    assert told(new, ranks=16) == [("moe_dispatch", 0, 16, 2, None, 43.26)]
    old = "[rank 0] Dispatch send/recv time: 22.71 us | Combine send/recv time: 29.28 us\n"
    assert [(op, time) for op, *_, time, _ in told(old)] == [
        ("moe_dispatch_send_recv", 22.71),
        ("moe_combine_send_recv", 29.28),
    ]


def test_mpi_benchmarks_of_pairs_and_imb_barrier():
    text = "Running benchmark IMB PingPong with type Float32 on 2 MPI ranks\n\nsize (bytes),iterations,time (seconds),throughput (MB/s)\n1024,1000,1.0e-6,1024.0\n"
    assert told(text) == [("p2p_latency", 1024, 2, 0, 1.0, None)]
    text = "# Benchmarking Barrier \n# #processes = 16 \n #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n   1000   5.50   5.55   5.52\n"
    assert told(text) == [("barrier", 0, 16, 0, 5.52, None)]


def test_nccom_tells_its_nodes():
    text = '$ nccom-test -r 64 -N 2 -b "8" -d fp32 allg\n size(B)  count(elems)  type  time(us)  algbw(GB/s)  busbw(GB/s)\n1048576  262144  fp32  100  10.49  10.32\n'
    assert told(text) == [("all_gather", 1 << 20, 64, 2, 100.0, 10.32)]


def test_nvbandwidth_over_nodes():
    text = (
        "nvbandwidth Version: v0.8\nProcess 0 (node01): device 0: NVIDIA GB200 (00000008:01:00)\n"
        "Process 1 (node02): device 0: NVIDIA GB200 (00000008:01:00)\nRunning multinode_device_to_device_memcpy_read_ce.\n"
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A    397.11\n 1    397.33       N/A\n"
        "SUM multinode_device_to_device_memcpy_read_ce 794.44\n"
    )
    (test,) = read(text)
    assert test.hosts == ["node01", "node02"] and {(s.point.nodes, s.point.scope) for s in test.samples} == {
        (2, "inter")
    }


def test_a_topology_whose_header_is_underlined_and_its_legend():
    text = (
        "\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \tNV18\tPIX\t0-55,112-167\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tSYS\t56-111\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    file = read_lines(lines_of(text), Given())
    assert file.tests[0].facts == {"gpus": 2, "nics": 1, "between_gpus": "NV18", "numa_nodes": 2} and not file.dropped


@pytest.mark.parametrize(
    "name, ranks, nodes",
    [
        ("all_reduce-16gpus-2nodes", 16, 2), ("allreduce_2x8gpu", 16, 2), ("run-2-nodes", 0, 2), ("x_ranks=32", 32, 0),
        ("nccl.np64", 64, 0), ("p4de-2n", 0, 2), ("h800-16ep", 16, 0), ("slurm-4711", 0, 0), ("node01", 0, 0),
        ("01-nodes", 0, 0), ("h100-8x400g", 0, 0), ("step16", 0, 0), ("job-12-n", 0, 0), ("999999gpus", 0, 0),
    ],
)  # fmt: skip
def test_names_of_files(name, ranks, nodes):
    assert (ranks_named(name), nodes_named(name)) == (ranks, nodes)


def test_rccl_in_a_name():
    assert named_rccl("rccl-reduce") and named_rccl("01_RCCL_tests")
    assert not named_rccl("nccl-and-rccl") and not named_rccl("mercclx")


def test_what_a_text_tells_stands_above_its_name(tmp_path):
    (tmp_path / "all_reduce-64gpus-8nodes.log").write_text(TABLE)
    (test,) = read_file(tmp_path / "all_reduce-64gpus-8nodes.log", Given()).tests
    as_expected([test])
    assert not any("name says" in note for note in test.notes)
    (tmp_path / "rccl-4gpus.log").write_text(TABLE)  # its devices are NVIDIA's
    assert read_file(tmp_path / "rccl-4gpus.log", Given()).tests[0].tool == "nccl-tests"
    bare = OLD.split("#\n")[1]
    (tmp_path / "rccl-64gpus-8nodes.log").write_text(bare)
    (test,) = read_file(tmp_path / "rccl-64gpus-8nodes.log", Given()).tests
    assert test.tool == "rccl-tests" and {(s.point.ranks, s.point.nodes) for s in test.samples} == {(64, 8)}
    (test,) = read_file(tmp_path / "rccl-64gpus-8nodes.log", Given(ranks=32)).tests
    assert {s.point.ranks for s in test.samples} == {32}  # the caller knows better
