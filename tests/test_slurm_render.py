"""What sbatch gets: golden files, the shell text run against stand-ins of Slurm's commands, and site files that cannot be.

`python tests/test_slurm_render.py` writes the golden files anew.
"""

import os
import subprocess
from pathlib import Path

import pytest

from commbench.errors import UsageError
from commbench.slurm.collect import runs_below
from commbench.slurm.queue import meaning, refusal
from commbench.slurm.render import Wishes, read_script, render, shipped_scripts
from commbench.slurm.site import Site, check_site, read_site, shipped_sites
from commbench.slurm.submit import commands

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "sweep-h100-8": ("sweep", "h100-8", Wishes(nodes=(4,))),
    "scaling-h100-8-container": ("scaling", "h100-8-container", Wishes(nodes=(1, 2, 16), suite="quick", time="30:00")),
    "pairs-h100-8-torchrun": ("pairs", "h100-8", Wishes(launcher="torchrun", sbatch=("--qos=low", "--time=5"))),
    "rails-h100-8-mpirun": ("rails", "h100-8", Wishes(launcher="mpirun", runs="/shared/runs of 5% load")),
    "nightly-cpu": ("nightly", "cpu", Wishes(flags=("--size", "8..64M", "--split", "0,1;2,3"))),
}


def rendered(name: str) -> str:
    script, site, wishes = CASES[name]
    return render(read_script(script), read_site(site), wishes)


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    assert rendered(name) == (GOLDEN / f"{name}.sbatch").read_text()


@pytest.mark.parametrize("script", shipped_scripts())
@pytest.mark.parametrize("site", shipped_sites())
def test_every_script_ends_in_status_and_can_be_requeued(script, site):
    lines = render(read_script(script), read_site(site)).splitlines()
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert lines[0] == "#!/bin/bash" and lines[-1] == 'commbench status "$RUN"'
    assert "#SBATCH --open-mode=append" in directives and "#SBATCH --requeue" in directives
    assert any(line.startswith("#SBATCH --signal=TERM@") for line in directives)
    names = [line.partition("=")[0] for line in directives]
    assert len(names) == len(set(names)), "sbatch would take the last of two"
    assert "#SITE" not in lines
    assert any(line.startswith("#SBATCH --array") for line in directives) == (script == "scaling")


# ---- the shell text, run against stand-ins -------------------------------------------------------------------------

STAND_IN = """#!/bin/bash
printf '%s' "$(basename "$0")" >> "$LOG"; printf ' [%s]' "$@" >> "$LOG"; echo >> "$LOG"
[ "$(basename "$0")" = scontrol ] && [ "$1" = show ] && printf '%b' "$NODE_NAMES"
[ "$(basename "$0")" = srun ] && echo "MASTER $MASTER_ADDR:$MASTER_PORT ${MINE-unset}" >> "$LOG"
exit 0
"""


