"""commbench simulate --pipeline: pipeline schedules on paper, their bubbles beside the published ones, drawn."""

import argparse
import json
import sys

MOST_RANKS = 1024
_WIDEST = 240  # characters of a drawing in text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pipeline schedules, in place of an operation")
    add = group.add_argument
    add("--pipeline", metavar="NAMES", help="gpipe, 1f1b, interleaved, zb_h1, zb_v, dualpipe, dualpipe_v, or all")
    add("--stages", type=int, default=4, help="ranks that the model is cut over (default: %(default)s)")
    add("--micro-batches", type=int, default=8, help="of a step (default: %(default)s)")
    add("--chunks", type=int, default=2, help="stages on each rank, interleaved alone (default: %(default)s)")
    add(
        "--costs",
        default="1,1,1",
        metavar="F,B,W[,M[,F&B]]",
        help="times of forward, gradient of the input and of the weights on a rank's share, of a message, and of "
        "DualPipe's overlapped cell (default: %(default)s, messages 0, F&B their sum)",
    )
    add("--out", metavar="FILE", help="also write a page with the schedules drawn there")


def main(args) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from commbench.errors import UsageError
    from commbench.schedules.stages_catalogue import NAMES
    from commbench.schedules.stages_simulate import Costs

    names = list(NAMES) if args.pipeline == "all" else [name.strip() for name in args.pipeline.split(",")]
    if args.stages > MOST_RANKS:
        raise UsageError(f"--stages {args.stages}: up to {MOST_RANKS} ranks are simulated")
    costs = Costs(*_costs(args.costs))
    found = [simulated(name, args.stages, args.micro_batches, args.chunks, costs) for name in names]
    known = [(row, timeline) for row, timeline in found if timeline]
    if not known:
        raise UsageError("; ".join(row["skipped"] for row, _ in found))
    rows = [row for row, _ in found]
    words = _words(costs)
    try:
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump({"schema": 1, "kind": "pipeline_simulation", "costs": words, "rows": rows}, file, indent=1)
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(_table(rows, words))
        for row, timeline in known:
            console.print(Text(f"\n{row['schedule']}"))
            console.print(Text(drawn(timeline)), soft_wrap=True)
        if args.out:
            from commbench.reports.gantt_page import write_gantt_page

            drawn_rows, timelines = zip(*known)
            print(write_gantt_page(list(drawn_rows), list(timelines), words, Path(args.out)).resolve())
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}; choose another file") from None
    return 0


def _costs(text: str) -> list[float]:
    from math import isfinite

    from commbench.errors import UsageError

    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not 3 <= len(numbers) <= 5 or not all(isfinite(n) and n >= 0 for n in numbers) or 0 in numbers[:3]:
        raise UsageError(f"--costs {text}: write the times of F, B and W above 0, as in 1,1.2,0.8, then of a message")
    return numbers


def _words(costs) -> str:
    both = costs.forward + costs.input + costs.weight if costs.overlapped is None else costs.overlapped
    return (
        f"simulated, not measured: on a rank's share F {costs.forward:g}, B {costs.input:g}, W {costs.weight:g}, "
        f"F&B {both:g}; a message {costs.message:g}"
    )


def simulated(name: str, ranks: int, micro_batches: int, chunks: int, costs):
    """(its row, its Timeline); where there is no such schedule `skipped` says why, and the Timeline is None."""
    from commbench.schedules.stages_catalogue import build, problem
    from commbench.schedules.stages_formulas import bubble, copies_of_parameters
    from commbench.schedules.stages_messages import messages_out
    from commbench.schedules.stages_simulate import peak_activations, simulate

    row = {"schedule": name, "ranks": ranks, "micro_batches": micro_batches}
    row["chunks"] = chunks if name == "interleaved" else None
    row["skipped"] = problem(name, ranks, micro_batches, chunks)
    if row["skipped"]:
        return row, None
    schedule = build(name, ranks, micro_batches, chunks)
    timeline = simulate(schedule, costs)
    row |= {
        "makespan": timeline.makespan,
        "bubble": float(timeline.bubble.max()),
        "bubble_share": float(timeline.bubble.max()) / timeline.makespan,
        "formula": bubble(name, ranks, micro_batches, costs, chunks),
        "bubble_of_span": float(timeline.bubble_of_span.max()),
        "peak_activations": max(peak_activations(schedule)),
        "parameters": copies_of_parameters(name),
        "messages": sum(
            len(messages_out(schedule, rank, k)) for rank in range(ranks) for k in range(len(schedule.rows[rank]))
        ),
    }
    return row, timeline


def drawn(timeline) -> str:
    """A line for each rank, time from left to right: every cell as wide as it lasts, dots where the rank idles; where
    that would be too wide, a sentence."""
    schedule = timeline.schedule
    labels = [["&".join(f"{a.kind}{a.micro_batch}" for a in cell) for cell in row] for row in schedule.rows]
    pairs = zip(labels, timeline.starts, timeline.ends)
    scale = max((len(label) + 1) / (end - start) for row in pairs for label, start, end in zip(*row))
    lines = []
    if scale * timeline.makespan > _WIDEST:
        return "too wide to draw in text; --out FILE draws it on a page"
    for rank, row in enumerate(labels):
        line = ""
        for label, start, end in zip(row, timeline.starts[rank], timeline.ends[rank]):
            line = line.ljust(round(start * scale), "·")
            line += label.ljust(round(end * scale) - len(line) - 1) + "|"
        lines.append(f"{rank:>4} {line}")
    return "\n".join(lines)


def _table(rows: list[dict], words: str):
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=words,
        caption="formula: as published, with messages that take no time",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        title_justify="left",
        caption_justify="left",
        show_edge=False,
    )
    table.add_column("schedule", no_wrap=True)
    for name in (
        "ranks", "micro-batches", "makespan", "bubble", "%", "formula", "of span", "peak activations", "parameters",
        "messages",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    table.add_column("", overflow="fold")
    for row in rows:
        name = row["schedule"] + (f", {row['chunks']} chunks" if row["chunks"] else "")
        cells = [name, str(row["ranks"]), str(row["micro_batches"])]
        if row["skipped"]:
            table.add_row(*map(Text, [*cells, *["-"] * 8, f"skip: {row['skipped']}"]), style="dim")
            continue
        cells += [_number(row["makespan"]), _number(row["bubble"]), f"{100 * row['bubble_share']:.1f}"]
        cells += [_number(row[key]) for key in ("formula", "bubble_of_span", "peak_activations")]
        cells += [f"{row['parameters']}x", str(row["messages"]), ""]
        table.add_row(*map(Text, cells))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) > 1e-9 else "0"
