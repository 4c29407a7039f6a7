"""commbench plan MODEL --fabric F|--run RUN: how to cut a model over a cluster, with the arithmetic shown."""

import argparse
import math


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "Without --layout all layouts that fit are ranked. A layout is tp=8,pp=16,... of tp, cp, dp, pp, vpp (chunks\n"
        "of a pipeline rank), ep, zero, micro_batch, recompute (none, light, selective, full), schedule (1f1b,\n"
        "interleaved, gpipe, zb_h1, dualpipe), sp, cp_kind (all_gather, ring, ulysses), flash, dropout; dp is what\n"
        "is left. An answer rests on assumptions, which it prints.\n"
        "examples:\n"
        "  commbench plan llama3-405b --fabric h100-8x400g --gpus 16384\n"
        "  commbench plan llama3-405b --fabric h100-8x400g --gpus 16384 --layout tp=8,pp=16,vpp=8,zero=2\n"
        "  commbench plan deepseek-v3 --fabric h800-8x400g --gpus 2048 --precision fp8 --batch 15360\n"
        "  commbench plan my-model.toml --run runs/quick-... --gpu my-gpu.toml --efficiency 0.5 --gpus 4\n"
        "  commbench plan llama3-405b --fabric h100-8x400g --serving\n"
        "  commbench plan --published\n"
        "  commbench plan --claim mfu=152 --gpu h100"
    )
    add = parser.add_argument
    add("model", nargs="?", help="a shipped shape (llama3-405b, deepseek-v3, ...) or a TOML file of one")
    add("--fabric", help="a shipped fabric (h100-8x400g, ...) or a TOML file of one")
    add("--run", nargs="+", metavar="RUN", help="runs, or one model file of `commbench fit`, in place of a fabric")
    add("--series", metavar="TEXT", default="", help="with --run: only series whose name holds TEXT")
    add("--per-node", type=int, metavar="N", help="with --run: ranks of a node (default: the most measured on one)")
    add("--gpu", help="a GPU or a TOML file of one (default: the fabric's)")
    add("--gpus", type=int, help="ranks of the job (default: those of the layout)")
    add("--layout", help="one layout, such as tp=8,pp=16,vpp=8,zero=1")
    add("--sequence", type=int, help="tokens of a sequence (default: the model's)")
    add("--batch", type=int, help="sequences a step (default: some 2^24 tokens, in equal shares)")
    add("--precision", choices=("bf16", "fp8", "fp32"), default="bf16", help="of matrix products (default: bf16)")
    add("--optimizer", default="adam-fp32-grads", help="bytes of model state: adam, adam-fp32-grads, ... (default)")
    add(
        "--efficiency",
        type=float,
        help="share of the dense peak that kernels reach (default: fitted to published runs)",
    )
    add("--kernel-TFLOPs", type=float, dest="kernel_TFLOPs", help="measured rate of matrix products, in its place")
    add("--tp-overlap", action="store_true", help="TP collectives run behind the matrix products beside them")
    add("--tp-in-domain", action="store_true", help="search: tp stays within an NVLink domain")
    add("--ep-most", type=int, default=512, metavar="N", help="search: at most so many expert ranks (default: 512)")
    add("--zero-with-pp", default="1", help="search: ZeRO stages allowed with a pipeline, such as 1,2 (default: 1)")
    add("--checkpoint", type=float, default=30.0, metavar="S", help="seconds a checkpoint costs the run (default: 30)")
    add("--restart", type=float, default=600.0, metavar="S", help="seconds until a lost run goes on (default: 600)")
    add("--serving", action="store_true", help="memory and speed of inference in place of training")
    add("--claim", metavar="WHAT=VALUE", help="check a quoted figure: mfu=152, gpu-util=90, recompute=33, dualpipe=2")
    add("--peak", type=float, metavar="TFLOPs", help="with --claim mfu=...: the peak it was divided by")
    add("--published", action="store_true", help="published runs beside what is predicted of them")
    add("--json", action="store_true", help="the answer as JSON")
    add("--report", metavar="FILE", help="write the plan page there (HTML)")


