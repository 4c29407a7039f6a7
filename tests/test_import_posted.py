"""Forms in which outputs were found posted: titles cut off, tables side by side, stamps, marks, columns of later versions."""

import pytest
from test_importers import FOOTER, HEADER, ROWS, read

from commbench.errors import MeasureError
from commbench.importers.found import Given
from commbench.importers.launchers import launched
from commbench.importers.read import read_lines
from commbench.importers.text import lines_of


def dropped(text):
    return read_lines(lines_of(text), Given()).dropped


def told(text, *names, **given):
    """The named figures of each result of the one test in a text."""
    (test,) = read(text, **given)
    return [tuple(s.reported.get(name) for name in names) for s in test.samples]


COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"


@pytest.mark.parametrize("title", ["     in-place\n", "# out-of-place\n# in-place\n"])
def test_a_title_of_which_only_the_end_was_copied_does_not_swap_the_halves(title):
    (test,) = read(f"{title}{COLUMNS}\n{ROWS}{FOOTER}")
    assert [(s.point.in_place, s.samples_us[0]) for s in test.samples[:2]] == [(False, 4478.8), (True, 4463.7)]


def test_a_second_table_to_the_right_is_named_and_the_left_one_read():
    line = "  8388608       2097152     float     sum      -1    91.10   92.08  161.14      0    94.94   88.36  154.63      0"
    text = f"{COLUMNS}  |  {COLUMNS}\n{line}  |  {line.replace('91.10', '93.10')}\n{line}  |  8388608   20\n"
    (test,) = read(text)
    assert [s.samples_us[0] for s in test.samples] == [91.10, 94.94] * 2
    assert any("on its right" in why for why in dropped(text))


def test_sendrecv_prints_a_redop_and_cannot_be_checked_in_place():
    row = "  524288        131072     float     sum      -1    103.5    5.07    5.07      0    118.7    4.42    4.42    N/A\n"
    (test,) = read(row, ranks=2)
    assert {s.point.op for s in test.samples} == {"sendrecv"}
    (test,) = read(row.replace("N/A", "  0"), ranks=2)
    assert {s.point.op for s in test.samples} == {"all_reduce"}


def test_devices_below_a_table_belong_to_the_next_one():
    device = "#  Rank {} Group  0 Pid  14840 on node01 device  3 [0x01] NVIDIA GB200\n"
    row = "  536870912     134217728     float     sum      -1   1806.7  297.16  586.06      0   1835.9  292.43  576.74      0\n"
    text = device.format(71) + COLUMNS + "\n" + row + FOOTER + device.format(143)
    (test,) = read(text)
    assert len(test.ranks) == 1 and not any("share one device" in note for note in test.notes)
    # rank 71 is on device 3, so a node has not 8 devices
    assert {(s.point.ranks, s.point.nodes) for s in test.samples} == {(72, 0)}


def test_nccl_tests_until_2019_print_milliseconds_and_devices_without_a_process():
    text = (
        "# Rank 0 on node01 device 0 [0x00] Tesla V100\n# Rank 1 on node02 device 0 [0x00] Tesla V100\n"
        "#  bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
        "10000000      10000000    char     sum    2.000   5.00   5.00    0e+00    2.500   4.00   4.00    0e+00\n"
    )
    (test,) = read(text)
    assert [(s.point.op, s.point.ranks, s.point.nodes, s.point.dtype, s.samples_us, s.wrong) for s in test.samples] == [
        ("all_reduce", 2, 2, "int8", (2000.0,), 0),
        ("all_reduce", 2, 2, "int8", (2500.0,), 0),
    ]


def test_a_program_that_failed_is_cut():
    failure = (
        "node02: Test NCCL failure common.cu:1204 'unhandled cuda error'\n .. node02 pid 7: Test failure common.cu:9\n"
    )
    (test,) = read(HEADER + ROWS + failure)
    assert "Test NCCL failure common.cu:1204 'unhandled cuda error'" in test.cut
    with pytest.raises(MeasureError, match="Test NCCL failure"):
        read(HEADER.split("#       size")[0] + failure)


def test_a_row_that_ends_within_its_type_is_named():
    (test,) = read(ROWS + "  4294967296    1073741824     flo\n", ranks=4)
    assert test.rows == 2 and test.cut.startswith("line 3: the row ends after 'flo'")


