"""Worlds that a launcher started: torchrun, mpirun, and the variables that srun sets."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import COMMBENCH, alive, clean_environment, commbench, points, rank_pids, records, wait_for

from commbench.errors import HangError
from commbench.launch.identity import Joined
from commbench.launch.joined import _connect

RUN = ["run", "all_reduce", "--size", "8,64K", "--budget", "0.1", "--no-report"]
BIN = Path(sys.executable).parent


def _srun(tasks: int, arguments, job: int, **variables):
    """`tasks` processes with the variables that srun gives its tasks; Popen objects in rank order."""
    return [
        subprocess.Popen(
            [*COMMBENCH, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(rank),
                SLURM_NODEID="0",
                SLURM_STEP_ID="0",
                SLURM_STEP_NUM_TASKS=str(tasks),
                SLURM_STEP_TASKS_PER_NODE=str(tasks),
                SLURM_JOB_ID=str(job),
                SLURM_STEP_NODELIST="localhost",
                **variables,
            ),
        )
        for rank in range(tasks)
    ]


def test_srun_tasks_form_one_world(tmp_path):
    tasks = _srun(3, [*RUN, "--out", tmp_path / "run"], 4711, MASTER_PORT="29777")
    told = [task.communicate(timeout=90)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0], told
    assert [row["ranks"] for row in points(tmp_path / "run")] == [3, 3]
    assert told[1] == told[2] == ""
    header = records(tmp_path / "run")[0]
    assert header["world_size"] == 3 and len(header["ranks"]) == 3
    assert header["nodes"][0]["environment"]["MASTER_PORT"] == "29777"


@pytest.mark.full
def test_a_usage_error_of_rank_0_ends_all_tasks(tmp_path):
    tasks = _srun(2, ["run", "all_reduce", "--ranks", 16, "--out", tmp_path / "run"], 4712)
    told = [task.communicate(timeout=60)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [2, 2]
    assert "expected 16 ranks, world size is 2" in told[0]


@pytest.mark.full
def test_a_missing_task_is_named(tmp_path):
    tasks = _srun(3, [*RUN, "--timeout", 6, "--out", tmp_path / "run"], 4713)
    tasks[2].kill()
    begin = time.monotonic()
    told = [task.communicate(timeout=60)[0] for task in tasks]
    assert tasks[0].returncode == tasks[1].returncode == 4 and time.monotonic() - begin < 30
    assert "missing rank(s) [2]" in told[0]


@pytest.mark.full
def test_a_master_address_that_is_not_rank_0_s_host_is_told():
    me = Joined("srun", 0, 2, 0, 1, "192.0.2.1", 29778, "MASTER_ADDR")  # an address of nobody: RFC 5737
    with pytest.raises(HangError, match="rank 0 is on .* at 192.0.2.1:29778 .from MASTER_ADDR. .* set MASTER_ADDR to"):
        _connect(me, 1.0)


def test_what_waits_for_an_answer_ends_in_time(tmp_path):
    """A block that takes too long ends the process; one that does not leaves no thread behind."""
    code = (
        "import threading, time; from commbench.launch.in_time import in_time\n"
        "with in_time(5, 'node1:29500'): pass\n"
        "print(threading.active_count(), flush=True)\n"
        "with in_time(0.2, 'node1:29500'): time.sleep(30)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (4, "1\n")
    assert done.stderr == "commbench: rank 0's supervisor at node1:29500 has not answered for 0.2 s\n"


@pytest.mark.full
def test_a_killed_rank_ends_all_tasks(tmp_path):
    out = tmp_path / "run"
    tasks = _srun(3, ["run", "all_reduce", "--size", "8..64M", "--no-report", "--out", out], 4714)
    pids = rank_pids(out)
    os.kill(pids[1], signal.SIGKILL)
    told = [task.communicate(timeout=60)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [4, 4, 4], told
    assert "lost rank 1" in told[0]
    assert records(out)[-1]["missing"][0]["rank"] == 1
    assert not any(alive(pid) for pid in pids.values())


@pytest.mark.full
def test_a_stopped_task_is_named(tmp_path):
    out = tmp_path / "run"
    tasks = _srun(2, ["run", "all_reduce", "--size", "8..64M", "--no-report", "--timeout", 5, "--out", out], 4715)
    pids = rank_pids(out)
    os.kill(pids[1], signal.SIGSTOP)
    told = [task.communicate(timeout=60)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [4, 4], told
    assert "rank 1" in told[0] and "SIGSTOP" in told[0]


@pytest.mark.full
def test_a_lost_supervisor_is_named(tmp_path):
    out = tmp_path / "run"
    tasks = _srun(2, ["run", "all_reduce", "--size", "8..64M", "--no-report", "--timeout", 8, "--out", out], 4717)
    rank_pids(out)
    tasks[1].kill()
    told = [task.communicate(timeout=60)[0] for task in tasks]
    assert tasks[0].returncode == 4 and "lost rank 1 on" in told[0], told[0]
    assert records(out)[-1]["missing"][0]["rank"] == 1


def test_torchrun(tmp_path):
    out = tmp_path / "run"
    done = subprocess.run(
        [BIN / "torchrun", "--nproc-per-node", "2", "--no-python", *COMMBENCH, *RUN, "--out", out],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert [row["ranks"] for row in points(out)] == [2, 2]


def _mpirun(*command):
    """`command` on two ranks of this machine, to its end."""
    mpirun = shutil.which("mpirun", path=BIN) or shutil.which("mpirun")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return subprocess.run(
        [mpirun, *root, "--oversubscribe", "-n", "2", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
    )


def _rows(out: Path) -> list[tuple]:
    return sorted((row["backend"], row["launch"]) for row in points(out) if row["ranks"] == 2 and row["wrong"] == 0)


@pytest.mark.full
def test_mpirun_runs_gloo_and_mpi_launch_after_launch(tmp_path):
    out = tmp_path / "run"
    done = _mpirun(*COMMBENCH, *RUN, "--backend", "gloo,mpi", "--launches", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    assert _rows(out) == sorted((b, n) for b in ("gloo", "mpi") for n in (1, 2) for _ in range(2))


@pytest.mark.full
def test_across_nodes_each_mpi_launch_waits_for_a_start_of_its_own(tmp_path):
    """Each rank believes to be on a node of its own, by its host name."""
    if os.geteuid() != 0:
        pytest.skip("a host name of its own needs root")
    out = tmp_path / "run"
    nodes = ["unshare", "--uts", "sh", "-c", 'hostname node$OMPI_COMM_WORLD_RANK && exec "$@"', "sh", *COMMBENCH]
    what = ["--size", "8", "--iters", "5", "--backend", "gloo,mpi", "--launches", "2", "--iface", "lo"]
    done = _mpirun(*nodes, "run", "all_reduce", *what, "--no-report", "--out", out)
    assert done.returncode == 3 and "so 1 launch(es) wait for a start each" in done.stderr, done.stderr
    assert _rows(out) == [("gloo", 1), ("gloo", 2), ("mpi", 1)] and {row["nodes"] for row in points(out)} == {2}
    told = commbench("status", out)
    assert told.returncode == 3 and "1 point(s) are not measured yet" in told.stdout
    assert commbench("status", "--goes-on", out).returncode == 0
    again = _mpirun(*nodes, "run", "--resume", out, "--iface", "lo", "--no-report")
    assert again.returncode == 0, again.stderr
    assert _rows(out)[-1] == ("mpi", 2) and commbench("status", "--goes-on", out).returncode == 1


@pytest.mark.full
def test_mpi_that_forms_worlds_of_one_is_refused(tmp_path):
    """Tasks that srun started without MPI support: each would be rank 0 of 1."""
    out = tmp_path / "run"
    tasks = _srun(2, [*RUN, "--backend", "mpi", "--out", out], 4716)
    told = [task.communicate(timeout=90)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [3, 3]
    assert "expected 2 ranks, but MPI's world has 1" in told[0]
    assert wait_for(lambda: records(out))[-1]["exit_code"] == 3
