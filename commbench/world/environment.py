"""Settings that change how collectives run: environment variables and NCCL's configuration files.

Both are what two nodes may silently differ in; `differences` says in sentences where they do.
"""

import os
import re
from pathlib import Path

_SETTINGS = (
    "NCCL_", "RCCL_", "GLOO_", "UCX_", "UCC_", "FI_", "SHARP_", "HCOLL_", "OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_",
    "MPICH_", "I_MPI_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_",
)  # fmt: skip
_PLACE = ("OMPI_COMM_WORLD_",)
_NAMES = frozenset(
    """
    OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES MKL_NUM_THREADS KMP_AFFINITY GOMP_CPU_AFFINITY
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
    LD_PRELOAD LD_LIBRARY_PATH
    MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK TORCHELASTIC_RESTART_COUNT
    PMI_RANK PMI_SIZE PMIX_RANK
    SLURM_CLUSTER_NAME SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT SLURM_JOB_QOS
    SLURM_JOB_RESERVATION SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_CPUS_PER_NODE SLURM_JOB_GPUS
    SLURM_JOB_START_TIME SLURM_JOB_END_TIME SLURM_RESTART_COUNT SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID
    SLURM_NTASKS SLURM_NPROCS SLURM_NNODES SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_CPUS_PER_TASK
    SLURM_CPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK
    SLURM_STEP_ID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE
    SLURM_STEP_GPUS SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURMD_NODENAME SLURM_DISTRIBUTION SLURM_CPU_BIND
    SLURM_MPI_TYPE SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_HET_SIZE
    """.split()
)

_SECRET_NAME = re.compile(
    r"TOKEN|KEY|SECRET|PASS|CRED|JWT|AUTH|COOKIE|MUNGE|PRIVATE|CERT|PSEC|MCA_SEC|PRECONDITION", re.IGNORECASE
)
_NO_SECRET = {"NCCL_IB_PKEY", "UCX_IB_PKEY"}  # the index of an InfiniBand partition: without it ranks cannot meet
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@|sshpass|password|secret|token", re.IGNORECASE)
_HIDDEN = "(hidden)"

_CONF_LIMIT = 64 * 1024  # bytes; a real nccl.conf has a few lines

