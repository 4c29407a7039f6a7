"""The shipped scripts as real jobs of a real Slurm whose nodes have a network each, so that localhost is no other node."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_slurm import NoSlurm, check, local_slurm

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
SITE = """
ranks_per_node = {ranks}
cpus_per_rank = 2
exclusive = false
backend = "gloo"
interface = "eth0"
mpi = "{mpi}"
[options]
mpirun = ["--allow-run-as-root"]
[environment]
OMPI_MCA_mpi_yield_when_idle = "1" # the nodes share this machine's cores, which Open MPI cannot know
"""
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
SHORT = "--size 8,64K --budget 0.05"
LONG = "--size 8..256 --budget 0.6 --target 0.00001"  # 6 points of 0.6 s


def need_slurm() -> None:
    """Install Debian's Slurm where that is possible; skip the test, with the reason, where there is none."""
    try:
        check()
    except NoSlurm as why:
        if os.geteuid() != 0:
            pytest.skip(str(why))
        subprocess.run([HERE.parent / "system-packages.sh"], capture_output=True, timeout=600)
        try:
            check()
        except NoSlurm as still:
            pytest.skip(str(still))


@contextmanager
def slurm_here(folder: Path, nodes: int, network: str):
    """A cluster in which jobs find this Python's commbench; folder/small is a disk of 64 KB."""
    need_slurm()
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        with local_slurm(folder / "slurm", nodes, network) as cluster:
            yield cluster
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_here(tmp_path_factory.mktemp("cluster"), 4, "namespaces") as running:
        yield running


@dataclass
class Job:
    cluster: object
    folder: Path
    ids: list[str]

    @property
    def id(self) -> str:
        return self.ids[0]

    def state(self) -> str:
        """The state of the first of its jobs that is not over, or of the first."""
        told = self.cluster.call("squeue", "-h", "-r", "-t", "all", "-j", ",".join(self.ids), "-o", "%T").split()
        return next((word for word in told if word not in OVER), told[0])

    def wait(self, timeout=90) -> str:
        wait_for(lambda: self.state() in OVER, timeout, self.output)
        return self.state()

    def output(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))

    def records(self, kind: str, run="*") -> list[dict]:
        lines = [
            line
            for path in sorted(self.folder.glob(f"{run}/launch-*.jsonl"))
            for line in path.read_bytes().splitlines(True)
        ]
        records = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [record for record in records if record["record"] == kind]

    def has_points(self, count=1) -> bool:
        return len(self.records("point")) >= count


def wait_for(condition, timeout=60, context=lambda: "") -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in time\n{context()}"
        time.sleep(0.05)


def commbench(cluster, *arguments, **environment) -> subprocess.CompletedProcess:
    launcher = ("SLURM_", "OMPI_", "PMI", "MASTER_", "GLOO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launcher)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "commbench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**kept, "PATH": path, **cluster.environment, **environment},
    )


def site_file(tmp_path, ranks=1, mpi="pmix") -> Path:
    path = tmp_path / "site.toml"
    path.write_text(SITE.format(ranks=ranks, mpi=mpi))
    return path


def submit(cluster, tmp_path, script, *arguments, site=None, out=None) -> Job:
    folder = out or tmp_path / "job"
    done = commbench(
        cluster, "slurm", "submit", script, "--site", site or site_file(tmp_path), "--out", folder, *arguments
    )
    assert done.returncode == 0, done.stderr
    job = Job(cluster, folder, re.match(r"job ([\d ]+)\n", done.stdout)[1].split())
    print(f"job {' '.join(job.ids)}: {script} in {folder}")
    return job


