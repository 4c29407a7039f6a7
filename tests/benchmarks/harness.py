"""The harness against a bare loop of the same calls in the same process: what does measuring cost?

Pairs alternate A B B A; each side of a pair is the median of 50 isolated calls, maximum over ranks. The 95 % interval of
the median ratio decides: wholly under 1.02 pass, wholly above fail, across it "not determined".
"""

import statistics
import subprocess
import sys
from time import perf_counter_ns

import numpy as np

PAIRS, CALLS = 160, 50
SIZES = (4096, 65536, 1 << 20)
BAR = 1.02


def bare_gloo(world, send, recv):
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    pg, options, tensors = dist.group.WORLD, c10d.AllreduceOptions(), [recv]
    options.reduceOp = dist.ReduceOp.MAX
    barrier = c10d.BarrierOptions()

    def loop(calls):
        durations = np.empty(calls)
        for i in range(calls):
            pg.barrier(barrier).wait()
            begin = perf_counter_ns()
            pg.allreduce(tensors, options).wait()
            durations[i] = perf_counter_ns() - begin
        return durations / 1e3

    return loop


def bare_mpi(world, send, recv):
    from mpi4py import MPI

    comm, control, typed = MPI.COMM_WORLD, world._control, [recv, MPI.FLOAT]

    def loop(calls):
        durations = np.empty(calls)
        for i in range(calls):
            control.Barrier()
            begin = perf_counter_ns()
            comm.Allreduce(MPI.IN_PLACE, typed, MPI.MAX)
            durations[i] = perf_counter_ns() - begin
        return durations / 1e3

    return loop


def compare(world, size: int) -> list[float]:
    """Ratios harness / bare of PAIRS pairs, in-place all_reduce of float32."""
    from commbench.ops.prepared import Buffers, Prepared
    from commbench.results.records import Point
    from commbench.timing import stopwatch

    members = tuple(range(world.size))
    point = Point(
        "all_reduce",
        world.backend,
        size,
        members=members,
        ranks=world.size,
        count=size // 4,
        redop="max",
        in_place=True,
    )
    prepared = Prepared(world, world.split([list(members)]), point, Buffers(world))
    prepared.refill()
    view = world.view(prepared.buffer["recv"], "float32", 0, size // 4)
    point_max = {"gloo": bare_gloo, "mpi": bare_mpi}[world.backend](world, view, view)

    def side(harness: bool) -> float:
        taken = stopwatch.isolated(prepared.run, world.align, CALLS, lambda i: None) if harness else point_max(CALLS)
        return float(np.median(world.reduce(taken, "max")))

    for _ in range(3):
        side(True), side(False)
    ratios = []
    for pair in range(PAIRS):
        first = side(pair % 2 == 0)
        second = side(pair % 2 == 1)
        ratios.append(first / second if pair % 2 == 0 else second / first)
    return ratios


def report(backend: str, size: int, ratios: list[float]) -> None:
    from commbench.timing.statistics import median_interval

    low, high = median_interval(ratios)
    verdict = "pass" if high < BAR else "fail" if low > BAR else "not determined"
    print(
        f"{verdict}: {backend} {size} B, harness / bare {statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}]",
        flush=True,
    )


def rank_mpi() -> None:
    from commbench.world.mpi_world import MpiWorld

    world = MpiWorld()
    measure(world)
    world.close()


def on_gloo(ranks: int, measure) -> None:
    """`measure(world)` on `ranks` forked Gloo ranks."""
    import os
    import socket
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from commbench.world.torch_world import TorchWorld

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2 * ranks)
        pids = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                try:
                    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))  # as launch/forks.py does
                    serve = {"master_listen_fd": listener.fileno()} if rank == 0 else {}
                    store = dist.TCPStore(
                        *listener.getsockname(),
                        ranks,
                        rank == 0,
                        timedelta(seconds=60),
                        wait_for_workers=False,
                        **serve,
                    )
                    world = TorchWorld("gloo", rank, ranks, store, 60)
                    measure(world)
                    world.close()
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)


def measure(world) -> None:
    for size in SIZES:
        ratios = compare(world, size)
        if world.rank == 0:
            report(world.backend, size, ratios)


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        rank_mpi()
    else:
        from commbench.launch.mpirun import mpirun_command

        on_gloo(2, measure)
        subprocess.run(mpirun_command(2, [__file__, "rank"]), check=True)
