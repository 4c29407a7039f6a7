"""commbench report RUN...: the page of a stored run, or of several runs side by side."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder of a run, or a folder of runs (the newest counts); several: a page of clusters",
    )
    parser.add_argument("--out", help="file to write (default: report.html in the run's folder; clusters.html here)")


def main(args) -> int:
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.results.store import load_run, newest_run

    runs = [load_run(newest_run(Path(run))) for run in args.runs]
    try:
        if len(runs) == 1:
            from commbench.reports.page import write_report

            out = Path(args.out) if args.out else runs[0].path / "report.html"
            print(write_report(runs[0], out).resolve())
        else:
            from commbench.reports.clusters import write_clusters

            out = Path(args.out or "clusters.html")
            print(write_clusters(runs, out).resolve())
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
    return 0
