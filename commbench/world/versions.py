"""Which versions measured: the libraries that move the bytes and those that are between them and the user."""

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from commbench import __version__

_DRIVER = re.compile(r"Kernel Module\D*?(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)")


def versions(backend: str, procfs=Path("/proc")) -> dict[str, str]:
    """Names and versions of what a rank of `backend` ("gloo", "nccl", "mpi") runs on; what is not there is left out.

    torch is imported for Gloo and NCCL only, CUDA is never initialised. The MPI library says its version once
    mpi4py.MPI has been imported, which initialises MPI, so this function does not do it.
    """
    told = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commbench": __version__,
        "torch": _installed("torch"),
        "mpi4py": _installed("mpi4py"),
        "driver": nvidia_driver(procfs),
    }
    if backend != "mpi":
        import torch

        told |= {"torch": str(torch.__version__), "torch_git": torch.version.git_version, "cuda": torch.version.cuda}
        told |= {"hip": getattr(torch.version, "hip", None), "nccl": _nccl(torch)}
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi:
        # The rest of it is release dates, and in Open MPI who built it.
        told["mpi"] = " ".join(re.split(r"[,\n\0]", mpi.Get_library_version())[0].split())
    return {name: value for name, value in told.items() if value}


def nvidia_driver(procfs=Path("/proc")) -> str | None:
    """The version of the loaded NVIDIA kernel module, None without one.

    Unverified until a GPU has run it: the lines are known from public listings only, for example
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build".
    """
    try:
        text = (procfs / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    found = _DRIVER.search(text)
    return found[1] if found else None


def _nccl(torch) -> str | None:
    """NCCL's (on ROCm: RCCL's) version as the loaded library gives it. Unverified until a GPU has run it."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None)) or not torch.distributed.is_nccl_available():
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
