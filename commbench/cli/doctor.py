"""commbench doctor: what this machine can run, with what, and how to get what is missing."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def main(args) -> int:
    """0 when at least one backend can run, 3 otherwise."""
    import json

    found = examine()
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        for line in lines(found):
            print(line)
    return 0 if any(found["backends"][name]["ready"] for name in found["backends"]) else 3


def examine() -> dict:
    """What is here: Python, libraries, backends with what they lack, cores, memory, launchers, and what to watch."""
    import importlib.util
    import os
    import shutil
    import sys

    from commbench.cli.planning import local_gpus
    from commbench.suite.memory import available_bytes

    beside = os.path.dirname(sys.executable)
    gpus, cores = local_gpus(), len(os.sched_getaffinity(0))
    torch_facts = _torch() if importlib.util.find_spec("torch") else None
    return {
        "python": sys.version.split()[0],
        "torch": torch_facts and torch_facts["version"],
        "cores": cores,
        "memory_bytes": available_bytes(),
        "gpus": gpus,
        "backends": {"gloo": _gloo(torch_facts), "mpi": _mpi(), "nccl": _nccl(torch_facts, gpus)},
        "launchers": {
            name: shutil.which(name) or shutil.which(name, path=beside) for name in ("srun", "torchrun", "mpirun")
        },
        "watch": _watch(),
    }


def _torch() -> dict:
    import torch
    import torch.distributed as dist

    there = dist.is_available()
    return {
        "version": str(torch.__version__),
        "gloo": there and dist.is_gloo_available(),
        "nccl": there and dist.is_nccl_available(),
        "mpi": there and dist.is_mpi_available(),
    }


def _gloo(torch_facts) -> dict:
    if torch_facts is None:
        return {"ready": False, "missing": "torch is not installed: `pip install torch`"}
    if not torch_facts["gloo"]:
        return {
            "ready": False,
            "missing": f"torch {torch_facts['version']} was built without Gloo: install the standard wheel",
        }
    return {"ready": True, "library": f"torch {torch_facts['version']}"}


def _nccl(torch_facts, gpus: int) -> dict:
    if not gpus:
        return {"ready": False, "missing": "no NVIDIA GPU is visible (/proc/driver/nvidia/gpus, CUDA_VISIBLE_DEVICES)"}
    if torch_facts is None or not torch_facts["nccl"]:
        return {"ready": False, "missing": "this torch has no NCCL: install a CUDA build of torch"}
    return {"ready": True, "library": f"torch {torch_facts['version']}, {gpus} GPU(s)"}


def _mpi() -> dict:
    """mpi4py and an mpirun of the same library; MPI itself is asked in a process of its own, which may fail."""
    import subprocess
    import sys

    from commbench.errors import MeasureError
    from commbench.launch.mpirun import mpirun_command

    try:
        command = mpirun_command(
            2, ["-c", "from mpi4py import MPI as m; print(m.COMM_WORLD.size, m.Get_library_version())"]
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except MeasureError as error:
        return {"ready": False, "missing": str(error)}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ready": False, "missing": f"mpirun did not run: {error}"}
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
        return {
            "ready": False,
            "mpirun": command[0],
            "python": sys.executable,
            "missing": f"two MPI ranks could not start: {last[0]}",
        }
    size, _, library = done.stdout.strip().splitlines()[0].partition(" ")
    if size != "2":
        return {
            "ready": False,
            "missing": f"{command[0]} started 2 ranks, each saw a world of {size}: it is not the mpirun of {library}",
        }
    return {"ready": True, "library": library.split(",")[0].strip(), "mpirun": command[0]}


def _watch() -> list[str]:
    """What of this machine will spoil a run on several nodes or a figure."""
    import os
    import resource
    import socket

    said = []
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
        if address.startswith("127."):
            said.append(
                f"the host name {host} resolves to {address}: for runs on several nodes name the network with --iface"
            )
    except OSError:
        said.append(f"the host name {host} does not resolve: for runs on several nodes name the network with --iface")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < 4096:
        said.append(
            f"at most {files} open files (ulimit -n): Gloo needs a socket per rank, so raise it above the world size"
        )
    busy = os.getloadavg()[0]
    if busy > 0.5:
        said.append(f"the machine is busy (load {busy:.1f}): rows say how much of the cores others took")
    for name in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_TOPO_FILE"):
        if name in os.environ:
            said.append(f"{name}={os.environ[name]} is set in the environment and decides for NCCL")
    return said


def lines(found: dict) -> list[str]:
    """The findings for a person."""
    from commbench.units import format_bytes

    memory = format_bytes(found["memory_bytes"]) if found["memory_bytes"] else "unknown"
    told = [
        f"Python {found['python']}, torch {found['torch'] or 'not installed'}",
        f"{found['cores']} cores, {found['gpus']} GPU(s), {memory} of memory available",
    ]
    for name, state in found["backends"].items():
        told.append(f"{name:5} {'ready: ' + state['library'] if state['ready'] else 'missing: ' + state['missing']}")
    launchers = ", ".join(name for name, path in found["launchers"].items() if path) or "none"
    told.append(f"launchers found: {launchers}")
    told += [f"watch out: {sentence}" for sentence in found["watch"]]
    return told
