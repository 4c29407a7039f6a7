"""From the command line to a plan: a suite's tables, changed by the flags, expanded for the world that is there."""

import math
import os
import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path

from commbench.cli.laid_over import lay_axes, lay_layers, lay_traffic
from commbench.cli.op_names import OP_NAMES
from commbench.errors import UsageError
from commbench.layers import NAMES as LAYER_NAMES
from commbench.results.plan import Plan, Settings
from commbench.suite.expand import expand
from commbench.suite.memory import available_bytes, check_memory, gpu_available_bytes
from commbench.suite.schema import check_suite, read_suite

_SWEEP = re.compile(r"([^.*+]+)\.\.([^*+]+)(?:\*([\d.]+)|\+(\S+))?")


def gpus_here() -> int:
    """GPUs of this machine, without waking CUDA: a process that has used CUDA cannot be forked."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or len(list(Path("/dev").glob("nvidia[0-9]*")))


def local_gpus() -> int:
    """GPUs of this machine that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus_here()
    return min(gpus_here(), len([part for part in visible.split(",") if part.strip() not in ("", "-1")]))


def default_ranks() -> int:
    return local_gpus() or len(os.sched_getaffinity(0))


def parse_sizes(text: str):
    """ "1M", "8,64K", "8..64M", "8..64M*4" or "1M..8M+1M" in the form that a suite file has."""
    match = _SWEEP.fullmatch(text.strip())
    if match is None:
        return [part.strip() for part in text.split(",") if part.strip()]
    sweep = {"from": match[1], "to": match[2]}
    if match[3]:
        sweep["factor"] = float(match[3])
    if match[4]:
        sweep["step"] = match[4]
    return sweep


def suite_tables(args) -> dict:
    """The tables of the suite that the command line names, with its flags laid over them."""
    if args.suite is None:
        raise UsageError("name a suite, a suite file or an operation, such as `commbench run quick`")
    if args.suite in LAYER_NAMES:
        tables = {"name": args.suite, "measure": [{"layer": args.suite}]}
    elif args.suite in OP_NAMES:
        tables = {"name": args.suite, "measure": [{"op": args.suite, "size": {"from": "8", "to": "64M", "factor": 4}}]}
    else:
        tables = read_suite(args.suite)
    if args.backend:
        tables["backend"] = _words(args.backend)
    for key in ("launches", "seed"):
        if getattr(args, key) is not None:
            tables[key] = getattr(args, key)
    if args.refine:
        tables["refine"] = True
    settings = {
        "iters": args.iters, "warmup": args.warmup, "target": args.target, "budget_s": args.budget,
        "checks": args.checks, "timeout_s": args.timeout,
    }  # fmt: skip
    given = {key: value for key, value in settings.items() if value is not None}
    if given:
        tables["settings"] = {**tables.get("settings", {}), **given}
    axes = {
        key: _words(value)
        for key in ("algorithm", "dtype", "redop", "root", "timing", "batch", "window")
        if (value := getattr(args, key))
    }
    for key in {"root", "batch", "window"} & set(axes):
        axes[key] = [_number(key, word) for word in axes[key]]
    if args.size:
        axes["size"] = parse_sizes(args.size)
    if args.in_place:
        axes["in_place"] = {"no": [False], "yes": [True], "both": [False, True]}[args.in_place]
    if args.split:
        axes["split"] = args.split
    if args.matrix:
        axes["matrix"] = args.matrix
    measures = tables.get("measure")
    if isinstance(measures, list):
        options = dict(_option(text) for text in args.set or ())
        degree = {"degree": [_number("degree", word) for word in _words(args.degree)]} if args.degree else {}
        tables["measure"] = measures = lay_layers(lay_traffic(args.suite, measures, _flow(args)), degree, options)
    if axes and isinstance(measures, list):
        tables["measure"] = measures = lay_axes(args.suite, measures, axes)
    if args.profile and isinstance(measures, list):
        from commbench.acceptance.profile import load_profile
        from commbench.acceptance.wanted import measures_of

        own = check_suite(tables, f"suite {args.suite}").measure
        tables["measure"] = measures + measures_of(load_profile(args.profile), own)
    return tables


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _flow(args) -> dict:
    """The keys of a suite for generated traffic that the flags give."""
    given = {}
    if args.skew:
        given["skew"] = [_real("skew", word) for word in _words(args.skew)]
    for key in ("routing", "placement", "copies"):
        if value := getattr(args, key):
            given[key] = _words(value)
    for key in ("experts", "top_k"):
        if value := getattr(args, key):
            given[key] = _number(key.replace("_", "-"), value)
    if args.tokens:
        tokens = [_number("tokens", word) for word in _words(args.tokens)]
        given["tokens"] = tokens[0] if len(tokens) == 1 else tokens
    return given