def test_rows_of_another_program_are_no_failed_check():
    text = "size(B)  count  type  redop  latency(us)  min_lat(us)  max_lat(us)  algbw(GB/s)  busbw(GB/s)\n"
    with pytest.raises(MeasureError, match="is not size / time"):
        read(text + "1024  256  int  sum  8.881746  8.882  8.882  0.115  0.202\n")


def test_the_version_that_rccl_tests_prints_with_a_capital():
    (test,) = read(HEADER + "rccl-tests: Version develop:0123abc\n" + ROWS + FOOTER)
    assert test.tool == "rccl-tests develop:0123abc"


@pytest.mark.parametrize("name", ["mpirun.mpich", "/usr/bin/mpiexec.hydra", "mpirun.openmpi"])
def test_launchers_with_the_name_of_their_mpi(name):
    assert launched(f"{name} -np 16 ./all_reduce_perf -g 1") == (16, 0)


IMB = """# MPI_Datatype                   :   MPI_BYTE
# MPI_Datatype for reductions    :   MPI_FLOAT
# MPI_Op                         :   MPI_SUM
# Benchmarking Reduce
# #processes = 4
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
           64         1000         4.25         4.46         4.35
"""


def test_intel_mpi_benchmarks_under_the_time_of_day_and_their_types():
    (test,) = read("".join(f"00:55:22  {line}\n" for line in IMB.splitlines()))
    (s,) = test.samples
    assert (s.point.op, s.point.ranks, s.point.dtype, s.point.redop, s.samples_us) == (
        "reduce", 4, "float32", "sum", (4.35,)
    )  # fmt: skip


def test_intel_mpi_benchmarks_whose_titles_are_names_with_a_remark_behind_a_row():
    head = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec] Mbytes/sec\n"
    text = (
        f"Sendrecv:\n{head}262144 160 30.00 32.00 31.00 16384.00\n1048576 40 160.00 250.00 210.00 8388.61 <- drops here\n"
        f"Exchange:\n{head}262144 160 80.00 100.00 90.00 10485.76\n"
    )
    first, second = read(text)
    assert [(s.point.op, s.point.size_bytes, s.samples_us[0], s.reported["bandwidth_GBps"]) for s in first.samples] == [
        ("sendrecv", 262144, 31.0, 16.384),
        ("sendrecv", 1048576, 210.0, pytest.approx(8.38861)),
    ]
    assert [(s.point.op, s.reported["bandwidth_GBps"]) for s in second.samples] == [
        ("exchange", pytest.approx(10.48576))
    ]


@pytest.mark.parametrize("rate, GBps", [("1048.58", 1.04858), ("1000.00", 1.048576)])
def test_what_a_mbyte_is_to_intel_mpi_benchmarks(rate, GBps):
    """1 MiB in 1000 us is 1048.58 times 10^6 bytes a second, or 1000 times 2^20."""
    head = "# Benchmarking PingPongAnySource\n# #processes = 2\n #bytes #repetitions      t[usec]   Mbytes/sec\n"
    text = f"{head}  1048576  10  1000.00  {rate}\n"
    assert told(text, "bandwidth_GBps") == [(pytest.approx(GBps),)]
    assert read(text)[0].samples[0].point.params == {"variant": "anysource"}


def test_intel_mpi_benchmarks_of_rates_alone():
    text = "# Benchmarking Biband\n# #processes = 4\n #bytes #repetitions   Mbytes/sec      Msg/sec\n 65536  100  31066.21  474033\n"
    (test,) = read(text)
    assert test.samples[0].point.op == "p2p_bibw" and not test.samples[0].samples_us
    assert told(text, "bandwidth_GBps", "messages_per_s") == [(pytest.approx(31.06621), 474033.0)]


def test_osu_full_rows_under_a_short_header():
    text = "# OSU MPI-CUDA Reduce Latency Test v7.3\n# Size       Avg Latency(us)\n1   50.89   18.27   89.23   1000\n1048576   93.5   60.1   99.9   100\n"
    assert told(text, "time_us", "min_us", "max_us", "iterations")[0] == (50.89, 18.27, 89.23, 1000)
    assert any("the header names 2 of them" in note for note in read(text)[0].notes)
    assert any("5 cells" in why for why in dropped(text.replace("1   50.89   18.27   89.23   1000\n", "1   50.89\n")))


def test_osu_buffers_stand_in_the_point():
    text = "# OSU MPI-CUDA Bandwidth Test v7.3\n# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n# Size      Bandwidth (MB/s)\n4194304   1000.0\n"
    assert read(text)[0].samples[0].point.params == {"device": "cuda", "buffers": "D H"}


