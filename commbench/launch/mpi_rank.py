"""`python -m commbench.launch.mpi_rank SPEC`: one rank under mpirun."""

import os
import sys
from pathlib import Path

from commbench.launch.rank import die_with_parent, rank_main
from commbench.launch.spec import LaunchSpec


def main() -> None:
    die_with_parent()
    spec = LaunchSpec.from_json(Path(sys.argv[1]).read_text())
    from mpi4py import MPI

    # All ranks are on this machine. mpirun's own local ranks may run in another order than its ranks.
    rank = MPI.COMM_WORLD.Get_rank()
    code = rank_main(spec, rank, rank, device=rank)
    sys.stdout.flush()
    if code:
        os._exit(code)  # a rank that failed must not wait in MPI_Finalize for ranks that never come


if __name__ == "__main__":
    main()
