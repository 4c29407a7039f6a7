"""Who this process is when a launcher started it: read from what torchrun, srun and mpirun leave in the environment."""

import os
import re
import socket
from dataclasses import dataclass

from commbench.errors import UsageError
from commbench.launch.nodelist import expand_nodelist

_DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Joined:
    """One task of a world that a launcher started. `source` says which variable gave the address."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    source: str

    @property
    def server(self) -> str:
        """Where rank 0's store is, as host:port."""
        return f"{self.address}:{self.port}"


def joined_world(environ=None) -> Joined | None:
    """The world this process was started into; None when no launcher did, or for a lone task.

    A set RANK and WORLD_SIZE come first (torchrun, and containers that translate Slurm's), then Open MPI's
    mpirun, Slurm's step, MPICH's mpiexec.
    Raises UsageError naming the variable when it is missing, no number, or contradicts another.
    """
    env = os.environ if environ is None else environ
    if "RANK" in env or "WORLD_SIZE" in env:
        return _from_torchrun(env)
    # mpirun inside a job starts its daemons by srun, and its ranks inherit their SLURM_PROCID: Open MPI goes first.
    if "OMPI_COMM_WORLD_SIZE" in env:
        return _from_mpi(env, "mpirun", "OMPI_COMM_WORLD", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    if "SLURM_PROCID" in env and _int(env, "SLURM_STEP_NUM_TASKS", "1") > 1:
        return _from_slurm(env)
    if "PMI_SIZE" in env:
        return _from_mpi(env, "mpiexec", "PMI", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return None


def _int(env, name: str, default: str | None = None) -> int:
    value = env.get(name, default)
    if value is None:
        raise UsageError(
            f"{name} is not set, though other variables say that a launcher started this process; set it, or unset all"
        )
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name}={value!r} is no whole number") from None


def _port(env, default: int) -> int:
    port = _int(env, "MASTER_PORT", str(default))
    if not 1 <= port <= 65535:
        raise UsageError(f"MASTER_PORT={port} is no port; a port is 1 to 65535")
    return port


def _from_torchrun(env) -> Joined | None:
    rank, size = _int(env, "RANK"), _int(env, "WORLD_SIZE")
    if not 0 <= rank < size:
        raise UsageError(f"RANK={rank} does not fit WORLD_SIZE={size}; ranks are 0 to {max(size - 1, 0)}")
    step_size = _int(env, "SLURM_STEP_NUM_TASKS", "1")
    if "TORCHELASTIC_RUN_ID" not in env and step_size > 1 and step_size != size:
        raise UsageError(
            f"WORLD_SIZE={size}, but Slurm's step has SLURM_STEP_NUM_TASKS={step_size} tasks; unset one of them"
        )
    if "TORCHELASTIC_RUN_ID" not in env and step_size > 1 and _int(env, "SLURM_PROCID", str(rank)) != rank:
        raise UsageError(
            f"RANK={rank}, but Slurm calls this task SLURM_PROCID={env['SLURM_PROCID']}; "
            "set RANK in each task, or unset it"
        )
    if size == 1:
        return None
    launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in env else "environment"
    address = env.get("MASTER_ADDR")
    if not address:
        raise UsageError("MASTER_ADDR is not set, though RANK and WORLD_SIZE are; set it to the host of rank 0")
    local = _int(env, "LOCAL_RANK", env.get("SLURM_LOCALID", "0")), _int(env, "LOCAL_WORLD_SIZE", "1")
    return Joined(launcher, rank, size, *local, address, _port(env, _DEFAULT_PORT), "MASTER_ADDR")


def _from_slurm(env) -> Joined:
    rank, size = _int(env, "SLURM_PROCID"), _int(env, "SLURM_STEP_NUM_TASKS")
    if "MASTER_ADDR" in env:
        address, source = env["MASTER_ADDR"], "MASTER_ADDR"
    else:
        source = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in env else "SLURM_JOB_NODELIST"
        address = expand_nodelist(env.get(source, ""))[0]
    # Below the kernel's ephemeral range, and another port for each job of a shared node.
    port = 20000 + _int(env, "SLURM_JOB_ID", "0") % 10000
    local = _int(env, "SLURM_LOCALID", "0"), _tasks_here(env)
    return Joined("srun", rank, size, *local, address, _port(env, port), source)


def _tasks_here(env) -> int:
    """Tasks of this step on this node: SLURM_STEP_TASKS_PER_NODE is a list such as "8(x3),4"."""
    counts, text = [], env.get("SLURM_STEP_TASKS_PER_NODE", "1")
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part)
        if match is None:
            raise UsageError(f"SLURM_STEP_TASKS_PER_NODE={text!r} is no list of task counts like 8(x3),4")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts[min(_int(env, "SLURM_NODEID", "0"), len(counts) - 1)]


def _from_mpi(env, launcher, prefix, local_rank, local_size) -> Joined | None:
    rank, size = _int(env, f"{prefix}_RANK"), _int(env, f"{prefix}_SIZE")
    if size == 1:
        return None
    here = _int(env, local_size, "0")
    if "MASTER_ADDR" in env:
        address, source = env["MASTER_ADDR"], "MASTER_ADDR"
    elif here == size:
        address, source = "127.0.0.1", f"{local_size} = {prefix}_SIZE"
    else:
        raise UsageError(
            f"{launcher} started {size} ranks on several nodes, or does not say where, and MASTER_ADDR is not set; "
            f"pass the host of rank 0 to all of them, with Open MPI: mpirun -x MASTER_ADDR=node1 ..."
        )
    local = _int(env, local_rank, "0"), here or 1
    return Joined(launcher, rank, size, *local, address, _port(env, _port_of_job(env, here == size)), source)


def _port_of_job(env, one_node: bool) -> int:
    """The same for all ranks of an mpirun, another for the next. MPICH names no job, but its ranks have one parent."""
    job = env.get("PMIX_NAMESPACE") or (str(os.getppid()) if one_node else "")
    return 20000 + sum(ord(c) * 31**i for i, c in enumerate(job)) % 10000 if job else _DEFAULT_PORT


def resolve(address: str, source: str) -> str:
    """`address` if it resolves. Raises UsageError naming the variable it came from: torch would only wait for it."""
    try:
        socket.getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or longer than 63 letters
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"the host {address!r} (from {source}) cannot be resolved: {why}; set MASTER_ADDR") from None
    return address