MATRIX = """memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     26.34
 1     26.30       N/A
"""


def test_nvbandwidth_whose_name_only_its_sum_tells():
    text = f"nvbandwidth Version: v0.8\n...\n{MATRIX}\nSUM device_to_device_memcpy_read_ce 52.64\n"
    (test,) = read(text)
    assert {s.point.op for s in test.samples} == {"device_to_device_memcpy_read_ce"} and not test.notes
    (test,) = read(MATRIX)
    assert [(s.point.op, s.reported["bandwidth_GBps"]) for s in test.samples] == [
        ("memcpy_ce", 26.34),
        ("memcpy_ce", 26.30),
    ]


def test_nvbandwidth_that_finds_wrong_data():
    text = "nvbandwidth Version: v0.7\nRunning device_to_device_memcpy_read_ce.\n Invalid value when checking the pattern at 0x70\n"
    (s,) = read(text)[0].samples
    assert (s.point.op, s.status) == ("device_to_device_memcpy_read_ce", "wrong")


def test_perftest_tables_without_titles_and_with_marks():
    head = "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    text = (
        f"ib_send_bw -d mlx5_0 --size=1024\n{head} 1024  1000  0.00  **5000.00**  5.120000\n"
        f"Second case:\n{head} 1024  1000  0.00  **900.00**  0.921600\n"
    )
    tests = read(text)
    assert [[(s.point.op, round(s.reported["bandwidth_GBps"], 6)) for s in test.samples] for test in tests] == [
        [("send_bw", 5.24288)],
        [("send_bw", 0.943718)],
    ]


def test_flash_attention_with_times_behind_rates_and_kernels_in_brackets():
    text = (
        "### causal=False, headdim=128, batch_size=32, seqlen=512 ###\nFlash3 fwd: 433.25 TFLOPs/s, 0.1586 ms,\n"
        "### headdim = 128, causal = True, seqlen = 8192, nheads = 16, nheads_kv = 4, varlen = False ###\n"
        "FA Python fwd: 1.433ms, 1534.8 TFLOPS\n[deterministic, 2CTA] FA Python bwd: 4.712ms, 1166.7 TFLOPS\n"
    )
    (test,) = read(text)
    assert [(s.point.op, s.point.params["method"], round(s.samples_us[0], 1)) for s in test.samples] == [
        ("attention_forward", "Flash3", 158.6),
        ("attention_forward", "FA Python", 1433.0),
        ("attention_backward", "[deterministic, 2CTA] FA Python", 4712.0),
    ]
    assert test.samples[1].point.params["nheads_kv"] == "4"


def test_flash_attention_as_a_table():
    text = (
        "  BWD (ms / TFLOPS / MFU% / TBs / BW%)\n=====\n     hdim causal batch seqlen      FA2      FA4\n-----\n"
        "       64  False    32   1024   0.50/543/21.7%/1.06/13.2%   0.25/1087/43.5%/2.12/26.5%\n"
    )
    (test,) = read(text)
    assert [
        (s.point.op, s.point.params["method"], s.point.params["hdim"], s.samples_us[0], s.reported["TFLOPS"])
        for s in test.samples
    ] == [("attention_backward", "FA2", "64", 500.0, 543.0), ("attention_backward", "FA4", "64", 250.0, 1087.0)]


def test_a_rank_of_deepep_that_prints_twice_has_two_results():
    line = "[rank 0] Dispatch bandwidth: {} GB/s, avg_t=37.90 us | Combine bandwidth: 19.83 GB/s, avg_t=733.09 us\n"
    (test,) = read(line.format(198.19) + "After the change:\n" + line.format(30.54))
    assert [(s.reported["bandwidth_GBps"], s.point.params.get("repeat")) for s in test.samples] == [
        (198.19, None), (19.83, None), (30.54, 2), (19.83, 2),
    ]  # fmt: skip
    assert len({s.point.id for s in test.samples}) == 4
    cut = "[rank 1] Dispatch bandwidth: 5.94 GB/s, avg_t=626.98 us | Combine bandwidth: 32\n"
    assert any("a rate that is not complete" in why for why in dropped(cut))


def test_the_time_of_a_best_line_and_rates_without_a_blank():
    best = "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 12, 461.04 GB/s (NVL), t: 130.86 us\n"
    assert told(best, "bandwidth_GBps", "time_us") == [(461.04, 130.86)]
    table = (
        "| Type | Dispatch #EP | Bottleneck bandwidth | Combine #EP | Bottleneck bandwidth |\n|---|---|---|---|---|\n"
    )
    assert told(table + "| Internode | 16 | 60GB/s(RDMA) | 16 | 61GB/s(RDMA) |\n", "rdma_GBps") == [(60.0,), (61.0,)]


