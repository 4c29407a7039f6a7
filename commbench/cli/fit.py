"""commbench fit RUN|CSV...: models of what was measured, with intervals; crossovers; model.json."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "A CSV needs the columns op (or collective), ranks (or nranks), size_bytes and a time: time_us, median_us,\n"
        "or time_us_out_of_place and time_us_in_place. Optional: nodes or gpus_per_node, launch, algorithm, ...\n"
        "Unstable measurements are named and not fitted.\n"
        "examples:\n"
        "  commbench fit runs/2ranks runs/4ranks runs/8ranks --out model.json\n"
        "  commbench fit nccl.csv --report fit.html\n"
        "  commbench predict model.json --ranks 512 --size 1M,64M"
    )
    parser.add_argument("sources", nargs="+", metavar="RUN|CSV", help="folders of runs, CSV files")
    parser.add_argument("--out", metavar="FILE", help="write the models there as JSON, for `commbench predict`")
    parser.add_argument("--report", metavar="FILE", help="write a page with figures there (HTML)")
    parser.add_argument("--op", help="only these operations, comma-separated")
    parser.add_argument("--ranks", type=int, help="ranks of the measurements in a CSV that has no column of them")


def main(args) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from commbench.cli.fit_view import crossover_lines, series_lines
    from commbench.errors import MeasureError, UsageError
    from commbench.models.contest import contests, not_compared
    from commbench.models.model_file import ModelFile, save_models
    from commbench.models.series_fit import fit_tables
    from commbench.models.table import read_series
    from commbench.results.nccl_tests import one_line

    if args.ranks is not None and args.ranks < 1:
        raise UsageError(f"--ranks {args.ranks}: a measurement has 1 rank or more")
    tables = read_series(args.sources, args.ranks)
    if args.op:
        wanted = [op.strip() for op in args.op.split(",")]
        there = sorted({table.label["op"] for table in tables})
        missing = [op for op in wanted if op not in there]
        if missing:
            raise UsageError(f"nothing of {missing[0]!r} was measured; there is {', '.join(there)}")
        tables = [table for table in tables if table.label["op"] in wanted]
    series = fit_tables(tables)
    fitted = {s.name for s in series if s.kind != "none"}
    rivals = [table for table in tables if table.name in fitted]
    crossovers = contests(rivals)
    models = ModelFile(tuple(series), tuple(args.sources), tuple(crossovers), datetime.now(UTC).isoformat())
    if args.out and fitted:  # before the printing, which a closed pipe may end
        save_models(models, Path(args.out))
    if args.report:
        _write_report(tables, models, Path(args.report))
    for number, one in enumerate(series):
        print("\n".join([*[""] * (number > 0), *series_lines(one)]))
    if crossovers:
        print("\n".join(["", "Who is faster where (on ranks x nodes)", *crossover_lines(crossovers)]))
        print("".join(f"  note: {one_line(sentence)}\n" for sentence in not_compared(rivals)), end="")
    written = [args.out] * bool(args.out and fitted) + [args.report] * bool(args.report)
    if written:
        print(f"\nwritten: {', '.join(written)}")
    if not fitted:
        more = f" (and {len(series) - 1} more series, above)" if len(series) > 1 else ""
        raise MeasureError(f"no model was fitted: {series[0].faults[0]}{more}")
    return 0


def _write_report(tables, models, path) -> None:
    from commbench.errors import UsageError
    from commbench.reports.model_page import write_model_report

    try:
        write_model_report(tables, models, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose another --report") from None