def main(args) -> int:
    from commbench.errors import UsageError

    if args.published and (args.model or args.claim):
        raise UsageError("--published stands alone: it has no use for a model or a --claim")
    if args.published:
        return _published(args)
    if args.claim and (args.model or args.json or args.report):
        raise UsageError("--claim stands alone: it has no use for a model, --json or --report")
    if args.claim:
        return _claimed(args)
    if not args.model:
        raise UsageError("commbench plan needs a model, such as llama3-405b, or --published")
    if bool(args.fabric) == bool(args.run):
        raise UsageError("commbench plan needs --fabric F or --run RUN, and not both")
    return _planned(args)


def _published(args) -> int:
    from commbench.cli.plan_json import published_json
    from commbench.cli.plan_published import published_lines
    from commbench.planning.judged import judge

    rows, verdict = judge()
    if args.report:
        _write(args.report, None, rows, verdict)
    print(published_json(rows, verdict) if args.json else "\n".join(published_lines(rows, verdict)))
    return 0


def _claimed(args) -> int:
    """A quoted figure: told to be possible, or refused with the likely reason (exit 2)."""
    from commbench.errors import UsageError
    from commbench.planning.gpus import gpu_named
    from commbench.planning.traps import (
        checked_mfu,
        dualpipe_activations,
        peak_for,
        recompute_overhead,
        refuse_gpu_utilisation,
    )

    name, _, text = args.claim.partition("=")
    try:
        value = float(text.rstrip("% "))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"--claim {args.claim}: write a name and a number, such as mfu=41")
    refuse_gpu_utilisation(name)
    if name.lower() == "mfu":
        if not args.gpu:
            raise UsageError("--claim mfu=... needs --gpu, whose peak it is a share of")
        gpu = gpu_named(args.gpu)
        kind = "" if args.peak is None else f" of the {peak_for(gpu, args.peak)} peak"
        checked_mfu(value, gpu, args.peak)
        print(f"{args.claim}{kind} can be")
        return 0
    elif name.lower() == "recompute":
        recompute_overhead(value, measured=True)
    elif name.lower() == "dualpipe":
        dualpipe_activations(value)
    else:
        raise UsageError(f"--claim {name}: there are mfu, gpu-util, recompute and dualpipe")
    print(f"{args.claim} can be")
    return 0


def _planned(args) -> int:
    from commbench.cli.plan_json import advice_json
    from commbench.cli.plan_view import layout_lines, search_lines
    from commbench.errors import UsageError
    from commbench.planning.advice import advise_layout, advise_search

    if args.serving:
        flags = ("layout", "gpus", "batch", "sequence", "json", "report")
        unused = [name for name in flags if getattr(args, name) not in (None, False)]
        if unused:
            raise UsageError(f"--serving has no use for --{unused[0]}; leave it out")
    shape, machine, fabric = _machine(args)
    if args.serving:
        from commbench.cli.plan_serving import serving_lines

        print("\n".join(serving_lines(shape, machine)))
        return 0
    job, layout = _job(args, shape)
    assume = _assumptions(args)
    if layout is not None:
        told = advise_layout(shape, layout, job, machine, assume, args.checkpoint, args.restart)
        lines = layout_lines(told)
    else:
        told = advise_search(
            shape, job, machine, assume, _limits(args), fabric if args.report else None, args.checkpoint, args.restart
        )
        lines = search_lines(told)
    if args.report:  # before a word is printed: a reader such as `head` may close the pipe
        from commbench.planning.judged import judge

        _write(args.report, told, *judge())
    print(advice_json(told) if args.json else "\n".join(lines))
    return 0