def _real(name: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"--{name} {word!r} is no number") from None


def _option(text: str) -> tuple[str, list]:
    """NAME=VALUE[,VALUE] of --set: true and false, whole numbers, other numbers, else words."""
    name, equals, values = text.partition("=")
    if not equals or not _words(values):
        raise UsageError(f"--set {text!r} is not understood; write --set tokens=512 or --set tokens=512,1024")
    read = [_value(word) for word in _words(values)]
    if any(isinstance(value, float) and not math.isfinite(value) for value in read):
        raise UsageError(f"--set {text!r}: write numbers that are finite")
    return name.strip(), read


def _value(word: str):
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _number(name: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(f"--{name} {word!r} is no whole number") from None


def world_here(wanted: int | None, node_of: list[int] | None) -> tuple[int, list[int], bool]:
    """(ranks, node of each rank, whether a launcher started them). `node_of` is None when ranks start here."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"{wanted} ranks make no world; it has at least 1")
    if node_of is None:
        ranks = wanted or default_ranks()
        return ranks, [0] * ranks, False
    if wanted is not None and wanted != len(node_of):
        raise UsageError(
            f"expected {wanted} ranks, world size is {len(node_of)}: start as many tasks as were asked for"
        )
    return len(node_of), node_of, True


def plan_run(args, node_of: list[int] | None) -> Plan:
    """The plan of `commbench run`. `node_of` is the node of each rank when joined, None when ranks start here.

    Raises UsageError for anything in flags or file that cannot be, and when the buffers do not fit.
    """
    suite = check_suite(suite_tables(args), f"suite {args.suite}")
    _, node_of, joined = world_here(args.ranks if args.ranks is not None else suite.ranks, node_of)
    return plan_suite(suite, suite.backend or ["nccl" if local_gpus() else "gloo"], node_of, joined)


def plan_suite(suite, backends: list[str], node_of: list[int], joined: bool) -> Plan:
    """The plan of a suite for the world that is there; raises as plan_run does."""
    from commbench.measure import now

    ranks = len(node_of)
    per_node = max(node_of.count(node) for node in set(node_of))
    check_backends(backends, per_node, joined)
    stages = [(name, expand(part, ranks, backends, node_of, joined)) for name, part in _stages(suite)]
    steps = tuple(step for _, steps in stages for step in steps)
    if joined and "mpi" in backends and len(stages) > 1:
        # Open MPI hands a second launch the TCP addresses of the first one's ranks, so between nodes it never forms.
        print(
            "commbench: over MPI under a launcher all stages are measured in one go, whatever they find",
            file=sys.stderr,
        )
        stages = [("", steps)]
    settings = Settings(**suite.settings.model_dump())
    seed = suite.seed
    if seed is None and suite.launches > 1:
        seed = secrets.randbelow(2**31)
    command = ("commbench", *sys.argv[1:])
    plan = Plan(suite.name, steps, settings, suite.launches, command, now(), seed, suite.refine)
    sharing = {world.ranks: per_node if world.ranks == ranks else world.ranks for world in plan.worlds()}
    for place, available in ((("nccl",), gpu_available_bytes), (("gloo", "mpi"), available_bytes)):
        part = replace(plan, steps=tuple(step for step in steps if step[0].backend in place))
        if part.steps:
            check_memory(part, sharing, available())
    return replace(plan, steps=stages[0][1], later=tuple(stages[1:]))


def _stages(suite):
    """(name, the suite's measures of that stage) in the order in which the stages are first named."""
    names = dict.fromkeys(measure.stage for measure in suite.measure)
    for name in names:
        yield name or "", suite.model_copy(update={"measure": [m for m in suite.measure if m.stage == name]})


def check_backends(backends: list[str], ranks_per_node: int, joined: bool) -> None:
    """Raise when a wanted backend is not there: MeasureError, or UsageError where there are more ranks than GPUs."""
    from commbench.launch.mpirun import mpirun_command, need_mpi4py

    if "mpi" in backends:
        need_mpi4py() if joined else mpirun_command(1, [])
    # A launcher may show each task one GPU only; whether two tasks share one is seen when the world forms.
    gpus = gpus_here() if joined else local_gpus()
    if "nccl" in backends and gpus < ranks_per_node:
        raise UsageError(
            f"{ranks_per_node} ranks on this node need {ranks_per_node} GPUs for NCCL, it has {gpus}; "
            "start fewer ranks, or use --backend gloo"
        )