def test_sweep_on_gloo_and_mpi(cluster, tmp_path):
    """Ranks lie on the nodes block by block, rank 0 on the first, and each announces its own address.

    The second MPI world across nodes gets a step of its own.
    """
    site, flags = site_file(tmp_path, ranks=2), f"{SHORT} --launches 2"
    job = submit(
        cluster, tmp_path, "sweep", "--suite", "all_reduce", "--backend", "gloo,mpi", "--flags", flags, site=site
    )
    assert job.wait() == "COMPLETED", job.output()
    points = job.records("point")
    assert sorted((p["backend"], p["size_bytes"], p["launch"]) for p in points) == [
        (backend, size, launch) for backend in ("gloo", "mpi") for size in (8, 65536) for launch in (1, 2)
    ]
    steps = [header["nodes"][0]["environment"]["SLURM_STEP_ID"] for header in job.records("header")]
    assert len(steps) == 4 and steps[-1] != steps[0] and "so 1 launch(es) wait for a start each" in job.output()
    assert all(p["status"] == "ok" and p["wrong"] == 0 and p["ranks"] == 4 and p["nodes"] == 2 for p in points)
    for header in job.records("header"):
        assert [rank["host"] for rank in header["ranks"]] == ["node1", "node1", "node2", "node2"]
        assert [rank["interface"] for rank in header["ranks"]] == ["eth0"] * 4
        assert [rank["address"] for rank in header["ranks"]] == [f"{cluster.subnet}.{n}" for n in (1, 1, 2, 2)]
        environment = header["nodes"][0]["environment"]
        assert environment["MASTER_ADDR"] == "node1" and environment["SLURM_JOB_ID"] == job.id
        assert environment["MASTER_PORT"] == str(20000 + int(job.id))
        assert environment["SLURM_CPUS_PER_TASK"] == "2" and "SLURM_RESTART_COUNT" not in environment
    assert job.output().rstrip().endswith("exit code 0"), "the last line is the run's own word"


def test_scaling_on_gloo_and_mpi(cluster, tmp_path):
    """Each element is given as many nodes as its index says, after the one before it."""
    job = submit(
        cluster, tmp_path, "scaling", "--nodes", "2,4", "--suite", "all_reduce", "--backend", "gloo,mpi", "--flags", SHORT
    )  # fmt: skip
    wait_for(lambda: job.records("point", "nodes-2"), 60, job.output)
    held = cluster.call("squeue", "-h", "-t", "running", "-o", "%A %D").split()
    assert held == [job.ids[0], "2"], "the larger one waits"
    assert job.wait() == "COMPLETED", job.output()
    for nodes in (2, 4):
        points = job.records("point", f"nodes-{nodes}")
        assert [p["status"] for p in points] == ["ok"] * 4 and {p["ranks"] for p in points} == {nodes}
        hosts = [rank["host"] for rank in job.records("header", f"nodes-{nodes}")[0]["ranks"]]
        assert hosts == [f"node{n + 1}" for n in range(nodes)]
    table = tmp_path / "rows.csv"
    told = commbench(cluster, "slurm", "collect", job.folder, "--out", table)
    assert told.returncode == 0 and len(told.stdout.splitlines()) == 3, told.stderr + told.stdout
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 8 and {row["run"] for row in rows} == {str(job.folder / f"nodes-{n}") for n in (2, 4)}
    assert all(float(row["time_us"]) > 0 for row in rows)
    status = commbench(cluster, "slurm", "status", job.folder)
    assert status.returncode == 0 and status.stdout.count("COMPLETED") == 2, status.stdout


def test_pairs_on_gloo_and_mpi(cluster, tmp_path):
    job = submit(cluster, tmp_path, "pairs", "--backend", "gloo,mpi", "--flags", "--size 64K --budget 0.05")
    assert job.wait() == "COMPLETED", job.output()
    points = job.records("point")
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]  # each in both directions
    for backend in ("gloo", "mpi"):
        assert sorted(tuple(p["members"]) for p in points if p["backend"] == backend) == sorted(pairs * 2)
    assert all(p["status"] == "ok" and p["scope"] == "inter" and p["samples_us"] for p in points)


