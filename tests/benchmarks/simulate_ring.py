"""Time and memory of simulations, each in a fresh process: `python tests/benchmarks/simulate_ring.py [OP NAME RANKS]`.

The bar: ring all_reduce of 16,384 ranks in under 5 s and 2 GB, from the start of the interpreter to the result.
"""

import json
import resource
import subprocess
import sys
import time

BAR_S, BAR_BYTES = 5.0, 2e9
CASES = [
    ("all_reduce", "ring", 16_384),
    ("all_reduce", "tree", 16_384),
    ("all_reduce", "hierarchical", 16_384),
    ("all_reduce", "ring", 131_071),
    *(("all_reduce", name, 131_072) for name in ("ring", "tree", "hierarchical", "rabenseifner", "recursive_doubling")),
    ("all_gather", "bruck", 131_072),
    ("all_gather", "pat", 131_072),
    ("reduce_scatter", "recursive_halving", 131_072),
    ("broadcast", "binomial", 131_072),
    ("broadcast", "scatter_all_gather", 131_072),
    ("all_to_all", "bruck", 131_072),
    ("all_to_all", "two_level", 131_072),
    ("all_to_all", "pairwise", 131_072),
]


def one(op: str, name: str, ranks: int) -> None:
    from commbench.fabrics import load_fabric
    from commbench.schedules.catalogue import build
    from commbench.schedules.simulate import simulate

    result = simulate(build(op, name, ranks, per_node=8, pieces=8), load_fabric("h100-8x400g"), 1 << 20)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"time_us": result.time_us, "n_steps": result.n_steps, "memory_bytes": memory}))


def main() -> int:
    missed = False
    for op, name, ranks in CASES:
        began = time.perf_counter()
        done = subprocess.run([sys.executable, __file__, op, name, str(ranks)], capture_output=True, check=True)
        took, found = time.perf_counter() - began, json.loads(done.stdout)
        verdict = ""
        if (name, ranks) == ("ring", 16_384):
            met = took < BAR_S and found["memory_bytes"] < BAR_BYTES
            verdict, missed = f"  bar {BAR_S:g} s, {BAR_BYTES / 1e9:g} GB: {'met' if met else 'MISSED'}", not met
        print(
            f"{op} {name}, {ranks} ranks: {took:.2f} s, {found['memory_bytes'] / 1e6:.0f} MB for "
            f"{found['n_steps']} steps of {found['time_us']:.0f} us in all{verdict}",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:]:
        one(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
