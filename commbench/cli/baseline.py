"""commbench baseline RUN... --out site.toml: a profile of your own machine, from runs in which it was good."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "Each thing that the runs measured becomes a rule: the median over good nodes and launches, and levels that\n"
        "follow from the spread. Nodes that are slow beside the others are named and left out.\n"
        "examples:\n"
        "  commbench run quick --launches 5 --out good; commbench baseline good --out site.toml\n"
        "  commbench accept runs/new --profile site.toml"
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs of the same machine")
    parser.add_argument("--out", required=True, metavar="FILE", help="the profile to write (TOML)")
    parser.add_argument("--name", help="name of the profile (default: that of the file)")


def main(args) -> int:
    import re
    from pathlib import Path

    from commbench.acceptance.baseline import baseline
    from commbench.errors import UsageError
    from commbench.results.nccl_tests import one_line
    from commbench.results.store import load_run, newest_run

    out = Path(args.out)
    name = args.name or out.stem
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise UsageError(f"{name!r} is no name for a profile; give letters, digits, dot, dash and underscore by --name")
    made = baseline([load_run(newest_run(Path(run))) for run in args.runs], name)
    try:
        out.write_text(made.toml, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
    for left_out in made.left_out:
        print(one_line(left_out))
    print(f"{out}: {made.rules} rules")
    return 0
