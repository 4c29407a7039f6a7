"""commbench predict MODEL --ranks N --size S: the time that a fitted model says, or the model for other programs."""

import argparse

EXPORTS = ("tuner", "simai", "astra", "python")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exports: tuner (NCCL's example tuner plugin), simai (SimAI's bandwidth ratios), astra (ASTRA-sim's\n"
        "analytical network), python (time_us(ranks, nodes, size_bytes) in a file that needs nothing else)\n"
        "examples:\n"
        "  commbench predict model.json --ranks 512 --size 1M,64M\n"
        "  commbench predict model.json --op all_reduce --export python --out all_reduce_time.py"
    )
    add = parser.add_argument
    add("model", help="the file that `commbench fit --out` wrote")
    add("--ranks", help="512, or several: 64,512 or 8..4096, which doubles")
    add("--nodes", type=int, help="nodes they lie on (default: ranks per node as measured)")
    add("--per-node", type=int, help="ranks on a node, in place of --nodes: for several --ranks at once")
    add("--size", help="1M, or several: 1M,64M or 8..64M*4")
    add("--op", help="only series of this operation")
    add("--algorithm", help="only series of this algorithm, such as library, ring, own:ring")
    add("--series", metavar="TEXT", help="only series whose name holds TEXT")
    add("--export", choices=EXPORTS, help="write the model for another program instead")
    add("--out", metavar="FILE", help="file to write an export to (default: standard output)")


def main(args) -> int:
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.models.model_file import load_models

    chosen = _chosen(load_models(Path(args.model)).series, args)
    if args.export:
        _write(args.out, _exported(args, chosen))
        return 0
    if not args.ranks or not args.size:
        raise UsageError("a prediction needs --ranks and --size, such as --ranks 512 --size 1M,64M")
    return _predicted(args, chosen)


def _chosen(series, args):
    """The series with a time of their own that the flags leave."""
    from commbench.errors import MeasureError, UsageError

    wanted = [
        s
        for s in series
        if args.op in (None, s.label["op"])
        and args.algorithm in (None, s.label.get("algorithm", "library"))
        and (args.series or "") in s.name
        and s.kind != "loggp"
    ]
    if not wanted:
        there = "; ".join(s.name for s in series if s.kind != "loggp") or "none"
        raise UsageError(f"{args.model} has no series like that; it has {there}")
    fitted = [s for s in wanted if s.kind != "none"]
    if not fitted:
        raise MeasureError(f"{wanted[0].name} was not fitted: {'; '.join(wanted[0].faults)}")
    return fitted


def _predicted(args, chosen) -> int:
    from commbench.cli.columns import aligned, figure
    from commbench.cli.numbers import numbers
    from commbench.errors import PASS, UNMEASURED, CommbenchError
    from commbench.models.answer import answer, busbw_GBps, nodes_of
    from commbench.results.nccl_tests import one_line
    from commbench.units import format_size

    sizes, counts = numbers("--size", args.size), numbers("--ranks", args.ranks)
    refused, answered = [], 0
    for series in chosen:
        rows, texts = [], []
        for ranks in counts:
            for size in sizes:
                try:
                    nodes = _nodes(args, ranks) or nodes_of(series, ranks)
                    told = answer(series, ranks, nodes, size)
                except CommbenchError as error:
                    refused.append(error)
                    continue
                rates = [
                    busbw_GBps(series.label["op"], ranks, size, t) for t in (told.time_us, told.high_us, told.low_us)
                ]
                rows.append(
                    [f"{ranks} x {nodes}", format_size(size), figure(told.time_us), _span(told.low_us, told.high_us)]
                    + [figure(rates[0]), _span(*rates[1:]), told.label]
                )
                texts.append(told.text.split(", ", 1)[-1])
        if rows:
            answered += 1
            head = ["ranks x nodes", "size", "time us", "95 %", "busbw GB/s", "95 %", "reach"]
            print("\n".join([one_line(series.name), *aligned([head, *rows])]))
            print("\n".join(f"  {one_line(text)}" for text in dict.fromkeys(texts)))
            print("\n".join(f"  note: {one_line(w)}" for w in series.warnings), end="\n" if series.warnings else "")
    if not answered:
        raise refused[0]
    for error in dict.fromkeys(map(str, refused)):
        print(f"not predicted: {one_line(error)}")
    return UNMEASURED if refused else PASS


def _nodes(args, ranks: int) -> int | None:
    """As many nodes as --nodes or --per-node say; None where neither is given."""
    from commbench.errors import UsageError

    if args.per_node is None:
        return args.nodes
    if args.nodes is not None or args.per_node < 1:
        raise UsageError("give --nodes, or --per-node with 1 rank or more")
    if ranks > args.per_node and ranks % args.per_node:
        raise UsageError(f"{ranks} ranks are no whole nodes of {args.per_node}; leave them out or say --nodes")
    return max(1, ranks // args.per_node)


def _span(low, high) -> str:
    from commbench.cli.columns import figure

    return "-" if low is None else f"{figure(low)} to {figure(high)}"


def _exported(args, chosen) -> str:
    from commbench.cli.numbers import numbers
    from commbench.errors import UsageError
    from commbench.models.answer import nodes_of
    from commbench.models.callable_export import python_callable
    from commbench.models.exports import astra_yaml, simai_csv, tuner_csv

    if args.export == "tuner":
        return tuner_csv(tuple(chosen))
    if len(chosen) > 1:
        names = "; ".join(s.name for s in chosen)
        raise UsageError(
            f"--export {args.export} is for one series; choose by --op, --algorithm or --series from {names}"
        )
    if args.export == "python":
        return python_callable(chosen[0])
    if args.export == "simai":
        return simai_csv(chosen[0])
    if not args.ranks:
        raise UsageError("--export astra needs --ranks, the world to be simulated")
    (ranks, *more) = numbers("--ranks", args.ranks)
    if more:
        raise UsageError("--export astra is for one world; give one number as --ranks")
    return astra_yaml(chosen[0], ranks, args.nodes or nodes_of(chosen[0], ranks))


def _write(out: str | None, text: str) -> None:
    from commbench.errors import UsageError

    if not out:
        print(text, end="")
        return
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
    print(f"written: {out}")
