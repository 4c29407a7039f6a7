"""Ranks forked from this process, which imported torch once for all of them."""

import os
import signal
import socket
import sys
import time

from commbench.launch.rank import die_with_parent, rank_main
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import kill_all


class Forks:
    """Local ranks as children: watch's family."""

    def __init__(
        self, spec: LaunchSpec, ranks: list[int], listener: socket.socket | None = None, first_device: int = 0
    ):
        """Fork one child per world rank of `ranks`, on the devices from `first_device` on.

        The child that is rank 0 serves the store on `listener`.
        """
        if spec.backend != "mpi":
            import torch  # noqa: F401  imported here, in the parent, so that no child has to

            import commbench.world.torch_world  # noqa: F401
        sys.stdout.flush()
        sys.stderr.flush()
        self._ended: dict[int, int] = {}
        self._first_device = first_device
        self._pids = [self._fork(spec, rank, local_rank, listener) for local_rank, rank in enumerate(ranks)]

    def _fork(self, spec, rank, local_rank, listener) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            die_with_parent()
            if os.getppid() != parent:  # the parent went between fork and prctl
                os._exit(code)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides, the terminal tells all
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            log = os.open(spec.log(local_rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(spec.variables)
            _limit_threads(spec)
            code = rank_main(
                spec, rank, local_rank, listener.fileno() if listener else None, self._first_device + local_rank
            )
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # no clean-up of what belongs to the parent

    def poll(self) -> dict[int, int]:
        for local_rank, pid in enumerate(self._pids):
            if local_rank not in self._ended:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    self._ended[local_rank] = os.waitstatus_to_exitcode(status)
        return self._ended

    def kill(self) -> None:
        kill_all(pid for local_rank, pid in enumerate(self._pids) if local_rank not in self._ended)
        deadline = time.monotonic() + 5
        while len(self.poll()) < len(self._pids) and time.monotonic() < deadline:
            time.sleep(0.01)


def _limit_threads(spec: LaunchSpec) -> None:
    """Copies and sums inside torch use the cores that this rank may call its own."""
    if spec.backend == "mpi" or "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // spec.local_ranks))