def run_script(tmp_path, site: dict, script="sweep", wishes=None, nodes="node7\\nnode8\\n", **environment):
    """Run a rendered script by bash with stand-ins for Slurm's commands; (exit code, their calls, what it printed)."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir(exist_ok=True)
    for name in ("srun", "scontrol", "mpirun", "commbench", "module"):
        (bin_dir / name).write_text(STAND_IN)
        (bin_dir / name).chmod(0o755)
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    text = render(read_script(script), check_site(site, "test"), wishes or Wishes())
    done = subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=tmp_path,
        env={
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "LOG": str(log),
            "NODE_NAMES": nodes,
            "SLURM_JOB_ID": "1234567",
            "SLURM_JOB_NAME": script,
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "node[7-8]",
            **environment,
        },
    )
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stdout + done.stderr


GLOO = {"ranks_per_node": 3, "cpus_per_rank": 4, "backend": "gloo"}


def test_srun_gets_ranks_cores_and_the_address_of_the_first_node(tmp_path):
    code, calls, _ = run_script(tmp_path, GLOO | {"interface": "eth0", "mpi": "pmix"})
    assert code == 0
    srun = next(call for call in calls if call.startswith("srun"))
    for word in ("--nodes=2", "--ntasks=6", "--ntasks-per-node=3", "--cpus-per-task=4", "--kill-on-bad-exit=1"):
        assert f"[{word}]" in srun
    assert "[--mpi=pmix] [commbench] [run] [full] [--ranks] [6] [--backend] [gloo]" in srun
    assert srun.endswith("[--iface] [eth0] [--no-report]")
    assert "MASTER node7:24567 unset" in calls
    assert calls[-1] == f"commbench [status] [{tmp_path}/runs/sweep-1234567/sweep]"


@pytest.mark.parametrize("nodes", ["", "\\n"])
def test_without_the_nodes_names_nothing_starts(tmp_path, nodes):
    code, calls, told = run_script(tmp_path, GLOO, nodes=nodes)
    assert code == 3 and not any(call.startswith(("srun", "commbench")) for call in calls)
    assert "scontrol cannot name the nodes of SLURM_JOB_NODELIST='node[7-8]'" in told


def test_a_run_that_has_begun_is_resumed(tmp_path):
    run = tmp_path / "runs/sweep-1234567/sweep"
    run.mkdir(parents=True)
    (run / "plan.json").touch()
    _, calls, _ = run_script(tmp_path, GLOO, wishes=Wishes(flags=("--size", "8")))
    srun = next(call for call in calls if call.startswith("srun"))
    assert srun.endswith(f"[commbench] [run] [--resume] [{run}] [--no-report]")


def test_torchrun_knows_its_node_on_the_node(tmp_path):
    _, calls, _ = run_script(tmp_path, GLOO | {"launcher": "torchrun", "options": {"torchrun": ["--tee", "3"]}})
    srun = "\n".join(calls)
    for word in ("--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=12", "--kill-on-bad-exit=1"):
        assert f"[{word}]" in srun
    assert '--node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR"' in srun
    assert "[torchrun] [--tee] [3] [--no-python] [commbench] [run]" in srun


def test_mpirun_gets_a_place_for_each_rank_and_the_environment(tmp_path):
    site = GLOO | {"launcher": "mpirun", "backend": "mpi", "environment": {"MINE": "a b"}}
    _, calls, _ = run_script(tmp_path, site)
    mpirun = next(call for call in calls if call.startswith("mpirun"))
    assert mpirun.startswith("mpirun [-n] [6] [--map-by] [ppr:3:node:PE=4] [-x] [MINE] [-x] [MASTER_ADDR]")
    assert "#SBATCH --signal=B:TERM@120" in render(read_script("sweep"), check_site(site, "test"))


def test_values_reach_the_ranks_as_they_are(tmp_path):
    site = GLOO | {"environment": {"MINE": "$(touch pwned) `id` 'x' \"y\""}, "modules": ["cuda/12; touch pwned"]}
    wishes = Wishes(suite="my suite;touch pwned", flags=("--out", "$HOME"), runs=str(tmp_path / "a b"))
    _, calls, _ = run_script(tmp_path, site, wishes=wishes)
    assert "module [load] [cuda/12; touch pwned]" in calls
    assert "MASTER node7:24567 $(touch pwned) `id` 'x' \"y\"" in calls
    assert "[my suite;touch pwned]" in "\n".join(calls) and "[--out] [$HOME]" in "\n".join(calls)
    assert not (tmp_path / "pwned").exists()


def test_a_container_gets_the_folders_and_the_last_line_runs_in_it(tmp_path):
    site = GLOO | {"container": {"image": "/shared/a b.sqsh", "mounts": ["/data:/data"]}, "environment": {"MINE": "1"}}
    _, calls, _ = run_script(tmp_path, site)
    sruns = [call for call in calls if call.startswith("srun")]
    assert len(sruns) == 2 and "[commbench] [status]" in sruns[1] and "[--ntasks=1]" in sruns[1]
    for srun in sruns:
        assert "[--container-image=/shared/a b.sqsh] [--container-env=MINE,MASTER_ADDR,MASTER_PORT]" in srun
        assert f"[--container-mounts={tmp_path}:{tmp_path}," in srun and ",/data:/data]" in srun


def test_an_element_of_the_scaling_array_uses_as_many_nodes_as_its_index(tmp_path):
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "1234560"}
    _, calls, _ = run_script(tmp_path, GLOO, "scaling", **variables)
    assert any("[--nodes=1] [--ntasks=3]" in call and "scaling-1234560/nodes-1]" in call for call in calls)


def test_each_node_count_is_a_job_of_its_own_size():
    wishes = Wishes(nodes=(1, 16))
    text = render(read_script("scaling"), read_site("h100-8"), wishes)
    folder = Path("/shared/it")
    assert [command[2:] for command in commands(folder, text)] == [
        ["--nodes=1", "--array=1", "/shared/it/job.sbatch"],
        ["--nodes=16", "--array=16", "/shared/it/job.sbatch"],
    ]
    text = render(read_script("sweep"), read_site("h100-8"), Wishes(sbatch=("--array=1,2",)))
    assert commands(folder, text) == [["sbatch", "--parsable", "/shared/it/job.sbatch"]]


# ---- site files and wishes that cannot be ----------------------------------------------------------------------------

BAD_SITES = {
    "partion is not a known key; write partition": {"partion": "gpu"},
    "colour is not a known key; there are partition, account": {"colour": "red"},
    "options.sbach is not a known key; write sbatch": {"options": {"sbach": []}},
    "container.image is missing": {"backend": "gloo", "container": {}},
    "launcher is 'ssh'; there are srun, torchrun, mpirun": {"launcher": "ssh"},
    "gpus_per_node is '8'; input should be a valid integer": {"gpus_per_node": "8"},
    "gpus_per_node is -1;": {"gpus_per_node": -1},
    "ranks_per_node is 0;": {"ranks_per_node": 0},
    "partition is 'gpu\\\\n#SBATCH --uid=0'; it has characters": {"partition": "gpu\n#SBATCH --uid=0"},
    "environment.A B": {"environment": {"A B": "x"}},
    "environment.LINES is 'a\\\\nb'": {"environment": {"LINES": "a\nb"}},
    "backend is 'nickel'": {"backend": "nickel"},
    'backend "nccl" needs GPUs: set gpus_per_node': {},
    "ranks_per_node 16 is more than gpus_per_node 8": {"gpus_per_node": 8, "ranks_per_node": 16},
    'launcher "mpirun" cannot start ranks in a container': {
        "backend": "gloo", "launcher": "mpirun", "container": {"image": "x"},
    },
    'launcher "torchrun" starts no MPI ranks': {"backend": "gloo,mpi", "launcher": "torchrun"},
    "options.sbatch holds '-N2'; write long options": {"backend": "gloo", "options": {"sbatch": ["-N2"]}},
}  # fmt: skip


@pytest.mark.parametrize("message", BAD_SITES)
def test_a_site_file_that_cannot_be_is_a_sentence_with_the_remedy(message):
    with pytest.raises(UsageError, match=r"^my\.toml: .*" + message.replace(".", r"\.").replace("(", r"\(")):
        check_site(BAD_SITES[message], "my.toml")


def test_all_errors_of_a_site_file_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        check_site({"partion": 1, "gpus_per_node": "x", "nics": "mlx5_0"}, "my.toml")
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "there is no site file"),
        (b"a = ", "is not valid TOML"),
        (b"\xff", "cannot be read"),
        (b"[" * 9999, "TOML"),
    ],
)
def test_files_that_are_no_sites(tmp_path, content, message):
    path = tmp_path / "site.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_site(str(path))


SITE = Site(backend="gloo")


@pytest.mark.parametrize(
    "text, wishes, message",
    [
        ("", Wishes(), "does not begin with #!"),
        ("#SITE\n", Wishes(), "does not begin with #!"),
        ("#!/bin/bash\n", Wishes(), "needs one line #SITE"),
        ("#!/bin/bash\n#SITE\n#SITE\n", Wishes(), "it has 2"),
        ("#!/bin/bash\n#SBATCH -N 2\n#SITE\n", Wishes(), "one long option a line"),
        ("#!/bin/bash\n#SBATCH --nodes=1 --time=3\n#SITE\n", Wishes(), "one long option a line"),
        ("#!/bin/bash\n#SITE\n", Wishes(suite="quick"), "--suite does not fit"),
        ("#!/bin/bash\n#SITE\n", Wishes(nodes=(1, 2)), "no array over node counts"),
        ("#!/bin/bash\n#SITE\n", Wishes(backend="nccl"), 'these flags: backend "nccl" needs GPUs'),
        ("#!/bin/bash\n#SITE\n", Wishes(backend="mpi", launcher="torchrun"), "starts no MPI ranks"),
        ("#!/bin/bash\n#SITE\n", Wishes(backend="gloo; id"), "backend is 'gloo; id'"),
        ("#!/bin/bash\n#SITE\n", Wishes(time="1\n#SBATCH --uid=0"), "is no time"),
        ("#!/bin/bash\n#SITE\n", Wishes(sbatch=("-N2",)), "is no long option"),
    ],
)
def test_scripts_and_wishes_that_do_not_fit(text, wishes, message):
    with pytest.raises(UsageError, match=message):
        render(text, SITE, wishes)


def test_a_script_of_ones_own_keeps_its_directives():
    text = render("#!/bin/bash\n# mine\n#SBATCH --wait-all-nodes=1\n#SBATCH --overcommit\n#SITE\nmeasure x\n", SITE)
    assert text.startswith("#!/bin/bash\n# mine\n#SBATCH --wait-all-nodes=1\n#SBATCH --overcommit\n#SBATCH --nta")
    assert text.endswith("}\n\nmeasure x\n")


# ---- what Slurm says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told, code, remedy",
    [
        ("sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition "
         "name specified\n", 2, "sinfo -s"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", 2, "gpus_per_node"),
        ("sbatch: fatal: Could not establish a configuration source", 3, "scontrol ping"),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", 3, "ping"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", 2, "sacctmgr"),
        ("", 2, "it gave no reason; nothing was submitted"),
    ],
)  # fmt: skip
def test_what_sbatch_refuses_is_told_with_the_remedy(told, code, remedy):
    error = refusal("sbatch", told)
    assert error.exit_code == code and remedy in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    "state, reason, word",
    [
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:node4", "sinfo -R"),
        (
            "PENDING",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "sinfo",
        ),
        ("PENDING", "DependencyNeverSatisfied", "scancel"),
        ("PENDING", "Dependency", "another job"),
        ("PENDING", "SomethingNew", "waits: SomethingNew"),
        ("RUNNING", "None", ""),
    ],
)
def test_why_a_job_waits(state, reason, word):
    told = meaning({"state": state, "reason": reason})
    assert word in told if word else told == ""


def test_what_is_no_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="is no folder"):
        runs_below(tmp_path / "nothing")
    assert runs_below(tmp_path) == []


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.sbatch").write_text(rendered(case))