def test_steps_of_a_tuning_are_no_result_and_said_to_be_steps():
    with pytest.raises(MeasureError, match="steps of a tuning without the line of its best"):
        read("[tuning] SMs 24, NVL chunk 4, RDMA chunk 4: 11.40 GB/s (RDMA), 37.23 GB/s (NVL)\n")


def test_the_oldest_all_reduce_bench():
    text = "0 data size: 6.0 GB\ntput_avg (Gbps): 1600.0 busbw_avg (Gbps): 1500.0\n"
    (test,) = read(text)
    (s,) = test.samples
    assert (s.point.size_bytes, s.point.ranks) == (6 * 10**9, 16)  # 1500 / (1600 / 2) = 2 x 15 / 16
    assert s.reported == {"algbw_GBps": 100.0, "busbw_GBps": 187.5}


def test_mpi_benchmarks_of_bandwidth():
    text = "Running benchmark OSU Bandwidth with type Float32 on 2 MPI ranks\nsize (bytes),iterations,bandwidth (MB/s)\n4,100,{}\n"
    assert told(text.format("12.5"), "bandwidth_GBps") == [(0.0125,)]
    assert any("the unit in the header is wrong" in note for note in read(text.format("4.7e8"))[0].notes)


def test_processes_that_stand_above_a_table_of_ucc():
    text = "Number of processes: 108\nCollective:  Gather\nMemory type:  host\nDatatype:  float32\n  Count  Size  Time, us\n  avg  min  max\n  1  4  1.05  0.51  7.02\n"
    (test,) = read(text)
    assert [(s.point.ranks, s.point.size_bytes) for s in test.samples] == [(108, 432)]


def test_mpi_benchmarks_of_windows():
    title = "Running benchmark OSU Put Latency with type Float32 on 2 MPI ranks with window synchronization: {}\n"
    rows = "size (bytes),iterations,time (seconds)\n0,262144,{}\n4,262144,{}\n"
    first, second = read(
        title.format("lock") + rows.format("4.1e-7", "7.0e-7") + title.format("fence") + rows.format("1.7", "2.1")
    )
    assert [t.samples[0].point.params["synchronization"] for t in (first, second)] == ["lock", "fence"]
    assert not any("hours" in note for note in first.notes)
    assert any("ran for 277 hours" in note for note in second.notes)


def test_cells_of_a_gist_bold_words_and_items_of_a_list():
    osu = (
        "# OSU MPI Latency Test v5.8\n# Size          Latency (us)\n1                       1.21 | |\n2      1.22 | |\n"
    )
    assert told(osu, "time_us") == [(1.21,), (1.22,)]
    line = "[rank 0] Dispatch bandwidth: **1.24 GB/s,** avg_t=6053.47 us | Combine bandwidth: 1.25 GB/s, avg_t=116.5 us"
    assert told(line, "bandwidth_GBps") == [(1.24,), (1.25,)]
    imb = (
        "- # Benchmarking PingPong\n- # #processes = 2\n-        #bytes #repetitions      t[usec]   Mbytes/sec\n"
        "-             1         1000         1.04         0.92\n-             2         1000         1.05         1.81\n"
    )
    assert told(imb, "time_us") == [(1.04,), (1.05,)]


def test_imb_of_groups_that_run_at_once():
    both = (
        "# Benchmarking Multi-Allgather\n# ( 60 groups of 2 processes each running simultaneous )\n# Group  0:     0    1\n"
        "#\n#---\n       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n          512       100000        30.48  37.96  33.80\n"
        "# Benchmarking Allgather\n# #processes = 120\n#---\n       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "          512       100000        50.48  57.96  53.80\n"
    )
    groups, whole = read(both)
    assert [(s.point.ranks, s.point.size_bytes, s.point.params.get("groups")) for s in groups.samples + whole.samples] == [
        (2, 1024, 60), (120, 61440, None),
    ]  # fmt: skip
    assert "60 groups of 2 processes ran at once" in groups.notes


