"""Has the library of this rank taken the algorithm that a launch forces on it? Asked once, before the first step."""

from commbench.launch.spec import LaunchSpec
from commbench.ops.algorithms_nccl import PER_FUNCTION
from commbench.world.forced import open_mpi_parameter

_MCA = "OMPI_MCA_"


def refusal(spec: LaunchSpec) -> str | None:
    """Why the points of a launch with spec.forced cannot be measured, in one sentence; None where they can."""
    if not spec.forced:
        return None
    if spec.backend == "nccl":
        import torch

        version = torch.cuda.nccl.version()
        if version[:2] < PER_FUNCTION:
            found, needed = (".".join(map(str, v)) for v in (version, PER_FUNCTION))
            return f"NCCL {found} cannot be made to use one algorithm for one collective; {needed} and newer can"
        return None
    for variable, wanted in spec.forced.items():
        name = variable.removeprefix(_MCA)
        if wanted.isdigit() and open_mpi_parameter(name) != int(wanted):
            from mpi4py import MPI

            library = MPI.Get_library_version().split(",")[0].strip()
            return f"{library} does not take {name}={wanted}; commbench forces algorithms in Open MPI's tuned component"
    return None