def _machine(args):
    """(shape, machine, fabric or None) as the flags name them."""
    from commbench.errors import UsageError
    from commbench.fabrics import load_fabric
    from commbench.planning.efficiency import machine_of
    from commbench.planning.gpus import gpu_named, gpu_of_fabric
    from commbench.planning.links import fabric_links
    from commbench.shapes import read_shape

    shape = read_shape(args.model)
    fabric = load_fabric(args.fabric) if args.fabric else None
    gpu = gpu_named(args.gpu) if args.gpu else gpu_of_fabric(fabric.name) if fabric else None
    if gpu is None:
        raise UsageError("which GPU is it? say --gpu h100, or a TOML file of one's own")
    share = args.efficiency
    if args.kernel_TFLOPs is not None:
        if share is not None:
            raise UsageError("give --efficiency or --kernel-TFLOPs, not both")
        share = args.kernel_TFLOPs / gpu.peak_TFLOPs(args.precision)
    if share is not None and not 0 < share <= 1:
        raise UsageError(
            f"kernels at {100 * share:.0f} % of the {gpu.peak_TFLOPs(args.precision):g} TFLOP/s of {gpu.name} cannot "
            "be; the share of the dense peak lies between 0 and 1"
        )
    links = fabric_links(fabric) if fabric else _measured_links(args)
    return shape, machine_of(gpu, links, share), fabric


def _measured_links(args):
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.models.model_file import ModelFile, load_models
    from commbench.models.series_fit import fit_tables
    from commbench.models.table import read_series
    from commbench.planning.fitted_links import fitted_links

    if args.per_node is not None and args.per_node < 1:
        raise UsageError(f"--per-node {args.per_node}: a node has 1 rank or more")
    files = [path for path in args.run if Path(path).suffix == ".json"]
    if files and len(args.run) > 1:
        raise UsageError(f"--run {files[0]}: a model file stands alone; `commbench fit` makes one of several runs")
    if files:
        models = load_models(Path(files[0]))
    else:
        models = ModelFile(tuple(fit_tables(read_series(args.run))), tuple(args.run))
    return fitted_links(models, ", ".join(args.run), args.series, args.per_node)


def _job(args, shape):
    """(job, layout or None)."""
    from commbench.errors import UsageError
    from commbench.planning.layout import Job, parse_layout

    layout = None if args.layout is None else parse_layout(args.layout, args.gpus)
    gpus = args.gpus if args.gpus is not None else layout.ranks if layout else None
    if gpus is None:
        raise UsageError("how many GPUs? say --gpus N, or a --layout whose product it is")
    sequence = shape.sequence if args.sequence is None else args.sequence
    batch = _usual_batch(gpus, sequence) if args.batch is None else args.batch
    for flag, value in (("--gpus", gpus), ("--sequence", sequence), ("--batch", batch)):
        if not 1 <= value <= 10**9:
            raise UsageError(f"{flag} {value}: give a number from 1 to 10^9")
    return Job(gpus, sequence, batch, args.precision, args.optimizer), layout


def _usual_batch(gpus: int, sequence: int) -> int:
    """Sequences of some 2^24 tokens that many layouts divide: a power of two, times the odd factor of `gpus`."""
    wanted, odd = max(1, 2**24 // max(1, sequence)), max(1, gpus)
    while odd % 2 == 0:
        odd //= 2
    return odd * 2 ** round(math.log2(wanted / odd)) if 1 < odd <= wanted else wanted


def _assumptions(args):
    from commbench.planning.machine import Assumptions

    return Assumptions(tp_overlap=args.tp_overlap)


def _limits(args):
    from commbench.errors import UsageError
    from commbench.planning.search import Limits

    stages = tuple(args.zero_with_pp.split(","))
    if not set(stages) <= {"0", "1", "2", "3"}:
        raise UsageError(f"--zero-with-pp {args.zero_with_pp}: write stages of 0 to 3, such as 1,2")
    if args.ep_most < 1:
        raise UsageError(f"--ep-most {args.ep_most}: an expert group has 1 rank or more")
    return Limits(tp_in_domain=args.tp_in_domain, ep_most=args.ep_most, zero_with_pp=tuple(map(int, stages)))


def _write(path: str, told, rows, verdict) -> None:
    import sys
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.reports.plan_page import write_plan_page

    try:
        print(f"written: {write_plan_page(told, rows, verdict, Path(path)).resolve()}", file=sys.stderr)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose another --report") from None
