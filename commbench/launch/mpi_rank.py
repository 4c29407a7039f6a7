"""`python -m commbench.launch.mpi_rank SPEC`: one rank under mpirun."""

import os
import sys
from pathlib import Path

from commbench.launch.rank import die_with_parent, rank_main
from commbench.launch.spec import LaunchSpec

_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PMI_RANK")


def main() -> None:
    die_with_parent()
    spec = LaunchSpec.from_json(Path(sys.argv[1]).read_text())
    local_rank = next((int(os.environ[name]) for name in _LOCAL_RANK if name in os.environ), 0)
    from mpi4py import MPI

    code = rank_main(spec, MPI.COMM_WORLD.Get_rank(), local_rank, device=local_rank)
    sys.stdout.flush()
    if code:
        os._exit(code)  # a rank that failed must not wait in MPI_Finalize for ranks that never come


if __name__ == "__main__":
    main()
