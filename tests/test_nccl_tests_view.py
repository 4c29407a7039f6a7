"""The table must be nccl-tests' own to the character: values of captured rows go in, the rows come out."""

import re

import pytest

from commbench import __version__
from commbench.ops import OPS
from commbench.results.nccl_tests import (
    PROGRAMS,
    Half,
    device_lines,
    footer_lines,
    half,
    header_lines,
    notes,
    number,
    one_line,
    row_line,
)  # fmt: skip
from commbench.results.records import Point, Sample

# nccl-tests 2.18.0, all_reduce over sockets, 2 ranks on one RTX 5090.
V2_18 = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 134217728 step: 2(factor) warmup iters: 10 iters: 50 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 2994447 on     node01 device  0 [0000:02:00] NVIDIA GeForce RTX 5090
#  Rank  1 Group  0 Pid 2994448 on     node01 device  0 [0000:02:00] NVIDIA GeForce RTX 5090
#
#                                                              out-of-place                       in-place@@@@@@@@@@
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong@
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)@@@@@@@@@
     1048576        262144     float     sum      -1  4366.46    0.24    0.24       0  4365.21    0.24    0.24       0
     2097152        524288     float     sum      -1  4370.57    0.48    0.48       0  4368.39    0.48    0.48       0
     4194304       1048576     float     sum      -1  4374.00    0.96    0.96       0  4375.49    0.96    0.96       0
     8388608       2097152     float     sum      -1  4390.92    1.91    1.91       0  4394.16    1.91    1.91       0
    16777216       4194304     float     sum      -1  7728.29    2.17    2.17       0  7659.38    2.19    2.19       0
    33554432       8388608     float     sum      -1  14977.1    2.24    2.24       0  14863.2    2.26    2.26       0
    67108864      16777216     float     sum      -1  29341.4    2.29    2.29       0  29337.0    2.29    2.29       0
   134217728      33554432     float     sum      -1  58479.5    2.30    2.30       0  58055.4    2.31    2.31       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.57614@
#
# Collective test concluded: all_reduce_perf
#
""".replace("@", " ").splitlines()

# all_gather on 2 x 8 H100, same widths; the paste lost the indentation of its rows.
ALL_GATHER = """\
     256             4     float    none      -1    86.95    0.00    0.00       0    88.21    0.00    0.00       0
  131072          2048     float    none      -1    98.33    1.33    1.25       0   112.25    1.17    1.09       0
268435456       4194304     float    none      -1  1510.98  177.66  166.55       0  1507.46  178.07  166.94       0
2147483648      33554432     float    none      -1  10820.2  198.47  186.07       0  10805.3  198.74  186.32       0
8589934592     134217728     float    none      -1  42668.7  201.32  188.73       0  42630.7  201.50  188.90       0
""".splitlines()

# alltoall on a broken fabric; the N/A of a half that is not checked is one character narrower than a count.
ALL_TO_ALL = """\
   134217728       2097152     float    none      -1   103114    1.30    1.22       0  95184.6    1.41    1.32    N/A
  8589934592     134217728     float    none      -1   235696   36.45   34.17       0   210205   40.86   38.31    N/A
