"""commbench's own ring against the library's all_reduce on 4 ranks: Gloo's, and Open MPI's forced ring.

Pairs alternate A B B A; each side of a pair is the median of a few isolated calls, maximum over ranks. The 95 % interval
of the median ratio decides against 1.3: wholly under pass, wholly above fail, across it "not determined".
"""

import os
import statistics
import subprocess
import sys
from dataclasses import replace

import numpy as np
from harness import on_gloo

RANKS, PAIRS, CALLS = 4, 24, 5
SIZES = (4 << 20, 16 << 20, 64 << 20)
BAR = 1.3
FORCED_RING = {
    "OMPI_MCA_coll": "basic,libnbc,self,inter,tuned",
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
}


def compare(world, size: int) -> list[float]:
    """Ratios own:ring / library of PAIRS pairs, in-place all_reduce of float32."""
    from commbench.ops.prepared import Buffers, Prepared
    from commbench.results.records import Point
    from commbench.timing import stopwatch

    members = tuple(range(world.size))
    library = Point(
        "all_reduce", world.backend, size, members=members, ranks=world.size, count=size // 4, redop="sum",
        in_place=True,
    )  # fmt: skip
    group, buffers = world.split([list(members)]), Buffers(world)
    calls = {}
    for algorithm in ("library", "own:ring"):
        prepared = Prepared(world, group, replace(library, algorithm=algorithm), buffers)
        prepared.refill()
        world.align()
        prepared.run()
        world.align()
        assert prepared.wrong()[0] == 0, f"{algorithm} gives wrong data"
        calls[algorithm] = prepared.run

    def side(algorithm: str) -> float:
        taken = stopwatch.isolated(calls[algorithm], world.align, CALLS, lambda i: None)
        return float(np.median(world.reduce(taken, "max")))

    side("own:ring"), side("library")
    ratios = []
    for pair in range(PAIRS):
        order = ("own:ring", "library") if pair % 2 == 0 else ("library", "own:ring")
        taken = {algorithm: side(algorithm) for algorithm in order}
        ratios.append(taken["own:ring"] / taken["library"])
    return ratios


def measure(world) -> None:
    from commbench.timing.statistics import median_interval

    for size in SIZES:
        ratios = compare(world, size)
        if world.rank == 0:
            low, high = median_interval(ratios)
            verdict = "pass" if high < BAR else "fail" if low > BAR else "not determined"
            told = f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
            print(f"{verdict}: {world.backend} {size >> 20} MiB, own:ring / library {told}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        from commbench.world.mpi_world import MpiWorld

        world = MpiWorld()
        measure(world)
        world.close()
    else:
        from commbench.launch.mpirun import mpirun_command

        on_gloo(RANKS, measure)
        subprocess.run(mpirun_command(RANKS, [__file__, "rank"]), check=True, env={**os.environ, **FORCED_RING})