def test_imb_tables_without_titles_and_with_a_column_of_groups():
    text = (
        "> # ( #processes = 2 )\n> # ( 2 additional processes waiting in MPI_Barrier)\n> #----\n"
        ">        #bytes #repetitions      t[usec]   Mbytes/sec\n>             1         1000         7.20         0.13\n"
        "> # ( 2 groups of 2 processes each running simultaneous )\n> # Group    0                     : 0 1\n"
        ">         Group       #bytes #repetitions      t[usec]   Mbytes/sec\n>\n"
        ">             0            1         1000         7.28         0.13\n"
        ">             1            1         1000         7.13         0.13\n"
    )
    one, two = read(text, op="p2p_latency")
    assert [(s.point.op, s.point.ranks, s.samples_us[0]) for s in one.samples] == [("p2p_latency", 2, 7.2)]
    assert [(s.point.params["group"], s.samples_us[0]) for s in two.samples] == [(0, 7.28), (1, 7.13)]


def test_imb_of_operations_that_do_not_block():
    text = (
        "# MPI_Datatype for reductions    :   MPI_FLOAT\n# MPI_Op                         :   MPI_SUM  \n"
        "# Benchmarking Ireduce_scatter \n# #processes = 2 \n#-----\n"
        "       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]      defects\n"
        "            8         1000         0.63         0.30         0.31         5.00         0.00\n"
        "1: Error Ireduce_scatter_pure,size = 4\n"
    )
    (test,) = read(text)
    (s,) = test.samples
    assert (s.point.op, s.point.params, s.point.dtype, s.samples_us[0]) == (
        "reduce_scatter", {"nonblocking": True}, "float32", 0.30,
    )  # fmt: skip
    assert (s.reported["overlapped_us"], s.reported["cpu_us"], s.reported["overlap_percent"]) == (0.63, 0.31, 5.0)
    assert any("Ireduce_scatter_pure with wrong data at 4 B" in note for note in test.notes)


def test_launchers_of_mvapich_of_flux_and_behind_a_variable():
    rsh = "[me@a100-01 libexec]$ $MV2_HOME/bin/mpirun_rsh --export-all -np 2 {} MV2_USE_CUDA=1 pt2pt/osu_bw -d cuda"
    assert launched(rsh.format("a100-01 a100-01")) == (2, 1)
    assert launched(rsh.format("a100-01 a100-02")) == (2, 2)
    assert launched(rsh.format("-hostfile hosts")) == (2, 0)
    assert launched("[me@login] $ UCC_TUNE=inf $JSC_SUBMIT_CMD -n 4 osu_allreduce -m 16:16 -n 9") == (4, 0)
    assert launched("flux run -N 2 -n 16 ./osu_allreduce") == (16, 2)
    assert launched("$ echo -n 4") == (0, 0)


def test_bi_bandwidth_of_old_osu_in_a_quotation_of_quotations():
    text = "> >>>>> # OSU MPI Bi-Directional Bandwidth Test v3.0\n> >>>>> # Size     Bi-Bandwidth (MB/s)\n> >>>>> 4194304                1717.43\n"
    (test,) = read(text)
    assert [(s.point.op, s.reported["bandwidth_GBps"]) for s in test.samples] == [("p2p_bibw", 1.71743)]


def test_perftest_whose_ends_share_a_terminal():
    title = "---\n                    Send BW Test\n Dual-port       : OFF          Device         : roceo1\n"
    header = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    row = " 65536      1000             {}             {}                   0.363584\n---\n"
    both = title + title + header + header
    (test,) = read(both + row.format("0.00", "22724.01") + row.format("22727.48", "22651.04"))
    assert [s.point.params.get("repeat") for s in test.samples] == [None, 2]
    assert "server and client printed different figures for the same size: both were taken" in test.notes
    (test,) = read(both + row.format("9.00", "8.01") + row.format("9.00", "8.01"))
    assert len(test.samples) == 1
    assert "server and client both printed the result: it was taken once" in test.notes


def test_the_labels_of_crays_launcher():
    label = "x3005c0s13b0n0.hsn.cm.polaris.alcf.anl.gov 0: "
    text = "".join(label + line + "\n" for line in (HEADER + ROWS + FOOTER).splitlines())
    (labelled,), (plain,) = read(text), read(HEADER + ROWS + FOOTER)
    assert [s.point.id for s in labelled.samples] == [s.point.id for s in plain.samples]


def test_sums_of_nvbandwidth_alone_are_named_as_such():
    with pytest.raises(MeasureError, match="without a matrix but only SUM lines; give the whole output"):
        read("$ ./nvbandwidth | grep SUM\nSUM host_to_device_memcpy_ce 845.90\nSUM device_to_host_memcpy_ce 773.99\n")
