"""A sweep killed with SIGKILL at a random moment, resumed, holds the same points as an unbroken one."""

import os
import random
import signal
import time

import pytest
from runs import commbench, points, rank_pids, start, wait_for

SWEEP = ("run", "all_reduce", "-n", 2, "--size", "8..64K", "--dtype", "float32,int8", "--budget", "0.05", "--no-report")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken") / "run"
    done = commbench(*SWEEP, "--out", out)
    assert done.returncode == 0, done.stderr
    return {row["id"] for row in points(out)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))])
def test_killed_and_resumed(tmp_path, unbroken, seed):
    out = tmp_path / "run"
    process = start(*SWEEP, "--out", out, "--backend", "mpi" if seed % 3 == 2 else "gloo")
    wait_for(lambda: (out / "plan.json").exists())
    time.sleep(random.Random(seed).uniform(0, 4.5))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = len(points(out))
    status = commbench("status", out)
    complete = before == len(unbroken)
    assert complete or status.returncode == 4
    again = commbench("run", "--resume", out, "--no-report")
    assert again.returncode == 0, again.stderr
    ids = [row["id"] for row in points(out)]
    assert len(ids) == len(set(ids)) == len(unbroken)
    if seed % 3 != 2:
        assert set(ids) == unbroken
    assert commbench("status", out).returncode == 0


@pytest.mark.full
def test_no_rank_outlives_a_killed_supervisor(tmp_path):
    from runs import alive

    for backend in ("gloo", "mpi"):
        out = tmp_path / backend
        process = start(
            "run", "all_reduce", "-n", 2, "--size", "8..64M", "--backend", backend, "--no-report", "--out", out
        )
        pids = rank_pids(out).values()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        wait_for(lambda pids=pids: not any(alive(pid) for pid in pids), timeout=10)


@pytest.mark.full
def test_a_run_that_is_being_measured_is_not_measured_twice(tmp_path):
    out = tmp_path / "run"
    process = start("run", "all_reduce", "-n", 2, "--size", "8..64M", "--no-report", "--out", out)
    rank_pids(out)
    second = commbench("run", "--resume", out)
    running = commbench("status", out)
    process.kill()
    process.communicate()
    assert second.returncode == 2 and "another process" in second.stderr
    assert running.returncode == 3 and "running" in running.stdout


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.full), "mpi"])
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_a_stopped_run_is_closed_tidily_and_goes_on(tmp_path, number, backend):
    from runs import alive, records

    out, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    process = start(*SWEEP, "--backend", backend, "--out", out, TMPDIR=str(scratch))
    pids = rank_pids(out).values()
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 4 and "--resume" in told and "Traceback" not in told
    assert "SIGTERM" in records(out)[-1]["reason"]
    assert not any(alive(pid) for pid in pids) and not list(scratch.glob("commbench-*"))
    assert commbench("run", "--resume", out, "--no-report").returncode == 0