def test_rails_by_torchrun(cluster, tmp_path):
    """torchrun numbers its ranks as Slurm numbers the nodes, so a rail is the same local rank of each node."""
    site = site_file(tmp_path, ranks=2)
    job = submit(cluster, tmp_path, "rails", "--launcher", "torchrun", "--flags", "--size 64K --budget 0.05", site=site)
    assert job.wait() == "COMPLETED", job.output()
    header = job.records("header")[0]
    assert [rank["host"] for rank in header["ranks"]] == ["node1", "node1", "node2", "node2"]
    points = job.records("point")
    assert sorted(tuple(p["members"]) for p in points) == [(0, 2), (0, 2), (1, 3)]
    assert all(p["status"] == "ok" and p["scope"] == "inter" for p in points)


def test_nightly_by_mpirun(cluster, tmp_path):
    suite = tmp_path / "tiny.toml"
    suite.write_text('name = "tiny"\n[[measure]]\nop = "all_gather"\nsize = "64K"\n')
    job = submit(
        cluster, tmp_path, "nightly", "--launcher", "mpirun", "--suite", suite, "--backend", "gloo,mpi",
        "--flags", "--budget 0.05 --launches 2",
    )  # fmt: skip
    assert job.wait() == "COMPLETED", job.output()
    points = [(p["backend"], p["launch"], p["ranks"], p["status"]) for p in job.records("point")]
    assert sorted(points) == [(backend, n, 2, "ok") for backend in ("gloo", "mpi") for n in (1, 2)]


