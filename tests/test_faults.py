"""A rank that dies or stops ends the run within seconds, by name, with exit code 4; finished rows stay."""

import os
import signal
import time

import pytest
from runs import alive, commbench, points, rank_pids, records, start, wait_for

SWEEP = ("run", "all_reduce", "--size", "8..1K", "--no-report")
ITERS = {"gloo": 600, "mpi": 30_000}  # about a second a point, so that the signal finds a run


def _sweep_with(signal_number, victim, backend, out, timeout_s):
    """Run a sweep of 3 ranks, send the signal to rank `victim` after the second row; (process, seconds it took to end)."""
    process = start(
        *SWEEP, "-n", 3, "--backend", backend, "--iters", ITERS[backend], "--timeout", timeout_s, "--out", out
    )
    wait_for(lambda: len(points(out)) >= 2)
    pids = rank_pids(out)
    os.kill(pids[victim], signal_number)
    begin = time.monotonic()
    output, errors = process.communicate(timeout=60)
    took = time.monotonic() - begin
    assert not any(alive(pid) for pid in pids.values())
    return process, errors + output, took


@pytest.mark.parametrize("backend", ["gloo", pytest.param("mpi", marks=pytest.mark.full)])
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_killed_rank_is_named(tmp_path, backend, victim):
    out = tmp_path / "run"
    process, told, took = _sweep_with(signal.SIGKILL, victim, backend, out, 30)
    assert process.returncode == 4
    assert f"rank {victim} on" in told and "SIGKILL" in told
    assert took < 10
    end = records(out)[-1]
    assert end["exit_code"] == 4 and [m["rank"] for m in end["missing"]] == [victim]
    assert len(points(out)) >= 2 and all(p["status"] == "ok" for p in points(out))
    status = commbench("status", out)
    assert status.returncode == 4 and f"lost: rank {victim}" in status.stdout


@pytest.mark.parametrize("backend", ["gloo", pytest.param("mpi", marks=pytest.mark.full)])
def test_a_stopped_rank_is_named_after_the_timeout(tmp_path, backend):
    out = tmp_path / "run"
    process, told, took = _sweep_with(signal.SIGSTOP, 1, backend, out, 3)
    assert process.returncode == 4
    assert "rank 1 on" in told and "SIGSTOP" in told and "--timeout" in told
    assert 2 < took < 15
    end = records(out)[-1]
    assert end["exit_code"] == 4 and end["missing"][0]["rank"] == 1 and end["point"]


@pytest.mark.full
def test_a_resumed_run_after_a_lost_rank_is_whole(tmp_path):
    out = tmp_path / "run"
    _sweep_with(signal.SIGKILL, 1, "gloo", out, 30)
    again = commbench("run", "--resume", out, "--no-report")
    assert again.returncode == 0, again.stderr
    ids = [p["id"] for p in points(out)]
    assert len(ids) == len(set(ids)) == 8
    assert commbench("status", out).returncode == 0
