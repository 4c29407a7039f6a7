"""This machine as the place where all ranks of a launch live."""

import os
import socket
import tempfile
from dataclasses import replace

from commbench.launch.forks import Forks
from commbench.launch.mpirun import Mpirun
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import Outcome, watch
from commbench.world.progress import Progress


class LocalSite:
    """Starts all ranks here: forks for Gloo and NCCL, mpirun for MPI."""

    starts_mpi = True

    def __init__(self):
        self.host = socket.gethostname()
        self.nodes = None  # node index per rank; None: all on one node

    def can_launch(self, backend: str) -> bool:
        """Always: each launch is a world of its own."""
        return True

    def launch(self, spec: LaunchSpec, tick) -> Outcome:
        """Run one launch to its end."""
        ranks = list(range(spec.ranks))
        with tempfile.TemporaryDirectory(prefix="commbench-") as scratch:
            # Ranks of one machine meet on its loopback, whatever its name resolves to; the user's word comes first.
            loopback = {} if os.environ.get("GLOO_SOCKET_IFNAME") else {"GLOO_SOCKET_IFNAME": "lo"}
            spec = replace(spec, scratch=scratch, local_ranks=spec.ranks, environment={**loopback, **spec.environment})
            Progress(spec.progress, spec.ranks, create=True)
            if spec.backend == "mpi":
                return watch(Mpirun(spec), spec, ranks, self.host, tick)
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))  # bound before the ranks start, so that nobody takes the port
                listener.listen(spec.ranks + 8)
                spec = replace(spec, address="127.0.0.1", port=listener.getsockname()[1])
                return watch(Forks(spec, ranks, listener), spec, ranks, self.host, tick)
