"""What runs in one process, by pytest-benchmark. Rounds are fixed: its calibration is for functions that cost nothing."""

import io
import random

import pytest

from commbench.ops.pattern import Pattern, Segment, count_wrong, fill
from commbench.results.export import to_csv
from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite
from commbench.timing.statistics import median_interval
from commbench.world.buffers import HostBuffer
from commbench.world.dtypes import DTYPES


def _pedantic(benchmark, function, rounds=5):
    return benchmark.pedantic(function, rounds=rounds, iterations=1, warmup_rounds=1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_fill_and_check_64_MiB(benchmark, dtype):
    pattern, size = Pattern(8, DTYPES[dtype], "sum"), 64 * 2**20
    buffer, count = HostBuffer(size), size // DTYPES[dtype].itemsize

    def pass_over():
        fill(buffer, pattern, 3, count)
        return count_wrong(buffer, pattern, [Segment((3,), 0, count, 0)])

    assert _pedantic(benchmark, pass_over) == (0, 0.0)


def test_interval_of_1000_samples(benchmark):
    samples = random.Random(1).choices(range(1000), k=1000)
    assert _pedantic(benchmark, lambda: median_interval(samples), rounds=50) is not None


def test_expand_full_for_64_ranks(benchmark):
    suite = check_suite(read_suite("full"), "full")
    steps = _pedantic(benchmark, lambda: expand(suite, 64, ["nccl"], [rank // 8 for rank in range(64)]))
    assert len(steps) > 500


@pytest.fixture
def stored(tmp_path):
    points = [
        Point("all_reduce", "gloo", 8 * i, members=(0, 1), ranks=2, params={"requested_bytes": 8 * i})
        for i in range(1, 1001)
    ]
    Plan("t", tuple((p,) for p in points), Settings()).save(tmp_path / "plan.json")
    journal = Journal(tmp_path / "launch-001.jsonl")
    draw = random.Random(2)
    for point in points:
        journal.write(
            Sample(point, 1, "", samples_us=tuple(draw.uniform(10, 20) for _ in range(100)), wrong=0).to_json()
        )
    journal.close()
    return tmp_path


def test_load_a_run_of_1000_points(benchmark, stored):
    assert len(_pedantic(benchmark, lambda: load_run(stored)).samples()) == 1000


def test_write_a_point(benchmark, tmp_path):
    journal = Journal(tmp_path / "launch-001.jsonl")
    line = Sample(Point("all_reduce", "gloo", 8), 1, "", samples_us=tuple(range(1000))).to_json()
    _pedantic(benchmark, lambda: journal.write(line), rounds=20)


def test_export_1000_points_as_csv(benchmark, stored):
    samples = load_run(stored).samples()
    _pedantic(benchmark, lambda: to_csv(samples, io.StringIO()))


def test_page_of_1000_points(benchmark, stored, tmp_path):
    from commbench.reports.page import write_report

    run = load_run(stored)
    assert _pedantic(benchmark, lambda: write_report(run, tmp_path / "report.html"), rounds=2).stat().st_size > 4e6
