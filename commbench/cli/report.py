"""commbench report RUN: the page of a stored run."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="folder of a run, or a folder of runs (the newest counts)")
    parser.add_argument("--out", help="file to write (default: report.html in the run's folder)")


def main(args) -> int:
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.reports.page import write_report
    from commbench.results.store import load_run, newest_run

    run = load_run(newest_run(Path(args.run)))
    out = Path(args.out) if args.out else run.path / "report.html"
    try:
        print(write_report(run, out).resolve())
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
    return 0
