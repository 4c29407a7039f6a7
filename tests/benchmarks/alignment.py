"""Does page alignment of host buffers matter to MPI? all_reduce on 2 ranks, both kinds of buffer in one launch, A B B A.

Ordinary buffers are numpy's (64-byte aligned at best, here offset by 16 bytes as small allocations are); each launch has
new memory. Printed: the ratio ordinary / page-aligned of the medians, per size, over LAUNCHES fresh launches.
"""

import json
import statistics
import subprocess
import sys

import numpy as np

LAUNCHES, ROUNDS, CALLS = 10, 10, 100
SIZES = (1024, 65536, 1 << 20)


def rank() -> None:
    from commbench.timing import stopwatch
    from commbench.world.buffers import HostBuffer
    from commbench.world.mpi_world import MpiWorld

    world = MpiWorld()
    group = world.split([[0, 1]])
    ratios = {}
    for size in SIZES:
        pair = [world.view(HostBuffer(size), "float32", 0, size // 4) for _ in range(2)]
        plain = [np.empty(size // 4 + 4, np.float32)[4:] for _ in range(2)]
        for array in (*pair, *plain):
            array[:] = 1
        calls = {"aligned": group.all_reduce(*pair, "max"), "plain": group.all_reduce(*plain, "max")}
        times = {"aligned": [], "plain": []}
        for i in range(ROUNDS):
            for kind in ("aligned", "plain") if i % 2 else ("plain", "aligned"):
                taken = stopwatch.isolated(calls[kind], world.align, CALLS, lambda i: None)
                times[kind].append(float(np.median(world.reduce(taken, "max"))))
        ratios[size] = statistics.median(times["plain"]) / statistics.median(times["aligned"])
    if world.rank == 0:
        print(json.dumps(ratios))
    world.close()


def main() -> None:
    from commbench.launch.mpirun import mpirun_command
    from commbench.timing.statistics import median_interval

    launches = []
    for _ in range(LAUNCHES):
        done = subprocess.run(mpirun_command(2, [__file__, "rank"]), capture_output=True, text=True, check=True)
        launches.append(json.loads(done.stdout))
    for size in SIZES:
        ratios = [launch[str(size)] for launch in launches]
        low, high = median_interval(ratios)
        print(f"{size} B: ordinary / page-aligned {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}], "
              f"range {min(ratios):.3f} to {max(ratios):.3f} over {LAUNCHES} launches")  # fmt: skip


if __name__ == "__main__":
    rank() if sys.argv[1:] == ["rank"] else main()