""".splitlines()


def point(op="all_reduce", size_bytes=2**20, count=2**18, ranks=2, redop="sum", **more):
    return Point(op, "gloo", size_bytes, count=count, ranks=ranks, members=tuple(range(ranks)), redop=redop, **more)


def sample(*times_us, wrong=0, status="ok", **what):
    return Sample(point(**what), 1, "2026-01-01T00:00:00Z", samples_us=times_us, wrong=wrong, status=status)


def parsed(cells):
    time, algbw, busbw, wrong = cells
    return Half(float(time), float(algbw), float(busbw), None if wrong == "N/A" else int(wrong))


def titled(sizes, devices=(), said=(), warmup=5, iters=20):
    settings = {"warmup": warmup, "iters": iters, "checks": 1, "graph": 0}
    return header_lines("all_reduce_perf", sizes, devices=devices, notes=said, **settings)


def printed_again(line, op):
    size, count, dtype, redop, root, *halves = line.split()
    assert (dtype, root) == ("float", "-1")
    what = point(op, int(size), int(count), 16, redop)
    return row_line(what, parsed(halves[:4]), parsed(halves[4:]))


def test_a_whole_run_of_2_18_is_printed_again_from_its_times():
    captured = [line.split() for line in V2_18 if line.startswith("  ")]
    pairs = [
        [half(sample(float(row[at]), size_bytes=int(row[0]), count=int(row[1]), in_place=at > 5)) for at in (5, 9)]
        for row in captured
    ]
    gpu = {"host": "node01", "device": "cuda:0", "device_id": "0000:02:00.0", "device_name": "NVIDIA GeForce RTX 5090"}
    devices = device_lines({"ranks": [{"rank": rank, "pid": 2994447 + rank, **gpu} for rank in (0, 1, 2)]}, (0, 1))
    lines = titled([int(row[0]) for row in captured], devices, warmup=10, iters=50)
    lines += [row_line(point(size_bytes=int(r[0]), count=int(r[1])), *p) for r, p in zip(captured, pairs, strict=True)]
    lines += footer_lines("all_reduce_perf", [figures for pair in pairs for figures in pair])
    assert lines[:2] == [
        f"# commbench {__version__} (table of nccl-tests 2.19)",
        "# Collective test starting: all_reduce_perf",
    ]
    assert lines[2] == V2_18[0] + " unalign: 0"  # 2.19 added the last field
    assert lines[3:] == V2_18[1:]


@pytest.mark.parametrize("line", ALL_GATHER)
def test_rows_of_all_gather(line):
    assert printed_again(line, "all_gather").lstrip() == line.lstrip()


@pytest.mark.parametrize("line", ALL_TO_ALL)
def test_rows_of_alltoall_with_an_unchecked_half(line):
    assert printed_again(line, "all_to_all") == line


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 7, "   0.00"),
        (9999.99, 7, "9999.99"),
        (9999.996, 7, "10000.0"),  # rounds up to eight characters with two decimals
        (99999.96, 7, " 100000"),
        (9999999.4, 7, "9999999"),
        (12345678.0, 7, "1.2e+07"),
        (1715.44, 6, "1715.4"),
        (43046.10, 6, " 43046"),
        (1234567.0, 6, " 1e+06"),
    ],
)
def test_decimals_shrink_as_the_value_grows(value, width, text):
    assert number(value, width) == text


def test_a_half_that_was_not_measured_keeps_its_columns():
    measured = half(sample(4366.46))
    pairs = (measured, measured), (measured, None), (None, measured)
    both, left, right = (row_line(point(), *pair) for pair in pairs)
    assert left == both[:-33] + "      N/A     N/A     N/A     N/A"
    assert len({len(both), len(left), len(right)}) == 1
    assert right.split()[5:] == ["N/A"] * 4 + both.split()[9:]
    assert half(None) is None and half(sample(status="skip")) is None and half(sample(5.0, status="error")) is None


def test_an_unchecked_half_is_na_and_wrong_elements_are_counted():
    assert row_line(point(), half(sample(10.0, wrong=None)), None).split()[8] == "N/A"
    assert row_line(point(), half(sample(10.0, wrong=1234567, status="wrong")), None).split()[8] == "1.23457e+06"


def test_types_reductions_and_roots_have_the_names_of_nccl_tests():
    broadcast = point("broadcast", redop="none", root=3, dtype="float8_e4m3fn")
    assert row_line(broadcast, None, None).split()[2:5] == ["f8e4m3", "none", "3"]
    assert row_line(point(dtype="float16", redop="avg"), None, None).split()[2:5] == ["half", "avg", "-1"]


def test_the_footer_counts_wrong_halves_and_says_when_nothing_was_checked():
    good, bad, unchecked = Half(1, 1, 2.0, 0), Half(1, 1, 4.0, 7), Half(1, 1, 6.0, None)
    lines = footer_lines("all_reduce_perf", [good, bad, None, unchecked])
    assert lines[0] == "# Out of bounds values : 1 FAILED"
    assert lines[1] == "# Avg bus bandwidth    : 4 "
    assert lines[-3:] == ["#", "# Collective test concluded: all_reduce_perf", "#"]
    assert len(lines) == 5
    assert any("Not one result was checked" in line for line in footer_lines("all_reduce_perf", [unchecked, None]))
    assert footer_lines("all_reduce_perf", [None])[1] == "# Avg bus bandwidth    : 0 "


def test_a_tiny_mean_has_no_exponent_that_parsers_would_cut_off():
    line = footer_lines("all_reduce_perf", [Half(600.0, 0, 1.3333e-5, 0)])[1]
    assert re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)\s*$", line)[1] == "0.000013333"


@pytest.mark.parametrize(
    ("sizes", "step"),
    [
        ([8, 32, 128], "4(factor)"), ([4, 8, 12], "4(bytes)"), ([8, 9, 100], "0(list)"), ([8], "1048576(bytes)"),
        ([0, 0, 16], "16(bytes)"), ([8, 12, 18], "0(list)"), ([32, 8, 8, 16], "2(factor)"),
    ],
)  # fmt: skip
def test_the_step_is_read_off_the_sizes(sizes, step):
    assert f" step: {step} " in titled(sizes)[2]


def test_notes_stand_between_the_devices_and_the_titles():
    rank = {"rank": 11, "node": 1, "host": "n", "pid": 7, "device": "cpu", "device_id": None, "device_name": None}
    devices = device_lines({"ranks": [rank], "nodes": [{}, {"cpu": "AMD EPYC"}]}, [11])
    lines = titled([8], devices, ["One.", "Two\n# Avg bus bandwidth    : 900"])
    assert lines[4:9] == [
        "# Using devices", "#  Rank 11 Group  0 Pid      7 on          n device  0 [cpu] AMD EPYC",
        "# One.", "# Two # Avg bus bandwidth : 900", "#",
    ]  # fmt: skip


def test_text_from_outside_stays_on_its_line():
    assert one_line("a\x1b[2Jb\r\n\u2028c\ud800d") == "a [2Jb c d"


def test_notes_say_what_differs_from_nccl_tests():
    streamed = point("all_gather", redop="none", timing="streaming")
    assert notes([streamed]) == []
    assert "isolated" in notes([point("all_gather")])[0]
    assert any("copy" in note for note in notes([point("all_reduce", timing="streaming")]))
    alone = notes([point("all_gather", ranks=1, timing="streaming")])
    assert len(alone) == 1 and "does not apply" in alone[0]
    assert "Avg bus bandwidth" not in alone[0] and "out-of-place" not in alone[0]  # parsers look for these words


def test_every_operation_with_a_bus_figure_of_nccl_tests_has_a_program():
    assert set(OPS) - set(PROGRAMS) == {
        "p2p_latency", "p2p_bw", "p2p_bibw", "barrier", "all_to_all_padded", "count_exchange"
    }  # fmt: skip


# Readers that users have, in their own logic.


def superbench(text, in_place=False):
    """microsoft/superbenchmark: columns by header name, counted from the right, between two marker lines."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    found, at = {}, None
    for line in lines[begin + 1 : end]:
        cells = line.lstrip("#").split()
        if "time" in line and "busbw" in line:
            where = [i for i, cell in enumerate(cells) if cell == "busbw"][-1 if in_place else 0]
            at = where - len(cells)
        elif re.match(r"\d", cells[0]) and int(cells[0]):
            found[int(cells[0])] = float(cells[at])
    return found