# What should be the same on every node. MCA parameters other than the frameworks' carry ranks, jobs and addresses.
_AGREEING = re.compile(
    r"(NCCL|RCCL|TORCH_NCCL|TORCH_DISTRIBUTED|TORCH_GLOO|GLOO|UCX|UCC|FI|SHARP|HCOLL|MPICH)_"
    r"|OMPI_MCA_(coll|pml|btl|mtl|osc|bml|opal|mpi)"
    r"|OMP_NUM_THREADS$|CUDA_DEVICE_ORDER$|CUDA_DEVICE_MAX_CONNECTIONS$|LD_PRELOAD$"
)
_OWN_TO_A_NODE = {"NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "UCX_LOG_FILE"}


def environment(environ=os.environ) -> dict[str, str]:
    """The variables of `environ` that change how collectives run or say which job this is, sorted by name.

    A list of what is allowed, not of what is forbidden: everything else stays out. A name that looks secret stays out
    too, whatever its prefix; an allowed variable whose value looks like one is there, but its value is not.
    """
    return {
        name: _HIDDEN if _SECRET_VALUE.search(value) else _printable(value)
        for name, value in sorted(environ.items())
        if (name in _NAMES or name.startswith(_SETTINGS + _PLACE)) and not _secret(name)
    }


def conf_files(root=Path("/"), home=None, environ=os.environ) -> dict[str, str]:
    """{path: text} of the files from which NCCL takes settings without a word; files that are not there are left out.

    As in NCCL's src/misc/param.cc: NCCL_CONF_FILE, or if it is unset ~/.nccl.conf, then /etc/nccl.conf. (NCCL before
    2.23 knows no NCCL_CONF_FILE and reads ~/.nccl.conf always.) What is set earlier wins over what is read later, the
    environment over all. `home` is $HOME unless given; `root` holds etc/nccl.conf. A file that is there but cannot be
    read, and a NCCL_CONF_FILE that is not there, have "(not readable: why)" as text. Secrets are hidden.
    """
    home = home or environ.get("HOME")
    named = environ.get("NCCL_CONF_FILE")
    paths = {"/etc/nccl.conf": Path(root) / "etc/nccl.conf"}
    if named:
        paths = {named: Path(named)} | paths
    elif home:
        paths = {str(Path(home) / ".nccl.conf"): Path(home) / ".nccl.conf"} | paths
    texts = {name: _text(path) for name, path in paths.items()}
    return {
        name: "(not readable: there is no such file)" if text is None else text
        for name, text in texts.items()
        if text is not None or name == named
    }


def differences(nodes: list[dict]) -> list[str]:
    """Sentences saying which nodes differ from the first in what should be the same on all of them.

    `nodes`: one dict a node with host, versions, environment and conf_files, rank 0's node first. Nodes that differ in
    the same way share a sentence, so that the list stays short on many nodes.
    """
    settings, sentences = [_agreeing(node) for node in nodes], []
    for key in sorted({key for told in settings for key in told}):
        expected, groups = settings[0].get(key), {}
        for node, told in zip(nodes, settings, strict=True):
            if told.get(key) != expected:
                groups.setdefault(told.get(key), []).append(node["host"])
        for value, hosts in groups.items():
            have, first = "has" if len(hosts) == 1 else "have", nodes[0]["host"]
            sentences.append(f"{_names(hosts)} {have} {_state(key, value)}, {first} has {_state_beside(key, expected)}")
    return sentences


def _secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and name not in _NO_SECRET


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()  # bytes that were no UTF-8 come as surrogates, which no file can hold


def _text(path: Path) -> str | None:
    """The text of a configuration file without its secrets, None where there is none, or why it cannot be read."""
    try:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe would keep us waiting, a device never ends
            return "(not readable: not a regular file)"
        with open(path, "rb") as file:
            data = file.read(_CONF_LIMIT + 1)
    except OSError as error:
        return f"(not readable: {error.strerror})"
    lines = data[:_CONF_LIMIT].decode(errors="replace").splitlines()
    lines = [_without_secret(line) for line in lines] + ["(cut here)"] * (len(data) > _CONF_LIMIT)
    return "\n".join(lines)


def _without_secret(line: str) -> str:
    name, equals, value = line.partition("=")
    return f"{name}={_HIDDEN}" if equals and (_secret(name) or _SECRET_VALUE.search(value)) else line


def _agreeing(facts: dict) -> dict[tuple[str, str], str]:
    """{(where, name): value}; `where` is "version", "environment" or the path of a configuration file."""
    told = {("version", name): str(value) for name, value in facts["versions"].items()}
    for name, value in facts["environment"].items():
        if _AGREEING.match(name) and name not in _OWN_TO_A_NODE:
            told["environment", name] = value
    for path, text in facts["conf_files"].items():
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                told.setdefault((path, name), value)  # NCCL keeps the first value it meets
    return told


def _state(key: tuple[str, str], value: str | None) -> str:
    where, name = key
    if where == "version":
        return f"no {name}" if value is None else f"{name} {_short(value)}"
    place = "" if where == "environment" else f" in {where}"
    return f"{name} unset{place}" if value is None else f"{name}={_short(value)}{place}"


def _state_beside(key: tuple[str, str], value: str | None) -> str:
    """The same after a _state of another value, which has named the thing and the place."""
    where, name = key
    if where == "version":
        return "none" if value is None else _short(value)
    there = "" if where == "environment" else " there"
    return f"it unset{there}" if value is None else f"{name}={_short(value)}{there}"


def _short(value: str) -> str:
    text = value if value.isprintable() else repr(value)
    return text if len(text) <= 100 else f"{text[:60]}...{text[-35:]}"


def _names(hosts: list[str]) -> str:
    if len(hosts) > 4:
        return f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"
    return " and ".join(filter(None, (", ".join(hosts[:-1]), hosts[-1])))
