"""A stored run leaves the house whole: figures agree with the raw times, and no text of the outside does harm."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from commbench.errors import UsageError
from commbench.results.export import to_csv, to_json, to_nccl_tests
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample
from commbench.results.store import Launch, Run

HEADER = {
    "ranks": [
        {"rank": r, "node": 0, "host": "node01", "pid": 40 + r, "device": "cpu", "device_id": None, "device_name": None}
        for r in range(5)
    ],
    "nodes": [{"cpu": "AMD EPYC"}],
}  # fmt: skip
TIMES = tuple(100.0 + i for i in range(120))


def sample(op="all_reduce", size_bytes=4000, in_place=False, launch=1, times=TIMES, wrong=0, status="ok", **what):
    reason = what.pop("reason", "")
    what = {"redop": "sum", "ranks": 4, "members": (0, 1, 2, 3), "count": size_bytes // 4} | what
    point = Point(op, "gloo", size_bytes, in_place=in_place, **what)
    return Sample(point, launch, "2026-01-01T00:00:00Z", samples_us=times, wrong=wrong, status=status, reason=reason)


def run_of(*samples, **settings):
    points = tuple((s.point,) for s in samples)
    plan = Plan(name="quick", steps=points, settings=Settings(**settings), launches=2)
    launches = tuple(
        Launch(Path(f"launch-{n:03d}.jsonl"), HEADER, tuple(s for s in samples if s.launch == n), {"exit_code": 0}, 0)
        for n in sorted({s.launch for s in samples})
    )
    return Run(Path("runs/quick"), plan, launches)


def csv_of(*samples):
    file = io.StringIO()
    to_csv(samples, file)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def json_of(run):
    file = io.StringIO()
    to_json(run, file)
    return json.loads(file.getvalue(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def tables_of(*samples, **settings):
    """The tables of an export, each a list of lines."""
    lines = "\n".join(to_nccl_tests(run_of(*samples, **settings)))
    return [table.splitlines() for table in lines.split("\n\n")]


def rows_of(table):
    return [line.split() for line in table if not line.startswith("#")]


def test_csv_has_identity_figures_and_outcome():
    (row,) = csv_of(sample(group="rail 0", root=-1))
    assert row["op"] == "all_reduce" and row["group"] == "rail 0" and row["members"] == "0..3" and row["root"] == "-1"
    assert float(row["time_us"]) == 159.5
    assert (row["samples"], float(row["min_us"]), float(row["max_us"])) == ("120", 100.0, 219.0)
    assert float(row["interval_low_us"]) < 159.5 < float(row["interval_high_us"])
    assert [float(row[f"p{p}_us"]) for p in (50, 95, 99)] == [159.5, 213.0, 218.0]
    assert float(row["algbw_GBps"]) == pytest.approx(4000 / 159.5 / 1e3)
    assert float(row["busbw_GBps"]) == pytest.approx(1.5 * 4000 / 159.5 / 1e3)
    assert float(row["busbw_low_GBps"]) < float(row["busbw_GBps"]) < float(row["busbw_high_GBps"])
    assert (row["wrong"], row["status"]) == ("0", "ok")


def test_csv_leaves_cells_empty_where_there_is_no_figure():
    skipped = sample(times=(), status="skip", reason="no in-place form", wrong=None)
    row = csv_of(skipped)[0]
    assert row["time_us"] == row["p99_us"] == row["busbw_GBps"] == row["wrong"] == row["skew_us"] == ""
    assert (row["samples"], row["status"], row["reason"]) == ("0", "skip", "no in-place form")
    assert csv_of(sample(ranks=1, members=(0,)))[0]["busbw_GBps"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1+1", "\r\n=1+1", " =1"])
def test_csv_text_never_becomes_a_formula(text):
    row = csv_of(sample(group=text, params={"=a": 1}))[0]
    assert row["group"].startswith("'") and row["group"][1:] == text.strip()
    assert row["params"] == '{"=a": 1}'


def test_csv_keeps_text_with_commas_quotes_and_lines_in_its_cell():
    rows = csv_of(sample(group='a,"b"\nc;\x1b[0m'), sample(group="\ud800"))
    assert [row["group"] for row in rows] == ['a,"b" c; [0m', ""]
    assert rows[0]["status"] == "ok"


def test_csv_rows_with_parts_and_without_share_one_header():
    timed = replace(sample(), parts_us={"dispatch": (1.0, 3.0, 2.0), "=combine": (5.0,)})
    first, second = csv_of(sample(), timed)
    assert (first["part_dispatch_us"], second["part_dispatch_us"], second["part_=combine_us"]) == ("", "2.0", "5.0")
    assert csv_of() == []


def test_csv_writes_thousands_of_members_short():
    row = csv_of(sample(members=tuple(range(8)) + (16,) + tuple(range(24, 16384))))[0]
    assert row["members"] == "0..7 16 24..16383"


def test_json_holds_plan_launches_raw_samples_and_figures():
    broken = sample(launch=2, times=(), status="error", reason="rank 3 was lost", wrong=None)
    document = json_of(run_of(sample(), broken))
    assert document["schema"] == 1
    assert document["plan"]["name"] == "quick" and document["plan"]["settings"]["target"] == 0.02
    assert document["plan"]["steps"][0][0]["id"] == sample().point.id
    first, second = document["launches"]
    assert (first["journal"], first["header"], first["end"]) == ("launch-001.jsonl", HEADER, {"exit_code": 0})
    (point,) = first["points"]
    assert point["samples_us"] == list(TIMES)
    assert point["computed"]["time_us"] == 159.5 and point["computed"]["samples"] == 120
    assert second["points"][0]["status"] == "error" and second["points"][0]["computed"]["time_us"] is None


def test_json_refuses_nan_and_writes_nothing():
    file = io.StringIO()
    with pytest.raises(UsageError, match="NaN"):
        to_json(run_of(sample(times=(float("nan"),))), file)
    assert file.getvalue() == ""


def test_nccl_tests_pairs_both_placements_and_sorts_sizes():
    times = {(4000, False): 20.0, (4000, True): 10.0, (1000, False): 5.0, (1000, True): 4.0}
    samples = [sample(size_bytes=size, in_place=place, times=(t,) * 20) for (size, place), t in times.items()]
    (table,) = tables_of(*samples, iters=20)
    assert rows_of(table) == [
        "1000 250 float sum -1 5.00 0.20 0.30 0 4.00 0.25 0.38 0".split(),
        "4000 1000 float sum -1 20.00 0.20 0.30 0 10.00 0.40 0.60 0".split(),
    ]
    assert table[1:4] == [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1000 maxBytes 4000 step: 4(factor) warmup iters: 10 iters: 20 agg iters: 1 "
        "validation: 1 graph: 0 unalign: 0",
        "#",
    ]
    assert table[5:9] == [
        f"#  Rank  {r} Group  0 Pid     4{r} on     node01 device  0 [cpu] AMD EPYC" for r in range(4)
    ]
    assert "# Avg bus bandwidth    : 0.39375 " in table


def test_nccl_tests_makes_a_table_for_each_thing_a_program_is_started_for():
    tables = tables_of(
        sample(), sample("all_gather", redop="none"), sample(dtype="float16"), sample(redop="max"),
        sample(group="rail 1"), sample(launch=2), sample("broadcast", redop="none", root=2),
        sample("broadcast", redop="none", root=3), sample(timing="streaming"), sample(in_place=True), sample(algorithm="own:ring"),
    )  # fmt: skip
    assert len([table for table in tables if rows_of(table)]) == 10
    assert len(rows_of(tables[0])) == 1 and "N/A" not in rows_of(tables[0])[0]  # the first and the in-place one


def test_nccl_tests_keeps_uneven_all_to_all_in_one_table_and_batches_in_rows():
    asked = {size: {"matrix": [[size]], "requested_bytes": size} for size in (64, 128)}
    uneven = [sample("all_to_all_v", size, redop="none", params=params) for size, params in asked.items()]
    streamed = [sample("all_gather", redop="none", timing="streaming", batch=batch) for batch in (10, 20)]
    first, second = tables_of(*uneven, *streamed)
    assert first[1].endswith("alltoallv_perf") and len(rows_of(first)) == 2
    assert len(rows_of(second)) == 2


def test_nccl_tests_says_what_is_missing_wrong_or_left_out():
    tables = tables_of(
        sample(times=(), status="error", reason="rank 3\nwas lost", wrong=None),
        sample(in_place=True, status="wrong", wrong=9),
        sample(size_bytes=8000, times=(), status="skip", reason="too large", wrong=None),
        sample("barrier", size_bytes=0),
        sample("p2p_bw", redop="none"),
        sample("p2p_bw", redop="none", launch=2),
    )
    assert rows_of(tables[0])[0][5:] == ["N/A"] * 4 + "159.50 0.03 0.04 9".split()
    assert rows_of(tables[0])[1][5:] == ["N/A"] * 8
    assert rows_of(tables[0])[0][0] == "4000"
    assert "# N/A stands for error: rank 3 was lost" in tables[0]
    assert "# N/A stands for skip: too large" in tables[0]
    assert "# Out of bounds values : 1 FAILED" in tables[0]
    assert tables[-1] == [
        "# Left out: 1 result(s) of barrier, which nccl-tests has no program for",
        "# Left out: 2 result(s) of p2p_bw, which nccl-tests has no program for",
    ]


def test_nccl_tests_keeps_sizes_that_round_to_the_same():
    small = [sample("all_gather", 0, redop="none", params={"requested_bytes": size}) for size in (8, 4)]
    skipped = sample("all_gather", 0, True, redop="none", params={"requested_bytes": 64}, times=(), status="skip")
    (table,) = tables_of(*small, sample("all_gather", 48, redop="none", params={"requested_bytes": 64}), skipped)
    assert " minBytes 4 maxBytes 64 " in table[2]
    assert [row[0] for row in rows_of(table)] == ["0", "0", "48"]


def test_nccl_tests_says_when_rows_took_their_own_number_of_samples():
    (table,) = tables_of(sample(times=TIMES[:30]), sample(in_place=True))
    assert " iters: 120 " in table[2]
    assert "# Each row took as many samples as its precision needed: 30 to 120" in table


def test_nccl_tests_has_no_table_for_a_run_of_pairs():
    with pytest.raises(UsageError, match="holds p2p_bw, which nccl-tests has no table for; use --format csv or json"):
        to_nccl_tests(run_of(sample("p2p_bw", redop="none")))
