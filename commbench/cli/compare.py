"""commbench compare A B: what became slower from run A to run B, with the launch as the unit."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "Ratios are times in B over times in A: 1.10 is 10 % slower. A regression is 2 % and more, and significant\n"
        "over launches; then the exit code is 1. Single launches are compared, but cannot show that.\n"
        "examples:\n"
        "  commbench run quick --launches 5 --out before; ...; commbench run quick --launches 5 --out after\n"
        "  commbench compare before after"
    )
    parser.add_argument("a", metavar="A", help="folder of a run, or a folder of runs (the newest counts)")
    parser.add_argument("b", metavar="B", help="the run that is held against it")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def main(args) -> int:
    import json
    from pathlib import Path

    from commbench.acceptance.compare import compare
    from commbench.results.store import load_run, newest_run

    found = compare(*(load_run(newest_run(Path(path))) for path in (args.a, args.b)))
    print(json.dumps(found.to_json(), allow_nan=False) if args.json else "\n".join(_lines(found)))
    return found.code


_MOST = 30  # points that changed, in the text; --json holds all


def _lines(found) -> list[str]:
    from commbench.cli.columns import aligned
    from commbench.results.nccl_tests import one_line

    table = [["operation", "points", "B / A", "95 % interval", "q", ""]]
    table += [[one_line(c.op), str(c.points), f"{c.ratio:.4f}", _interval(c), _q(c), c.word] for c in found.operations]
    told = [f"time in B over time in A, {found.label}", *aligned(table)]
    changed = sorted((c for c in found.points if c.word in ("slower", "faster")), key=lambda c: -c.ratio)
    if changed:
        rows = [[one_line(c.what), f"{c.ratio:.4f}", _interval(c), _q(c), c.word] for c in changed[:_MOST]]
        told += ["points that changed", *aligned([["point", "B / A", "95 % interval", "q", ""], *rows])]
        told += [f"  and {len(changed) - _MOST} more; --json holds all"] * (len(changed) > _MOST)
    told += [f"{one_line(c.op)}: {c.note}" for c in found.operations if c.note]
    told += [f"left out: {found.left_out} point(s) that one of the runs lacks or that are not ok"] * bool(
        found.left_out
    )
    told += [f"differs: {difference}" for difference in found.differences]
    slower = [one_line(c.op) for c in found.operations if c.word == "slower"]
    slower += [one_line(c.what) for c in found.points if c.word == "slower" and c.op not in slower]
    if slower:
        return [*told, f"regressed: {'; '.join(slower[:10])}" + (" and more" if len(slower) > 10 else "")]
    if min(found.launches) < 2:
        return [*told, f"{found.label}: whether something regressed cannot be told; repeat with --launches 5"]
    return [*told, "nothing regressed"]


def _interval(change) -> str:
    return "-" if change.low is None else f"{change.low:.4f} to {change.high:.4f}"


def _q(change) -> str:
    return "-" if change.q is None else f"{change.q:.3f}"
