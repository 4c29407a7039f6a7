"""all_reduce of 8 bytes on 2 MPI ranks: our harness against osu_allreduce, same library, same statistic.

The statistic is OSU's: each rank's mean over its calls, a barrier between calls, averaged over ranks. Launches of both
alternate. Bar: ours <= OSU + binding_us + 0.5 us, where binding_us is the same call on COMM_SELF from
Python, taken in the same way.
OSU_DIR names the folder (or a parent of it) in which a built osu_allreduce lies; without it nothing is compared.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

# Short launches and many of them: one preemption of 4 ms in 1000 calls moves a mean by 4 us, and the median drops it.
LAUNCHES, CALLS, WARMUP = 20, 1000, 500


def rank() -> None:
    """One rank of our side."""
    from commbench.ops.prepared import Buffers, Prepared
    from commbench.results.records import Point
    from commbench.timing import stopwatch
    from commbench.world.mpi_world import MpiWorld

    world = MpiWorld()
    point = Point("all_reduce", "mpi", 8, members=(0, 1), ranks=2, count=2, redop="sum")
    prepared = Prepared(world, world.split([[0, 1]]), point, Buffers(world))
    prepared.refill()
    stopwatch.isolated(prepared.run, world.align, WARMUP, lambda i: None)
    mean = float(stopwatch.isolated(prepared.run, world.align, CALLS, lambda i: None).mean())
    binding = world.binding_us()
    rows = world.gather([mean, binding])
    if rows:
        print(
            json.dumps(
                {"mean_us": statistics.mean(r[0] for r in rows), "binding_us": statistics.mean(r[1] for r in rows)}
            )
        )
    world.close()


def ours() -> dict:
    from commbench.launch.mpirun import mpirun_command

    done = subprocess.run(mpirun_command(2, [__file__, "rank"]), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def osu(program: Path) -> float:
    from commbench.launch.mpirun import find_mpirun, mpirun_command

    command = mpirun_command(2, [])
    command = command[: command.index(sys.executable)]
    arguments = ["-m", "8:8", "-i", str(CALLS), "-x", str(WARMUP), "-T", "mpi_float"]
    # OSU was linked against this MPI; its mpirun finds the libraries by itself, the program may need to be told.
    library = str(Path(find_mpirun()).parent.parent / "lib")
    env = {**os.environ, "LD_LIBRARY_PATH": f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    done = subprocess.run([*command, str(program), *arguments], capture_output=True, text=True, check=True, env=env)
    row = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["8"])
    return float(row.split()[1])


def main() -> None:
    folder = os.environ.get("OSU_DIR")
    programs = sorted(Path(folder).rglob("osu_allreduce")) if folder else []
    programs = [p for p in programs if p.is_file() and os.access(p, os.X_OK)]
    if not programs:
        print("not compared: set OSU_DIR to a folder with a built osu_allreduce")
        return
    pairs = []
    for launch in range(LAUNCHES):
        first_ours = launch % 2 == 0
        mine = ours() if first_ours else None
        theirs = osu(programs[0])
        mine = mine or ours()
        pairs.append((mine["mean_us"], theirs, mine["binding_us"]))
        print(
            f"launch {launch + 1}: ours {pairs[-1][0]:.2f} us, OSU {theirs:.2f} us, binding {pairs[-1][2]:.2f} us",
            flush=True,
        )
    own, theirs, binding = (statistics.median(column) for column in zip(*pairs, strict=True))
    allowed = theirs + binding + 0.5
    print(f"median of {LAUNCHES} launches: ours {own:.2f} us, OSU {theirs:.2f} us, binding {binding:.2f} us")
    print(f"{'pass' if own <= allowed else 'fail'}: {own:.2f} us against OSU + binding + 0.5 = {allowed:.2f} us")


if __name__ == "__main__":
    rank() if sys.argv[1:] == ["rank"] else main()
