"""Slurm's own commands, and what to do about what they say."""

import shutil
import subprocess

from commbench.errors import MeasureError, UsageError

_TIMEOUT_S = 60
DONE = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
)

# What sbatch says (in lower case) -> what to do.
_REFUSED = {
    "invalid partition": "there is no such partition; `sinfo -s` lists them, the site file names one",
    "no partition specified or system default": "name one in the site file: partition = ...; `sinfo -s` lists them",
    "node configuration is not available": "no node has what a node of this job needs (GPUs, cores, memory): compare "
    "`sinfo -o '%P %D %c %m %G'` with the site file's gpus_per_node, ranks_per_node and cpus_per_rank",
    "node count specification invalid": "the partition has not as many nodes; give fewer with --nodes",
    "more processors requested than permitted": "the partition has not so many nodes or cores: compare "
    "`sinfo -o '%P %D %c'` with --nodes and with the site file's ranks_per_node and cpus_per_rank",
    "invalid account": "the site file's account is not yours; `sacctmgr show associations user=$USER` lists yours",
    "invalid --time": "write minutes, hours:minutes:seconds or days-hours",
    "time limit": "the partition allows less time (`sinfo -o '%P %l'`); give less with --time",
    "invalid generic resource": "the cluster does not know such GPUs; set gpus_per_node to 0 and ask for them in "
    "options.sbatch as this site does",
    "invalid job array": "the cluster allows no such array index (MaxArraySize); give fewer nodes",
    "invalid feature": "no node has that feature; `sinfo -o '%N %f'` lists them",
    "invalid qos": "the QOS is not yours; see options.sbatch in the site file",
    "unrecognized option": "see options.sbatch in the site file and --sbatch",
}
_UNREACHED = ("unable to contact slurm controller", "configuration source", "connection refused", "socket timed out")

# squeue's reason (its beginning) -> what it means.
_WAITS = {
    "Resources": "waits until nodes are free",
    "Priority": "waits behind jobs of higher priority",
    "BeginTime": "waits for its begin time; a requeued job waits about two minutes",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "will never start, because a job it depends on has failed: scancel it",
    "JobHeldUser": "is held; `scontrol release` lets it go",
    "JobHeldAdmin": "is held by an administrator",
    "PartitionTimeLimit": "will never start: its time is above the partition's limit; submit it with less --time",
    "PartitionNodeLimit": "will never start: the partition allows fewer nodes; submit it with fewer --nodes",
    "PartitionDown": "waits for its partition, which is down",
    "ReqNodeNotAvail": "waits for nodes that are down, drained or reserved; `sinfo -R` says why",
    "Nodes required": "waits for nodes that are down, drained or reserved; `sinfo -R` says why",
    "Assoc": "waits for a limit of your account",
    "QOS": "waits for a limit of its QOS",
    "JobArrayTaskLimit": "waits for another element of its array",
}


def call(*command: str, **more) -> subprocess.CompletedProcess:
    """Run one of Slurm's commands. Raises MeasureError when it is not there or does not answer."""
    if shutil.which(command[0]) is None:
        raise MeasureError(
            f"{command[0]} is not on the PATH: run this on a cluster's login node, or load its Slurm module; "
            "`commbench slurm render` needs no Slurm"
        )
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, **more)
    except subprocess.TimeoutExpired:
        raise MeasureError(
            f"{command[0]} did not answer within {_TIMEOUT_S} s; is the controller up? (scontrol ping)"
        ) from None


def refusal(program: str, told: str) -> Exception:
    """The error for what `program` printed when it refused: what it said, and what to do."""
    lines = [line.partition("error: ")[2] or line.removeprefix(f"{program}: ") for line in told.strip().splitlines()]
    said = ", ".join(lines) or "it gave no reason"
    if any(words in said.lower() for words in _UNREACHED):
        return MeasureError(
            f"{program}: {said}; run this on a login node, and see whether the controller is up: scontrol ping"
        )
    remedy = next((what for words, what in _REFUSED.items() if words in said.lower()), "nothing was submitted")
    return UsageError(f"{program}: {said}; {remedy}")


def states(job_id: str) -> list[dict]:
    """One {id, state, reason, nodes, restarts} for each element of a job; empty when Slurm has forgotten it.

    Raises MeasureError when Slurm cannot be asked.
    """
    done = call(
        "squeue", "-h", "-r", "-t", "all", "-j", job_id, "-O", "JobArrayID:|,State:|,Reason:|,NodeList:|,RestartCnt:|"
    )
    if done.returncode:
        if "invalid job id" in done.stderr.lower():
            return _accounted(job_id)
        raise refusal("squeue", done.stderr)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    found = [dict(zip(("id", "state", "reason", "nodes", "restarts"), map(str.strip, row))) for row in rows]
    return found or _accounted(job_id)


def _accounted(job_id: str) -> list[dict]:
    """The same from the accounting, where there is any."""
    if shutil.which("sacct") is None:
        return []
    done = call("sacct", "-n", "-P", "-X", "-j", job_id, "-o", "jobid,state,nodelist")
    rows = [line.split("|") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return [
        {"id": row[0], "state": row[1].split()[0], "reason": "", "nodes": row[2], "restarts": ""}
        for row in rows
        if len(row) == 3
    ]


def is_over(state: dict) -> bool:
    return state["state"] in DONE


def meaning(state: dict) -> str:
    """Why a pending job waits and what helps, in words; "" for others."""
    if state["state"] != "PENDING":
        return ""
    fits = [word for word in _WAITS if state["reason"].startswith(word)]
    return _WAITS[max(fits, key=len)] if fits else f"waits: {state['reason']}"
