"""Runs with known bandwidths, for the tests of acceptance."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from measured import sample, write_run

from commbench.ops import OPS
from commbench.results.plan import Plan, Settings
from commbench.results.store import Launch, Run, load_run

G = 2**30
# time in us, out of place and in place, by size: all_reduce on the 8 H100 of a p5 (awsome-distributed-training,
# nccl-tests/aws-batch/README.md), whose average over the sweep is printed as 156.742 GB/s.
P5 = {
    8: (12.90, 12.87), 16: (12.88, 12.83), 32: (22.25, 13.34), 64: (14.48, 14.37), 128: (15.47, 15.27),
    256: (15.72, 15.33), 512: (16.19, 15.52), 1024: (16.43, 15.61), 2048: (16.62, 15.90), 4096: (16.76, 16.06),
    8192: (16.85, 16.20), 16384: (17.46, 16.78), 32768: (18.78, 18.09), 65536: (19.09, 18.26), 131072: (19.37, 18.57),
    262144: (20.27, 20.13), 524288: (21.17, 20.96), 1048576: (28.56, 28.37), 2097152: (43.45, 43.39),
    4194304: (55.44, 55.00), 8388608: (84.29, 83.22), 16777216: (124.0, 123.4), 33554432: (198.6, 198.3),
    67108864: (326.6, 326.5), 134217728: (592.8, 592.1), 268435456: (1121.4, 1121.2), 536870912: (2165.3, 2166.4),
    1073741824: (4253.0, 4255.4), 2147483648: (8463.7, 8466.5), 4294967296: (15791, 15773),
    8589934592: (31289, 31294), 17179869184: (62239, 62200),
}  # fmt: skip


def p5(most_bytes=16 * G) -> list:
    """The rows of P5 up to a size."""
    return [
        sample(time, size, samples=1, noise=0, ranks=8, backend="nccl", in_place=in_place)
        for size, times in P5.items()
        for time, in_place in zip(times, (False, True))
        if size <= most_bytes
    ]


def row(op, busbw_GBps, size_bytes=4 * G, ranks=8, launch=1, backend="nccl", seen="not observed", members=None, **what):
    """One row with that bus bandwidth; `members` where they are not the first ranks."""
    time_us = size_bytes * OPS[op].bus_factor(ranks) / busbw_GBps / 1e3
    made = sample(
        time_us, size_bytes, launch, samples=1, noise=0, op=op, kind=OPS[op].kind, ranks=ranks, backend=backend, **what
    )
    point = replace(made.point, members=members) if members else made.point
    return replace(made, point=point, algorithm_seen=seen)


def node(op, busbw_GBps, sizes=(4, 8, 16), **what) -> list:
    """Rows of one node of 8 ranks at those sizes in GiB."""
    return [row(op, busbw_GBps, size * G, **what) for size in sizes]


def over_nodes(op, busbw_GBps, nodes=2, sizes=(1, 4, 16), **what) -> list:
    """Rows of all 8 ranks of each of several nodes."""
    return [row(op, busbw_GBps, size * G, 8 * nodes, nodes=nodes, scope="mixed", **what) for size in sizes]


def stored(folder: Path, rows, header=None) -> Run:
    """The rows as a run on the disk; `header` is added to that of each launch."""
    rmtree(folder, ignore_errors=True)
    write_run(folder, rows)
    if header:
        for journal in folder.glob("launch-*.jsonl"):
            first, *rest = journal.read_text().splitlines()
            journal.write_text("\n".join([json.dumps({**json.loads(first), **header}), *rest]) + "\n")
    return load_run(folder)


def held(rows) -> Run:
    """The rows as a run that never was on a disk."""
    launches = sorted({r.launch for r in rows})
    plan = Plan(
        "held", tuple((point,) for point in {r.point.id: r.point for r in rows}.values()), Settings(), len(launches)
    )
    of_launch = [tuple(r for r in rows if r.launch == n) for n in launches]
    return Run(
        Path("held"), plan, tuple(Launch(Path(f"{n}"), {}, found, {}, 0) for n, found in enumerate(of_launch, 1))
    )


def header_of(hosts: int, per_node=8, nvlinks=None, **node_facts) -> dict:
    """What a header tells of so many hosts, host0, host1, ..., each with `per_node` ranks."""
    gpus = [{"index": i, "name": "GPU", "nvlink": {"links": 18, "active": nvlinks}} for i in range(per_node)]
    return {
        "nodes": [{"host": f"host{n}", **({"gpus": gpus} if nvlinks else {}), **node_facts} for n in range(hosts)],
        "ranks": [{"rank": r, "host": f"host{r // per_node}", "node": r // per_node} for r in range(hosts * per_node)],
    }