def superbench_old(text):
    """Its first version: rows from the fourth line after the title on, sixth field from the right, largest wins."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    return max(float(line.split()[-6]) for line in lines[begin + 4 : end] if len(line.split()) > 10)


def ai_cloud_validation(text):
    """NVIDIA/ai-cloud-validation: column 7 of the lines with a type in column 2; how many values were out of bounds."""
    rows = [line.split() for line in text.splitlines()]
    peak = max(float(r[7]) for r in rows if len(r) > 7 and r[2] in ("float", "half", "bfloat16", "int8"))
    return peak, int(re.search(r"#?\s*Out of bounds values\s*:\s*(\d+)", text)[1])


def gcm(text):
    """facebookresearch/gcm: the first number on the first line that names the average."""
    line = next(line for line in text.split("\n") if "Avg bus bandwidth" in line)
    return float(re.search(r"[-+]?(\d*\.*\d+)", line)[0])


def dcgm(text):
    """NVIDIA/DCGM: both summary lines must be there, and neither may say FAILED."""
    summary = [line for line in text.splitlines() if "# Out of bounds values" in line or "# Avg bus bandwidth" in line]
    return len(summary) == 2 and not any("FAILED" in line for line in summary)


def a_run(wrong=0, ranks=4):
    sizes = [2**20, 2**22, 2**24]
    pairs = []
    for size in sizes:
        what = {"size_bytes": size, "count": size // 4, "ranks": ranks}
        out = sample(size / 1e4, wrong=wrong, status="wrong" if wrong else "ok", **what)
        pairs.append((point(**what), half(out), half(sample(size / 2e4, in_place=True, **what))))
    said = notes([point(ranks=ranks)])
    lines = titled(sizes, ["#  Rank  0 Group  0 Pid      1 on          n device  0 [cpu] CPU"], said)
    lines += [row_line(*row) for row in pairs]
    return "\n".join(lines + footer_lines("all_reduce_perf", [h for _, *halves in pairs for h in halves]))


def test_the_parsers_of_users_read_it():
    text = a_run()  # algbw 10 and 20 GB/s, times 2 * 3 / 4
    assert superbench(text) == {2**20: 15.0, 2**22: 15.0, 2**24: 15.0}
    assert superbench(text, in_place=True) == {2**20: 30.0, 2**22: 30.0, 2**24: 30.0}
    assert superbench_old(text) == 15.0
    assert ai_cloud_validation(text) == (15.0, 0)
    assert gcm(text) == 22.5
    assert dcgm(text)


def test_the_parsers_of_users_see_wrong_data():
    text = a_run(wrong=5)
    assert ai_cloud_validation(text)[1] == 3
    assert not dcgm(text)


def test_a_world_of_one_reads_as_no_bandwidth():
    text = a_run(ranks=1)
    assert gcm(text) == 0.0
    assert ai_cloud_validation(text) == (0.0, 0)
    assert "The world has one rank" in text
