"""commbench perf OP: nccl-tests' flags in, its exact table out."""

import argparse
import os
import sys
from types import SimpleNamespace

from commbench.cli.op_names import OP_NAMES
from commbench.errors import UsageError

_WITHOUT_TABLE = ("p2p_latency", "p2p_bw", "p2p_bibw", "barrier", "all_to_all_padded", "count_exchange")
# nccl-tests' program names, with and without _perf, and ours.
_PROGRAMS = {name: name for name in OP_NAMES if name not in _WITHOUT_TABLE} | {
    "alltoall": "all_to_all", "alltoallv": "all_to_all_v", "allreduce": "all_reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}  # fmt: skip

# Flags of nccl-tests that torch or MPI give no way to honour: only their default is taken.
_FIXED = {
    ("-m", "--agg_iters"): ("1", "operations are not aggregated"),
    ("-N", "--run_cycles"): ("1", "repeat by running again, or `commbench run --launches N`"),
    ("-p", "--parallel_init"): ("0", "ranks are processes and always start in parallel"),
    ("-I", "--per_iter_timing"): ("0", "`commbench run --timing isolated` keeps every single time"),
    ("-R", "--local_register"): ("0", "torch registers no user buffers"),
    ("-C", "--report_cputime"): ("0", "CPU time is not reported"),
    ("-S", "--report_timestamps"): ("0", "times of day stand in the run's journal"),
    ("-M", "--memory_report"): ("0", "there is no memory report"),
    ("-u", "--unalign"): ("0", "buffers are page-aligned"),
    ("-D", "--device_implementation"): ("0", "device kernels are not part of it"),
    ("-V", "--device_cta_count"): ("16", "device kernels are not part of it"),
    ("-x", "--cta_policy"): ("0", "torch sets the policy"),
    ("-y", "--nullstream"): ("0", "calls go to torch's current stream"),
    ("-Y", "--memory_type"): ("0", "buffers come from torch's allocator"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-h", "--help", action="help", help="show this")
    add(
        "op",
        help="one of all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, alltoall(v), sendrecv",
    )
    add("-t", "--nthreads", type=int, default=1, help="multiplied with -g: ranks to start here")
    add("-g", "--ngpus", type=int, help="ranks to start here (default: GPUs, else cores)")
    add("-b", "--minbytes", default="32M", help="smallest size")
    add("-e", "--maxbytes", help="largest size (default: the smallest)")
    add("-i", "--stepbytes", help="increase of the size, default 1M")
    add("-f", "--stepfactor", help="factor of the size")
    add("-n", "--iters", type=int, default=20, help="timed calls per size")
    add("-w", "--warmup_iters", type=int, default=1, help="calls before them")
    add("-o", "--op", dest="redop", default="sum", help="sum, prod, min, max, avg, all")
    add(
        "-d",
        "--datatype",
        default="float",
        help="float, double, half, bfloat16, int8, uint8, int32, int64, f8e4m3, f8e5m2, all",
    )
    add("-r", "--root", default="0", help="root rank, or all")
    add("-z", "--blocking", default="0", help="taken as given: calls on a CPU always block")
    add("-c", "--check", type=int, default=1, help="checked calls per size")
    add("-G", "--cudagraph", type=int, default=0, help="calls captured in one CUDA graph (NCCL only)")
    add("-a", "--average", type=int, choices=[0, 1, 2, 3], default=1, help="over ranks: 0 rank 0, 1 mean, 2 min, 3 max")
    add("-T", "--timeout", type=float, default=0, help="seconds, 0 for 60")
    add("-J", "--output_file", help="also write all samples as JSON")
    add("--skew", help="alltoallv: what the busiest rank receives over the mean, such as 1,1.5,2,3,5; a table for each")
    add("--routing", help="alltoallv: tokens to experts by uniform, zipf:1.2, ...; a table for each")
    add("--backend", choices=["gloo", "nccl", "mpi"], help="default: nccl with GPUs, else gloo")
    add("--iface", help="network interface, such as eth0")
    add("--out", help="folder of the run (default: runs/...)")
    for flags, (default, reason) in _FIXED.items():
        add(*flags, default=default, help=f"only {default}: {reason}")


def main(args) -> int:
    from commbench.cli.run_here import set_environment
    from commbench.launch.identity import joined_world

    world = joined_world()
    _refuse_fixed(args)
    wanted = _as_run(args)
    set_environment(args.iface)
    if world is None:
        from commbench.launch.local import LocalSite

        return _perf(args, wanted, None, LocalSite())
    from commbench.launch.joined import run_joined

    return run_joined(world, args.timeout or None, lambda node_of, site: _perf(args, wanted, node_of, site))


def _refuse_fixed(args) -> None:
    for (short, long), (default, reason) in _FIXED.items():
        if getattr(args, long[2:]) != default:
            raise UsageError(f"{short} {getattr(args, long[2:])} is not supported: {reason}; leave it at {default}")


def _as_run(args) -> SimpleNamespace:
    """The same wish in the words of `commbench run`."""
    op = _PROGRAMS.get(args.op.removesuffix("_perf"))
    if op is None:
        raise UsageError(f"there is no {args.op!r} in nccl-tests' table; there are {', '.join(sorted(_PROGRAMS))}")
    if args.iters < 1:
        raise UsageError(f"-n {args.iters}: at least 1 timed call is needed")
    if args.warmup_iters < 0 or args.check < 0 or args.cudagraph < 0:
        raise UsageError("-w, -c and -G are 0 or more")
    if (args.skew or args.routing) and op != "all_to_all_v":
        raise UsageError(
            f"--skew and --routing are for alltoallv, whose ranks may send unequal shares; not for {args.op}"
        )
    ranks = None if args.ngpus is None else args.ngpus * args.nthreads
    return SimpleNamespace(op=op, ranks=ranks, sizes=_sizes(args), roots=args.root)


def _sizes(args) -> dict:
    sweep = {"from": args.minbytes, "to": args.maxbytes or args.minbytes}
    if args.stepfactor:
        try:
            sweep["factor"] = int(args.stepfactor)
        except ValueError:
            raise UsageError(f"-f {args.stepfactor!r} is no whole number; a factor is 2 or more") from None
    else:
        sweep["step"] = args.stepbytes or "1M"
    return sweep


def _tables(args, wanted, ranks: int) -> dict:
    """The suite of this call: streaming, one batch of -n calls, chunks rounded down to 16 bytes as nccl-tests does."""
    from commbench.world.dtypes import DTYPES

    everything = ["sum", "prod", "max", "min", "avg"]
    root = list(range(ranks)) if wanted.roots in ("all", "-1") else [_number("-r", wanted.roots)]
    measure = {
        "op": wanted.op,
        "size": wanted.sizes,
        "dtype": list(DTYPES) if args.datatype == "all" else args.datatype.split(","),
        "redop": everything if args.redop == "all" else args.redop.split(","),
        "root": root,
        "in_place": [False, True],
        "timing": "streaming",
        "batch": args.iters,
        "align": 16,
    }
    if wanted.op == "all_to_all_v" and not (args.skew or args.routing):
        measure["matrix"] = "equal"
    if args.skew:
        measure["skew"] = [_real("--skew", word) for word in args.skew.split(",")]
    if args.routing:
        measure["routing"] = args.routing.split(",")
    settings = {
        "iters": 1,
        "warmup": args.warmup_iters,
        "warmup_s": 10.0,
        "checks": args.check,
        "timeout_s": args.timeout or 60.0,
    }
    return {"name": f"perf-{wanted.op}", "settings": settings, "measure": [measure]}


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} {text!r} is no whole number") from None


def _real(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} {text!r} is no number") from None


def _perf(args, wanted, node_of, site) -> int:
    from dataclasses import replace

    from commbench.cli.perf_view import PerfView
    from commbench.cli.planning import local_gpus, plan_suite, world_here
    from commbench.cli.run_here import new_folder
    from commbench.launch.run import execute
    from commbench.results.export import to_json
    from commbench.results.store import load_run
    from commbench.suite.schema import check_suite

    backend = args.backend or ("nccl" if local_gpus() else "gloo")
    if args.cudagraph and backend != "nccl":
        raise UsageError(f"-G {args.cudagraph} captures CUDA graphs, which {backend} has not; leave it at 0")
    ranks, node_of, joined = world_here(wanted.ranks, node_of)
    suite = check_suite(_tables(args, wanted, ranks), "this call")
    plan = plan_suite(suite, [backend], node_of, joined)
    over = {0: "rank0", 1: "mean", 2: "min", 3: "max"}[args.average]
    steps = tuple(_paired(plan.steps, over))
    plan = replace(plan, steps=steps, settings=replace(plan.settings, graph=args.cudagraph))
    run_dir = new_folder(args.out, plan.name)
    plan.save(run_dir / "plan.json")
    if args.output_file:
        _check_writable(args.output_file)
    view = PerfView(plan, sys.stdout)
    code, reason = execute(plan, run_dir, site, view)
    view.close()
    if args.output_file:
        with open(args.output_file, "w") as file:
            to_json(load_run(run_dir), file)
    if code:
        print(f"commbench: exit code {code}: {reason}", file=sys.stderr)
    print(f"samples: {os.path.abspath(run_dir)}", file=sys.stderr)
    return code


def _check_writable(path: str) -> None:
    """Raise UsageError before the measuring rather than lose its result after it."""
    try:
        open(path, "a").close()
    except OSError as error:
        raise UsageError(f"-J {path} cannot be written: {error.strerror}") from None


def _paired(steps, over_ranks: str):
    """Out-of-place and in-place of a size next to each other, as the table prints them."""
    from dataclasses import replace

    from commbench.results.metrics import flow_words

    order = {}
    for step in steps:
        point = replace(step[0], over_ranks=over_ranks)
        key = flow_words(point), point.dtype, point.redop, point.root, point.params.get("requested_bytes")
        order.setdefault(key, []).append((point,))
    for pair in order.values():
        yield from pair
