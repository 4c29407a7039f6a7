"""What the ladder costs beside measuring on a large cluster: planning it, its files, and reading them between stages.

    python tests/benchmarks/plan_ladder.py [nodes, default 1024] [ranks per node, default 8]

Nothing is measured: every call takes what the simulated links allow; one node receives at half its rate. Times are those
of the processor, as other programs on the machine do not count. Above 64 nodes partners are drawn, so that a node costs
the same however many there are.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ladders  # noqa: E402

from commbench.acceptance.accuse import lines  # noqa: E402
from commbench.acceptance.judge import judge  # noqa: E402
from commbench.acceptance.ladder import next_stage  # noqa: E402
from commbench.acceptance.profile import load_profile  # noqa: E402
from commbench.results.store import load_run  # noqa: E402


def timed(what: str, call, *arguments):
    began = time.process_time()
    made = call(*arguments)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {what:36} {time.process_time() - began:7.1f} s, at most {used:.0f} MB so far", flush=True)
    return made


def main() -> None:
    nodes, per_node = (int(word) for word in (*sys.argv[1:], *("1024", "8")[len(sys.argv) - 1 :]))
    rate = ladders.cluster(per_node, {(nodes // 2, "in"): 0.5})
    os.fsync = lambda file: None  # the disk of this machine is not what is asked
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{nodes} nodes of {per_node} ranks")
        plan = timed("planned", ladders.planned, nodes, per_node)
        points = len(plan.points()) + sum(len(step) for _, steps in plan.later for step in steps)
        timed("plan.json written", plan.save, folder / "plan.json")
        size = (folder / "plan.json").stat().st_size
        print(
            f"  {points} points, {points / nodes:.1f} a node; plan.json {size / 1e6:.1f} MB, {size / points:.0f} B a point"
        )
        head = ladders.header(nodes, per_node)
        timed("nodes simulated", ladders.measure, folder, head, rate)
        while load_run(folder).plan.later:
            run = timed("run read", load_run, folder)
            plan, told = timed("next stage planned", next_stage, run)
            del run
            plan.save(folder / "plan.json")
            timed(f"{told[-1].split(',')[0]} simulated", ladders.measure, folder, head, rate)
        run = timed("run read", load_run, folder)
        total = sum(path.stat().st_size for path in folder.iterdir())
        judgement = timed("judged", judge, run, load_profile("h100-8x400g"))
        print(f"  {len(run.samples())} samples, {total / 1e6:.0f} MB on the disk, {total / nodes / 1e3:.0f} kB a node")
        print(f"  {judgement.reason}\n  {lines(judgement.found)[0]}")


if __name__ == "__main__":
    main()
