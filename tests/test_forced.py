"""Forced algorithms on real ranks: the library runs what was asked for, and a row says so only where it does."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs import COMMBENCH, Silent, clean_environment, commbench, points, records

from commbench.errors import PASS, UNMEASURED
from commbench.launch import forced
from commbench.launch.mpirun import mpirun_command
from commbench.launch.run import execute
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import Outcome
from commbench.ops import algorithms_open_mpi
from commbench.ops.algorithms import environment
from commbench.results.plan import Plan, Settings, WorldKey
from commbench.results.records import Point
from commbench.world.forced import own_choice

WHO_SENDS = Path(__file__).parent / "who_sends.py"
TO_ALL, STAR = [0, 1, 1, 1], [[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
PAIRS = [[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]]  # exchanges at distance 1, then 2
SILENT = [0, 0, 0, 0]


def ring(messages: int, ranks: int = 4) -> list[list[int]]:
    return [[messages * (peer == (rank + 1) % ranks) for peer in range(ranks)] for rank in range(ranks)]


def who_sends(op: str, algorithm: str, count: int, ranks: int) -> list[list[int]]:
    """How many messages each rank sends to each other one, as Open MPI counts them, with `algorithm` forced."""
    command = mpirun_command(ranks, [str(WHO_SENDS), op, str(count)], ["--mca", "pml_monitoring_enable", "1"])
    variables = algorithms_open_mpi.environment(op, algorithm)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment(**variables))
    assert done.stdout.startswith("[["), done.stderr
    return json.loads(done.stdout.splitlines()[0])


full = pytest.mark.full


@pytest.mark.parametrize(
    "op, algorithm, count, ranks, messages",
    [
        ("all_reduce", "basic_linear", 4000, 4, STAR),
        ("all_reduce", "ring", 4000, 4, ring(6)),
        ("all_reduce", "recursive_doubling", 4000, 4, PAIRS),
        pytest.param("all_reduce", "segmented_ring", 2_000_000, 4, ring(9), marks=full),  # 2 segments, then a whole one
        pytest.param("all_reduce", "rabenseifner", 4000, 4, [[2 * n for n in row] for row in PAIRS], marks=full),
        pytest.param("all_gather", "ring", 1000, 4, ring(3), marks=full),
        pytest.param("all_gather", "recursive_doubling", 1000, 4, PAIRS, marks=full),
        pytest.param(
            "all_gather", "neighbor", 1000, 4, [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], marks=full
        ),
        pytest.param("reduce_scatter", "recursive_halving", 1000, 4, PAIRS, marks=full),
        pytest.param("broadcast", "basic_linear", 100_000, 4, [TO_ALL, SILENT, SILENT, SILENT], marks=full),
        pytest.param("broadcast", "pipeline", 100_000, 4, [*ring(4)[:3], SILENT], marks=full),  # 4 segments of 128K
        pytest.param("broadcast", "binomial", 1000, 4, [PAIRS[0], [0, 0, 0, 1], SILENT, SILENT], marks=full),
        pytest.param("reduce", "linear", 1000, 4, [SILENT, *STAR[1:]], marks=full),
        pytest.param("gather", "binomial", 1000, 4, [SILENT, *STAR[1:3], [0, 0, 1, 0]], marks=full),
        pytest.param("scatter", "binomial", 1000, 4, [PAIRS[0], SILENT, [0, 0, 0, 1], SILENT], marks=full),
        pytest.param(
            "all_to_all",
            "modified_bruck",
            1000,
            4,
            [[0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]],
            marks=full,
        ),
        pytest.param("barrier", "linear", 0, 4, STAR, marks=full),
        pytest.param("barrier", "double_ring", 0, 4, ring(2), marks=full),
    ],
)
def test_open_mpi_sends_as_the_forced_algorithm_does(op, algorithm, count, ranks, messages):
    assert who_sends(op, algorithm, count, ranks) == messages


@pytest.mark.parametrize(
    "op, algorithm, count, ranks, messages",
    [
        ("all_reduce", "ring", 3, 4, PAIRS),
        pytest.param("all_reduce", "segmented_ring", 1_000_000, 4, ring(6), marks=full),
        pytest.param("all_reduce", "rabenseifner", 3, 4, STAR, marks=full),
        pytest.param("all_gather", "neighbor", 1000, 3, ring(2, 3), marks=full),
        pytest.param("broadcast", "scatter_allgather", 3, 4, [TO_ALL, SILENT, SILENT, SILENT], marks=full),
        pytest.param("broadcast", "split_binary_tree", 1, 4, [*ring(1)[:3], SILENT], marks=full),
        pytest.param("reduce", "rabenseifner", 3, 4, [SILENT, *STAR[1:]], marks=full),
    ],
)
def test_where_a_choice_is_refused_open_mpi_would_silently_run_another(op, algorithm, count, ranks, messages):
    assert who_sends(op, algorithm, count, ranks) == messages


@pytest.mark.full
def test_a_run_over_the_librarys_algorithms(tmp_path):
    out = tmp_path / "run"
    done = commbench(
        "run", "all_reduce", "--backend", "mpi", "--ranks", 2, "--size", "4,64K", "--budget", 0.1, "--out", out,
        "--algorithm", "library,ring,recursive_doubling,own:ring", "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {(row["algorithm"], row["params"]["requested_bytes"]): row for row in points(out)}
    assert len(rows) == 8
    assert {key: row["algorithm_seen"] for key, row in rows.items() if row["status"] == "ok"} == {
        ("library", 4): "tuned (component)", ("library", 2**16): "tuned (component)",
        ("ring", 2**16): "set: tuned/4 ring", ("own:ring", 4): "own:ring", ("own:ring", 2**16): "own:ring",
        ("recursive_doubling", 4): "set: tuned/3 recursive_doubling",
        ("recursive_doubling", 2**16): "set: tuned/3 recursive_doubling",
    }  # fmt: skip
    assert "runs recursive_doubling in place of ring" in rows["ring", 4]["reason"]
    assert all(row["wrong"] == 0 for row in rows.values() if row["status"] == "ok")
    numbers = [
        header["nodes"][0]["environment"].get("OMPI_MCA_coll_tuned_allreduce_algorithm")
        for header in records(out)
        if header["record"] == "header"
    ]
    assert numbers == [None, "4", "3"]


@pytest.mark.full
def test_ranks_that_mpirun_started_take_a_forced_algorithm_too(tmp_path):
    out = tmp_path / "run"
    mpirun = shutil.which("mpirun", path=Path(sys.executable).parent) or shutil.which("mpirun")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [
            mpirun, *root, "--oversubscribe", "-n", "2", *COMMBENCH, "run", "all_reduce", "--backend", "mpi", "--size",
            "64K", "--budget", "0.1", "--algorithm", "library,ring", "--no-report", "--out", out,
        ],
        capture_output=True, text=True, timeout=120, env=clean_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [(row["algorithm"], row["algorithm_seen"]) for row in points(out)] == [
        ("library", "not observed"), ("ring", "set: tuned/4 ring"),
    ]  # fmt: skip


def test_an_algorithm_that_nobody_has_is_a_usage_error(tmp_path):
    done = commbench("run", "all_reduce", "--algorithm", "rign", "--out", tmp_path / "run")
    assert done.returncode == 2 and "there is no algorithm 'rign'" in done.stderr and "own:ring" in done.stderr
    assert not (tmp_path / "run").exists()


def test_gloo_has_no_way_to_choose(tmp_path):
    out = tmp_path / "run"
    done = commbench("run", "all_reduce", "-n", 2, "--size", "8", "--algorithm", "ring", "--no-report", "--out", out)
    assert done.returncode == 3
    assert "every point was skipped" in done.stderr and "own:ring runs commbench's" in points(out)[0]["reason"]


def spec(backend: str, variables: dict) -> LaunchSpec:
    return LaunchSpec("run", "journal", backend, 2, 1, 60.0, forced=variables)


def test_an_mpi_that_does_not_know_the_parameter_is_told(monkeypatch):
    """MPICH, or an Open MPI that has dropped a number it does not know: both would run what they like."""
    wanted = algorithms_open_mpi.environment("all_reduce", "ring")
    taken = {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": 4}
    monkeypatch.setattr(forced, "open_mpi_parameter", taken.get)
    assert forced.refusal(spec("mpi", wanted)) is None
    for there in (None, 0):
        taken["coll_tuned_allreduce_algorithm"] = there
        assert "does not take coll_tuned_allreduce_algorithm=4" in forced.refusal(spec("mpi", wanted))


def test_a_number_that_open_mpi_drops_is_noticed():
    """The library prints a warning and goes on with its own choice."""
    variables = {
        **algorithms_open_mpi.environment("all_reduce", "ring"),
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "99",
    }
    code = (
        "from commbench.launch.forced import refusal; from commbench.launch.spec import LaunchSpec; "
        "from mpi4py import MPI; "
        f"print('told:', refusal(LaunchSpec('', '', 'mpi', 1, 1, 1.0, forced={variables!r})))"
    )
    command = mpirun_command(1, ["-c", code])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment(**variables))
    assert "told: Open MPI v" in done.stdout and "does not take coll_tuned_allreduce_algorithm=99" in done.stdout


def test_an_nccl_before_2_24_knows_no_choice_for_one_function(monkeypatch):
    import torch

    variables = {"NCCL_ALGO": "allreduce:ring"}
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 23, 4), raising=False)
    assert "NCCL 2.23.4 cannot" in forced.refusal(spec("nccl", variables))
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 24, 3), raising=False)
    assert forced.refusal(spec("nccl", variables)) is None
    assert forced.refusal(spec("nccl", {})) is None


def test_a_communicator_of_control_chooses_freely(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "allreduce:nvls")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    with own_choice():
        assert "NCCL_ALGO" not in os.environ
    assert os.environ["NCCL_ALGO"] == "allreduce:nvls" and "NCCL_PROTO" not in os.environ


class NcclSite:
    """Launches that end as NCCL ends one whose forced algorithm the machine lacks. Their specs are kept."""

    starts_mpi = False
    said = (
        "rank 0: DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage, NCCL version 2.29.7\nLast error:\n"
        "No algorithm/protocol available for function AllReduce with datatype ncclFloat32. NCCL_ALGO was set to ..."
    )

    def __init__(self):
        self.specs = []

    def can_launch(self, backend):
        return True

    def launch(self, launched, tick):
        self.specs.append(launched)
        return Outcome(UNMEASURED, self.said, [], 1) if launched.forced else Outcome(PASS)


def test_an_algorithm_that_the_machine_lacks_is_a_skip_for_the_whole_series(tmp_path):
    """One launch finds out; the other sizes are not tried one after another."""
    first = Point(
        op="all_reduce", backend="nccl", size_bytes=8, members=(0, 1), ranks=2, world_size=2, redop="sum", count=2
    )
    sizes = [replace(first, size_bytes=size, count=size // 4) for size in (8, 16, 32)]
    nvls = [replace(point, algorithm="nvls") for point in sizes]
    steps = tuple((point,) for point in (sizes[0], *nvls))
    plan = Plan("x", steps, Settings())
    plan.save(tmp_path / "plan.json")
    site = NcclSite()
    journal = tmp_path / "launch-001.jsonl"
    journal.write_text("")
    execute(replace(plan, steps=steps), tmp_path, site, Silent())
    rows = points(tmp_path)
    assert [(row["algorithm"], row["size_bytes"], row["status"]) for row in rows] == [
        ("nvls", size, "skip") for size in (8, 16, 32)
    ]
    assert "NCCL has no nvls for all_reduce of float32 on this machine" in rows[0]["reason"]
    timed = [launched for launched in site.specs if "NCCL_DEBUG" not in launched.environment]
    assert [launched.world for launched in timed] == [
        WorldKey("nccl", 2), WorldKey("nccl", 2, tuple(environment(nvls[0]).items()))
    ]  # fmt: skip
