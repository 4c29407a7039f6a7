"""pytest-benchmark's JSON: ours with records in extra_info, anyone's without, saved forms without data, and damage."""

import json
import subprocess
import sys

import pytest
from test_importers import read

from commbench.errors import MeasureError
from commbench.kernels.flops import Attention
from commbench.kernels.masks import CAUSAL
from commbench.kernels.params import from_params, to_params

OURS = {
    "op": "attention_forward",
    "algorithm": "tiled",
    "device": "cpu",
    "dtype": "float32",
    "flops": 2e9,
    "size_bytes": 4096,
    "params": {"seqlen": 512, "causal": True},
}


def document(*benchmarks, **more):
    machine = {"node": "box", "release": "6.1", "python_version": "3.12.1", "cpu": {"brand_raw": "EPYC", "count": 2}}
    told = {"machine_info": machine, "commit_info": {}, "datetime": "2026-01-02T03:04:05+00:00", "version": "5.3.1"}
    return told | {"benchmarks": list(benchmarks)} | more


def benchmark(name="test_a[1]", data=(2e-6, 1e-6, 3e-6), **more):
    stats = {"min": 1e-6, "max": 3e-6, "mean": 2e-6, "median": 2e-6, "rounds": 3, "iterations": 10}
    stats |= {} if data is None else {"data": list(data)}
    told = {"group": None, "name": name, "fullname": f"t/test_x.py::{name}", "params": {"n": 1}, "extra_info": {}}
    return told | {"stats": stats} | more


def read_json(data, indent=4):
    return read(json.dumps(data, indent=indent))


def test_a_case_of_attention_comes_back_whole():
    case = Attention(2, 4, 2, 512, 512, 64, 64, mask=CAUSAL)
    (test,) = read_json(document(benchmark(extra_info=OURS | {"params": to_params(case)})))
    assert from_params(test.samples[0].point.params, "float32") == case  # its window is [null, 0]


@pytest.mark.parametrize("indent", [None, 4])
def test_what_extra_info_says_is_the_record(indent):
    (test,) = read_json(document(benchmark(extra_info=OURS)), indent)
    (sample,) = test.samples
    assert sample.samples_us == (2.0, 1.0, 3.0) and sample.flops == 2e9
    point = sample.point
    assert (point.op, point.algorithm, point.backend, point.dtype) == ("attention_forward", "tiled", "cpu", "float32")
    assert (point.size_bytes, point.params, point.kind, point.ranks) == (4096, OURS["params"], "kernel", 1)
    assert test.nodes == [{"host": "box", "kernel": "6.1", "cpu": "EPYC", "cores": 2}]
    assert sample.started_at == "2026-01-02T03:04:05+00:00"


def test_a_benchmark_of_any_project_is_named_as_its_function():
    (test,) = read_json(document(benchmark(), benchmark("test_a[2]", params={"n": 2, "f": {"no": "scalar"}})))
    assert [s.point.op for s in test.samples] == ["test_a", "test_a"]
    assert [s.point.params for s in test.samples] == [{"file": "t/test_x.py", "n": 1}, {"file": "t/test_x.py", "n": 2}]
    assert len({s.point.id for s in test.samples}) == 2
    assert test.samples[0].reported["iterations"] == 10


def test_without_data_the_median_is_the_sample():
    (test,) = read_json(document(benchmark(data=None)))
    assert test.samples[0].samples_us == (2.0,)
    assert test.samples[0].reported["max_us"] == 3.0


@pytest.mark.parametrize("data", [[0.0, 1e-6], [-1.0], ["x"], [float("nan")], [True], []])
def test_a_time_that_is_none_never_becomes_one(data):
    (test,) = read_json(document(benchmark(data=data)))
    assert test.samples[0].samples_us == (2.0,)  # of the median, which is one


def test_what_says_nothing_is_left_out_and_told():
    odd = [benchmark(name=None), benchmark(name="<b>"), benchmark(stats=None, data=None), "no table"]
    (test,) = read_json(document(benchmark(), *odd))
    assert len(test.samples) == 1
    assert test.notes == ["4 benchmark(s) have no name or no time above 0 and were left out"]
    with pytest.raises(MeasureError, match="pytest-benchmark without a benchmark that has a time above 0"):
        read_json(document(*odd))


@pytest.mark.parametrize("key", list(OURS))
@pytest.mark.parametrize("odd", [None, [], {}, -1, 1e300, True, "x" * 5000, {"a": [[["deep"]]]}])
def test_odd_words_in_extra_info(key, odd):
    (test,) = read_json(document(benchmark(extra_info=OURS | {key: odd})))
    (sample,) = test.samples
    assert len(json.dumps(sample.to_json())) < 3000 and sample.samples_us == (2.0, 1.0, 3.0)


def test_a_file_of_the_real_tool(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(benchmark):\n    benchmark.pedantic(sum, ((1, 2),), rounds=5)\n")
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-json", "a.json", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (test,) = read((tmp_path / "a.json").read_text())
    assert test.tool.startswith("pytest-benchmark ") and len(test.samples[0].samples_us) == 5
    assert all(0 < time_us < 1e6 for time_us in test.samples[0].samples_us)
