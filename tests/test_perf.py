"""`commbench perf`: the table that programs parse, from real ranks."""

import json
import re

import pytest
from runs import commbench

ROW = re.compile(r"^\s+\d+\s+\d+\s+\S+\s+\S+\s+-?\d+(\s+[\d.e+]+){3}\s+(\d+|N/A)(\s+[\d.e+]+){3}\s+(\d+|N/A)$")


def _table(*arguments, timeout=120):
    done = commbench("perf", *arguments, timeout=timeout)
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    return done, rows


def test_the_usual_acceptance_call(tmp_path):
    done, rows = _table(
        *"all_reduce -b 8 -e 64K -f 2 -g 2 -n 20 -w 5 -c 1 -d float -o sum -G 0 --out".split(), tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    assert [int(row[0]) for row in rows] == [8 * 2**k for k in range(14)]
    assert all(ROW.match(line) for line in done.stdout.splitlines() if not line.startswith("#"))
    assert all(len(row) == 13 and row[8] == row[12] == "0" and row[2:5] == ["float", "sum", "-1"] for row in rows)
    for row in rows[-4:]:
        size, time_us, algbw, busbw = int(row[0]), float(row[5]), float(row[6]), float(row[7])
        assert abs(algbw - size / time_us / 1e3) <= 0.011 and abs(busbw - algbw) <= 0.011  # 2(n-1)/n is 1 for 2 ranks
    average = float(re.search(r"# Avg bus bandwidth\s*: ([\d.]+)", done.stdout)[1])
    assert abs(average - sum(float(row[i]) for row in rows for i in (7, 11)) / 28) < 0.01
    assert "# Out of bounds values : 0 OK" in done.stdout
    assert re.search(r"warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0", done.stdout)


@pytest.mark.full
def test_blocks_are_rounded_to_16_bytes_as_in_nccl_tests(tmp_path):
    done, rows = _table(
        "all_gather_perf", "-b", "8", "-e", "1000", "-f", "5", "-g", "3", "--backend", "mpi", "--out", tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    assert [int(row[0]) for row in rows] == [0, 0, 192, 960]
    assert [int(row[1]) for row in rows] == [0, 0, 16, 80]


@pytest.mark.full
def test_alltoall_in_place_is_timed_and_not_checked_on_gloo(tmp_path):
    done, rows = _table("alltoall", "-b", "4K", "-g", "2", "--out", tmp_path / "run")
    assert done.returncode == 0 and rows[0][8] == "0" and rows[0][12] == "N/A", done.stdout


@pytest.mark.full
def test_a_missing_half_is_na_with_its_reason(tmp_path):
    done, rows = _table("gather", "-b", "4K", "-g", "2", "--backend", "mpi", "--out", tmp_path / "run")
    assert done.returncode == 0 and rows[0][9:] == ["N/A"] * 4, done.stdout


@pytest.mark.full
def test_several_types_and_reductions(tmp_path):
    done, rows = _table("all_reduce", "-b", "4K", "-d", "float,half", "-o", "all", "-g", "2", "--out", tmp_path / "run")
    assert done.returncode == 0
    assert [(row[2], row[3]) for row in rows] == [
        (d, r) for d in ("float", "half") for r in ("sum", "prod", "max", "min", "avg")
    ]


@pytest.mark.full
def test_one_rank_says_that_busbw_does_not_apply(tmp_path):
    done, rows = _table("all_reduce", "-b", "4K", "-g", "1", "--out", tmp_path / "run")
    assert done.returncode == 0 and "one rank" in done.stdout and rows[0][7] == "0.00"


@pytest.mark.full
def test_json_beside_the_table(tmp_path):
    done, rows = _table(
        "broadcast", "-b", "4K", "-g", "2", "-r", "1", "-J", tmp_path / "out.json", "--out", tmp_path / "run"
    )
    assert done.returncode == 0 and rows[0][4] == "1"
    points = json.loads((tmp_path / "out.json").read_text())["launches"][0]["points"]
    assert [point["over_ranks"] for point in points] == ["mean", "mean"]
    assert all(
        point["samples_us"] == [sum(point["rank_median_us"]) / 2]
        or abs(point["samples_us"][0] - sum(point["rank_median_us"]) / 2) < 1e-3
        for point in points
    )