def test_a_requeued_job_goes_on_with_what_its_run_lacks(cluster, tmp_path):
    job = submit(cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", LONG)
    wait_for(lambda: job.has_points(2), 60, job.output)
    cluster.call("scontrol", "requeue", job.id)
    wait_for(lambda: job.state() == "PENDING", 30)
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 3 and f"job {job.id}: PENDING, restarted 1 time(s)" in told.stdout, told.stdout
    before = [p["id"] for p in job.records("point")]
    assert 2 <= len(before) < 6
    cluster.call("scontrol", "update", f"jobid={job.id}", "starttime=now")
    assert job.wait() == "COMPLETED", job.output()
    ids = [p["id"] for p in job.records("point")]
    assert ids[: len(before)] == before and len(ids) == len(set(ids)) == 6, "no point was measured twice"
    restarts = [h["nodes"][0]["environment"].get("SLURM_RESTART_COUNT") for h in job.records("header")]
    assert restarts == [None, "1"]
    assert "DUE TO JOB REQUEUE" in job.output() and job.output().rstrip().endswith("exit code 0"), (
        "one output, appended"
    )
    status = commbench(cluster, "slurm", "status", job.folder)
    assert status.returncode == 0 and "6 ok of 6 points" in status.stdout and "1 restart(s)" in status.stdout


def test_a_preempted_job_keeps_its_rows_and_waits(cluster, tmp_path):
    job = submit(cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", LONG, "--sbatch=--partition=low")
    wait_for(job.has_points, 60, job.output)
    cluster.call("srun", "-p", "debug", "-w", "node1", "--exclusive", "true")
    wait_for(lambda: job.state() == "PENDING", 30, job.output)
    assert "DUE TO PREEMPTION" in job.output()
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 3 and "restarted 1 time(s), waits for its begin time" in told.stdout, told.stdout
    assert job.records("end")[-1]["reason"] == "stopped by Ctrl-C or SIGTERM" and job.has_points()
    cluster.call("scancel", job.id)


def test_a_cancelled_job_is_submitted_again(cluster, tmp_path):
    job = submit(
        cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", "--size 8..64 --budget 0.6 --target 0.00001"
    )
    wait_for(job.has_points, 60, job.output)
    refused = commbench(cluster, "slurm", "submit", job.folder)
    assert refused.returncode == 2 and f"job {job.id} of" in refused.stderr and "scancel" in refused.stderr
    cluster.call("scancel", job.id)
    assert job.wait() == "CANCELLED"
    wait_for(lambda: job.records("end"), 20, job.output)
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 4 and f"go on with: commbench slurm submit {job.folder}" in told.stdout, told.stdout
    again = commbench(cluster, "slurm", "submit", job.folder)
    assert again.returncode == 0, again.stderr
    second = Job(cluster, job.folder, [str(int(job.id) + 1)])
    assert second.wait() == "COMPLETED", second.output()
    assert len(job.records("point")) == 4 and commbench(cluster, "slurm", "status", job.folder).returncode == 0


def test_the_time_limit_ends_a_run_cleanly(cluster, tmp_path):
    """Slurm's warning before the limit reaches the ranks: rows and end record are on the disk, and nothing runs on."""
    job = submit(
        cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", "--size 8..64M --iters 2000",
        "--time", "10", "--sbatch=--signal=TERM@30",
    )  # fmt: skip
    wait_for(job.has_points, 60, job.output)
    cluster.call("scontrol", "update", f"jobid={job.id}", "timelimit=1")  # the smallest; Slurm looks twice a minute
    state = job.wait(120)
    points, end = job.records("point"), job.records("end")[-1]
    assert state == "FAILED" and "Traceback" not in job.output(), job.output()
    assert end["exit_code"] == 4 and end["reason"] == "stopped by Ctrl-C or SIGTERM"
    assert 0 < len(points) < 24 and all(p["status"] == "ok" for p in points)
    assert job.output().rstrip().endswith("exit code 4: stopped by Ctrl-C or SIGTERM")
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 4 and "go on with" in told.stdout


def test_a_warning_of_the_time_limit_reaches_ranks_under_mpirun(cluster, tmp_path):
    """mpirun runs in the batch shell, so that is where its script lets Slurm send the signal."""
    job = submit(
        cluster, tmp_path, "sweep", "--launcher", "mpirun", "--suite", "all_reduce", "--backend", "mpi",
        "--flags", "--size 8,64M --iters 10000",
    )  # fmt: skip
    wait_for(job.has_points, 60, job.output)
    cluster.call("scancel", "--batch", "--signal=TERM", job.id)
    assert job.wait() == "FAILED", job.output()
    assert job.records("end")[-1]["reason"] == "stopped by Ctrl-C or SIGTERM"
    assert commbench(cluster, "slurm", "status", job.folder).returncode == 4


def test_a_job_that_waits_for_a_drained_node_says_so(cluster, tmp_path):
    cluster.call("scontrol", "update", "nodename=node3", "state=drain", "reason=cable")
    try:
        job = submit(cluster, tmp_path, "pairs")
        told = commbench(cluster, "slurm", "status", job.folder)
        assert told.returncode == 3 and f"job {job.id}: PENDING" in told.stdout
        assert "down, drained or reserved; `sinfo -R` says why" in told.stdout, told.stdout
        cluster.call("scancel", job.id)
    finally:
        cluster.call("scontrol", "update", "nodename=node3", "state=resume")
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 3 and "CANCELLED" in told.stdout and "no run has begun" in told.stdout


REFUSED = {
    ("--sbatch=--partition=gpu",): "there is no such partition",
    ("--sbatch=--gpus-per-node=8",): "no node has what a node of this job needs (GPUs",
    ("--nodes", "9"): "the partition has not so many nodes",
    ("--time", "1:2:3:4"): "write minutes",
    ("--sbatch=--colour=red",): "unrecognized option",
    ("--sbatch=--constraint=h100",): "no node has that feature",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_sbatch_refuses_is_told_and_leaves_nothing(cluster, tmp_path, arguments):
    out = tmp_path / "job"
    done = commbench(cluster, "slurm", "submit", "sweep", "--site", site_file(tmp_path), "--out", out, *arguments)
    assert done.returncode == 2 and REFUSED[arguments] in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not out.exists()


def test_without_slurm_it_says_where_to_go(cluster, tmp_path):
    site, out = site_file(tmp_path), tmp_path / "job"
    done = commbench(cluster, "slurm", "submit", "sweep", "--site", site, "--out", out, PATH=str(tmp_path))
    assert done.returncode == 3 and "sbatch is not on the PATH" in done.stderr and not out.exists()
    text = commbench(cluster, "slurm", "render", "sweep", "--site", site, PATH=str(tmp_path))
    assert text.returncode == 0 and text.stdout.startswith("#!/bin/bash\n")
    dry = commbench(cluster, "slurm", "submit", "sweep", "--site", site, "--out", out, "--dry-run", PATH=str(tmp_path))
    assert dry.returncode == 0 and f"RUNS={out}" in dry.stdout and not out.exists()


def test_tasks_that_form_worlds_of_one_are_refused(cluster, tmp_path):
    """srun without MPI support: each task would be rank 0 of 1."""
    site = site_file(tmp_path, mpi="none")
    job = submit(cluster, tmp_path, "sweep", "--suite", "all_reduce", "--backend", "mpi", "--flags", SHORT, site=site)
    assert job.wait() == "FAILED"
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 3 and "expected 2 ranks, but MPI's world has 1" in told.stdout, told.stdout
    assert "srun --mpi=pmix" in told.stdout and not job.has_points()


def test_gpus_that_slurm_promises_and_the_node_lacks(cluster, tmp_path):
    site = site_file(tmp_path)
    site.write_text("gpus_per_node = 1\n" + site.read_text())
    job = submit(cluster, tmp_path, "sweep", "--nodes", "1", "--backend", "nccl", site=site)
    assert job.wait() == "FAILED"
    told = commbench(cluster, "slurm", "status", job.folder)
    assert told.returncode == 3 and "no run has begun; the end of the job's output:" in told.stdout
    assert "need 1 GPUs for NCCL, it has 0" in told.stdout, told.stdout


def test_a_full_disk_is_told_and_keeps_the_rows(cluster, tmp_path):
    out = cluster.folder.parent / "small/job"
    flags = "--size 8..64K --iters 700 --checks 0"
    job = submit(cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", flags, out=out)
    assert job.wait() == "FAILED"
    assert "No space left on device" in job.output(), job.output()
    told = commbench(cluster, "slurm", "status", out)
    assert told.returncode == 3 and "its disk is full; free some space" in told.stdout, told.stdout
    assert job.has_points()


def test_no_job_leaves_a_process(cluster):
    """After all jobs above, each node runs its slurmd and the shell that watches it, and nothing else."""

    def running():
        told = cluster.call("srun", "-N4", "--ntasks-per-node=1", "--label", "ps", "-e", "-o", "comm=")
        return {line.split(": ")[1] for line in told.splitlines()} - {"ps", "slurmstepd", "slurmd", "bash"}

    wait_for(lambda: not running(), 15, lambda: str(running()))


def test_nodes_that_share_a_network(tmp_path):
    with slurm_here(tmp_path, 2, "ports") as cluster:
        site = site_file(tmp_path)
        site.write_text(site.read_text().replace('interface = "eth0"', 'interface = "lo"'))
        job = submit(cluster, tmp_path, "sweep", "--suite", "all_reduce", "--flags", SHORT, site=site)
        assert job.wait() == "COMPLETED", job.output()
        assert [rank["host"] for rank in job.records("header")[0]["ranks"]] == ["node1", "node2"]
        assert [p["status"] for p in job.records("point")] == ["ok", "ok"]


def test_a_killed_cluster_leaves_nothing(tmp_path):
    need_slurm()
    process = subprocess.Popen(
        [sys.executable, HERE / "local_slurm.py"], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )  # fmt: skip
    conf = process.stdout.readline().strip().partition("=")[2]
    assert conf, "it did not start"
    wait_for(lambda: len(daemons(conf)) >= 3)  # slurmctld and two slurmd name their configuration
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not daemons(conf), 10, lambda: str(daemons(conf)))
    with slurm_here(tmp_path, 1, "namespaces"):
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        assert f"slurm{process.pid}" not in links, "the next one removes the bridge"


def daemons(conf: str) -> list[str]:
    """The processes that have `conf` in their command line."""
    told = subprocess.run(["ps", "-eww", "-o", "stat=,args="], capture_output=True, text=True).stdout.splitlines()
    return [line for line in told if conf in line and not line.startswith("Z")]
