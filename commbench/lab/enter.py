"""`python -m commbench.lab.enter`: become a process of a lab.

enter NAME RANK PROGRAM ARGUMENTS...   where RANK lives; RANK "mpi" is the one that Open MPI has given this process
enter NAME ssh HOST WORDS...           what mpirun takes for ssh: WORDS go to a shell on the node HOST
"""

import ctypes
import os
import signal
import sys

from commbench.errors import UNMEASURED, USAGE, CommbenchError, UsageError
from commbench.lab.layout import Lab, Rank
from commbench.lab.namespaces import move_to
from commbench.lab.state import folder, standing

_PR_SET_PDEATHSIG = 1


def place(lab: Lab, rank: Rank) -> None:
    """Move this process to where `rank` lives."""
    files = folder(lab.name)
    move_to(rank.namespace, rank.host, files / "hosts", files / "sys")


def _of_host(lab: Lab, host: str) -> Rank:
    """The first rank of the node `host`."""
    hosts = [lab.host(node) for node in range(lab.nodes)]
    if host not in hosts:
        raise UsageError(f"lab {lab.name} has no node {host!r}; it has {', '.join(hosts)}")
    return lab.rank(hosts.index(host) * lab.ranks_per_node)


def main() -> None:
    name, where, *command = sys.argv[1:]
    try:
        lab = standing(name)
        if where == "ssh":
            host, *words = command
            rank, command = _of_host(lab, host), ["/bin/sh", "-c", " ".join(words)]
        else:
            number = int(os.environ["OMPI_COMM_WORLD_RANK"]) if where == "mpi" else int(where)
            if where != "mpi":
                # A killed `commbench lab run` takes its ranks along.
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            rank = lab.rank(number)
        place(lab, rank)
    except CommbenchError as error:
        print(f"commbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"commbench: {error.strerror} ({error.filename}) on entering lab {name}", file=sys.stderr)
        sys.exit(UNMEASURED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"commbench: {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
