"""The harness against a bare loop of the same all_to_all_v, one rank of two receiving 1.5 times the mean.

Pairs and verdict are those of harness.py.
"""

import subprocess
import sys
from time import perf_counter_ns

import numpy as np
from harness import CALLS, PAIRS, on_gloo, report

SIZES = (65536, 1 << 20)


def bare_gloo(world, send, recv, matrix):
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    pg, options, barrier = dist.group.WORLD, c10d.AllToAllOptions(), c10d.BarrierOptions()
    out, into = [row[world.rank] for row in matrix], list(matrix[world.rank])

    def loop(calls):
        durations = np.empty(calls)
        for i in range(calls):
            pg.barrier(barrier).wait()
            begin = perf_counter_ns()
            pg.alltoall_base(recv, send, out, into, options).wait()
            durations[i] = perf_counter_ns() - begin
        return durations / 1e3

    return loop


def bare_mpi(world, send, recv, matrix):
    from mpi4py import MPI

    comm, control = MPI.COMM_WORLD, world._control
    outgoing = [send, list(matrix[world.rank]), MPI.FLOAT]
    incoming = [recv, [row[world.rank] for row in matrix], MPI.FLOAT]

    def loop(calls):
        durations = np.empty(calls)
        for i in range(calls):
            control.Barrier()
            begin = perf_counter_ns()
            comm.Alltoallv(outgoing, incoming)
            durations[i] = perf_counter_ns() - begin
        return durations / 1e3

    return loop


def compare(world, size: int) -> list[float]:
    from commbench.ops.op import call_of
    from commbench.ops.prepared import Buffers, Prepared
    from commbench.suite.expand import expand
    from commbench.suite.schema import check_suite
    from commbench.timing import stopwatch

    suite = check_suite({"name": "x", "measure": [{"op": "all_to_all_v", "skew": 1.5, "size": size}]}, "")
    ((point,),) = expand(suite, world.size, [world.backend], [0] * world.size)
    prepared = Prepared(world, world.split([list(point.members)]), point, Buffers(world))
    prepared.refill()
    views = [world.view(prepared.buffer[side], "float32", 0, prepared.counts[side]) for side in ("send", "recv")]
    bare = {"gloo": bare_gloo, "mpi": bare_mpi}[world.backend](world, *views, call_of(point).matrix)

    def side(harness: bool) -> float:
        taken = stopwatch.isolated(prepared.run, world.align, CALLS, lambda i: None) if harness else bare(CALLS)
        return float(np.median(world.reduce(taken, "max")))

    for _ in range(3):
        side(True), side(False)
    pairs = [(side(number % 2 == 0), side(number % 2 == 1)) for number in range(PAIRS)]
    return [a / b if number % 2 == 0 else b / a for number, (a, b) in enumerate(pairs)]


def measure(world) -> None:
    for size in SIZES:
        ratios = compare(world, size)
        if world.rank == 0:
            report(world.backend, size, ratios)


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        from commbench.world.mpi_world import MpiWorld

        alone = MpiWorld()
        measure(alone)
        alone.close()
    else:
        from commbench.launch.mpirun import mpirun_command

        on_gloo(2, measure)
        subprocess.run(mpirun_command(2, [__file__, "rank"]), check=True)
