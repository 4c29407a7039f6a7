"""Is a link that was slowed to a tenth named, with real traffic? Fresh labs of 4 nodes; needs root.

    python tests/benchmarks/isolate_lab.py [--runs 10] [--backend gloo]

Each run slows the uplink of a drawn node, in a drawn direction or in both, and measures the pairs of the ladder. Bar: exactly
that node and direction is named, and nobody else, in every run.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from labs import COMMBENCH, fresh

from commbench.acceptance.accuse import accuse, lines
from commbench.results.store import load_run

NODES = 4
LAUNCHER = {"gloo": "environment", "mpi": "mpirun"}


def pairs(name: str, backend: str):
    """The run of all pairs on the lab, loaded."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            "lab", "run", "--name", name, "--launcher", LAUNCHER[backend], "--", "commbench", "run", "p2p_bw",
            "--backend", backend, "--split", "rail pairs", "--root", "0,1", "--size", "1M", "--window", "2",
            "--iters", "3", "--warmup", "1", "--no-report", "--out", str(out),
        ]  # fmt: skip
        done = subprocess.run([*COMMBENCH, *command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"commbench run ended with exit code {done.returncode}: {done.stderr}")
        return load_run(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--backend", choices=["gloo", "mpi"], default="gloo")
    given = parser.parse_args()
    named = 0
    for number in range(given.runs):
        rng = random.Random(number)
        node, direction = rng.randrange(NODES), rng.choice(["out", "in", "both"])
        with fresh(
            "bench-isolate", "--nodes", str(NODES), "--ranks-per-node", "1", "--intra", "800mbit", "--inter", "200mbit"
        ) as name:
            shape = ["lab", "shape", f"node{node}", "--by", "0.1", "--direction", direction, "--name", name]
            subprocess.run([*COMMBENCH, *shape], check=True, stdout=subprocess.DEVNULL)
            found = accuse(pairs(name, given.backend))
        culprits = [(part.kind, part.nodes, part.side) for part in found.culprits]
        right = culprits == [("node", (node,), None if direction == "both" else direction)]
        named += right
        print(
            f"run {number + 1}, node{node} {direction}: {'named' if right else 'NOT NAMED'}; {lines(found)[0]}",
            flush=True,
        )
    print(f"{'pass' if named == given.runs else 'fail'}: the slow link was named in {named} of {given.runs} runs")
    return int(named < given.runs)


if __name__ == "__main__":
    sys.exit(main())
