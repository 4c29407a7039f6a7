"""commbench export RUN --format csv|json|nccl-tests."""

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="folder of a run, or a folder of runs (the newest counts)")
    parser.add_argument("--format", choices=["csv", "json", "nccl-tests"], default="csv")
    parser.add_argument("--out", help="file to write (default: standard output)")


def main(args) -> int:
    from pathlib import Path

    from commbench.errors import UsageError
    from commbench.results.export import to_csv, to_json, to_nccl_tests
    from commbench.results.store import load_run, newest_run

    run = load_run(newest_run(Path(args.run)))
    try:
        file = open(args.out, "w", newline="", encoding="utf-8") if args.out else sys.stdout
    except OSError as error:
        raise UsageError(f"{args.out} cannot be written: {error.strerror}; choose another --out") from None
    if args.format == "csv":
        to_csv(run.samples(), file)
    elif args.format == "json":
        from dataclasses import asdict

        from commbench.models.ratio import ratios

        to_json(run, file, [asdict(ratio) for ratio in ratios(run.samples())])
    else:
        for line in to_nccl_tests(run):
            print(line, file=file)
    file.flush()
    return 0
