"""Time and memory of routing at scale, each case in a fresh process on one thread: `routing_scale.py [CASE]`.

The bars: from the expert ids of 1,000,000 tokens x top-8 of 256 to all traffic matrices in under 2 s; drawing those ids
from a gate in under 30 s; under 1 GB in all. Seconds are of the processor, so that other programs do not count.
"""

import json
import os
import resource
import subprocess
import sys
import time

RANKS, PER_NODE, TOKENS, EXPERTS, TOP_K = 64, 8, 15_625, 256, 8  # 1,000,000 tokens
DRAW_S, MATRICES_S, MEMORY_BYTES = 30.0, 2.0, 1e9
CASES = {
    "uniform": TOP_K, "zipf:1.2": TOP_K, "hot:8:0.4": TOP_K, "ratio:4": TOP_K, "node_limited:8:4": TOP_K,
    "node_limited:8:4:top2": TOP_K, "gshard:1.25:1": 2, "switch:1.25:1": 1,
}  # fmt: skip


def one(spec: str) -> dict:
    from commbench.routing.balance import balanced
    from commbench.routing.matrices import traffic
    from commbench.routing.named import generate
    from commbench.routing.placement import linear

    begin = time.process_time()
    routing = generate(spec, TOKENS, RANKS, EXPERTS, CASES[spec])
    drawn = time.process_time()
    found = traffic(routing, linear(EXPERTS, RANKS), PER_NODE)
    counted = time.process_time()
    placement = balanced(found.expert_load, RANKS, RANKS // PER_NODE, RANKS)
    placed = time.process_time()
    traffic(routing, placement, PER_NODE)
    return {
        "draw_s": drawn - begin, "matrices_s": counted - drawn, "placing_s": placed - counted,
        "with_copies_s": time.process_time() - placed,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "counts": found.counts,
    }  # fmt: skip


def main() -> int:
    missed = False
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for spec in CASES:
        done = subprocess.run([sys.executable, __file__, spec], capture_output=True, check=True, env=environment)
        found = json.loads(done.stdout)
        met = (
            found["draw_s"] < DRAW_S
            and max(found["matrices_s"], found["with_copies_s"]) < MATRICES_S
            and found["memory_bytes"] < MEMORY_BYTES
        )
        missed |= not met
        print(
            f"{spec}, top-{CASES[spec]}: drawn in {found['draw_s']:.1f} s, matrices in {found['matrices_s']:.2f} s, "
            f"placed by load in {found['placing_s']:.2f} s, matrices with copies in {found['with_copies_s']:.2f} s, "
            f"{found['memory_bytes'] / 1e6:.0f} MB: {'pass' if met else 'fail'}",
            flush=True,
        )
    print(f"bars: {DRAW_S:g} s, {MATRICES_S:g} s, {MEMORY_BYTES / 1e9:g} GB")
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(one(sys.argv[1])))
    else:
        sys.exit(main())
