"""commbench import FILE...: what other tools printed, as runs that every verb reads."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "Reads nccl-tests and rccl-tests (text and JSON), OSU, perftest, nvbandwidth, all_reduce_bench, DeepSpeed,\n"
        "DeepEP, UCC, nccom-test, nvidia-smi topo -m, NCCL's topology XML, ncclscout, IMB, MPIBenchmarks.jl,\n"
        "flash-attn, pytest-benchmark (JSON).\n"
        "Every line that is dropped is counted. Exit code: 5 where a check of the data failed, 3 where a file holds\n"
        "nothing that can be used.\n"
        "examples:\n"
        "  commbench import slurm-4711.out\n"
        "  commbench import before-*.log --repeats --out before"
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="what a tool printed, or wrote as JSON or XML")
    parser.add_argument("--out", metavar="DIR", help="folder of the run; of several, the folder that holds them")
    parser.add_argument("--op", help="the operation, where a file does not name it (all_gather, reduce_scatter, ...)")
    parser.add_argument("--ranks", type=int, default=0, help="ranks, where a file does not tell")
    parser.add_argument("--nodes", type=int, default=0, help="nodes, where a file does not tell")
    parser.add_argument("--repeats", action="store_true", help="the same test again is the next launch of one run")


def main(args) -> int:
    from pathlib import Path

    from commbench.cli.import_view import told
    from commbench.errors import MeasureError, UsageError, worst
    from commbench.importers.found import MOST_RANKS, Given
    from commbench.importers.read import read_file
    from commbench.importers.runs import runs_of, write_run
    from commbench.ops import OPS

    if args.op and args.op not in OPS:
        raise UsageError(f"--op {args.op}: there is no such operation; there are {', '.join(OPS)}")
    if args.ranks < 0 or args.nodes < 0 or max(args.ranks, args.nodes) > MOST_RANKS:
        raise UsageError(f"--ranks and --nodes are numbers from 1 to {MOST_RANKS}")
    given, files, failures, codes = Given(args.op or "", args.ranks, args.nodes), [], [], []
    for name in args.files:
        try:
            files.append(read_file(Path(name), given))
        except MeasureError as error:
            failures.append(str(error))
            codes.append(error.exit_code)
            continue
        print("\n".join(told(files[-1])))
    drafts = runs_of(files, args.repeats)
    for draft, folder in zip(drafts, _folders(drafts, args.out)):
        codes.append(write_run(draft, folder, ["commbench", "import", *args.files]))
        print(folder)
    if failures:
        raise _all_of(failures, worst(codes))
    return worst(codes)


def _folders(drafts: list, out: str | None) -> list:
    """One folder for each run: --out itself for a single one, else folders in it that have the names of the files."""
    from datetime import datetime
    from pathlib import Path

    if out and len(drafts) == 1:
        return [Path(out)]
    when = "" if out else f"-{datetime.now():%Y%m%d-%H%M%S}"
    names: list[str] = []
    for draft in drafts:
        base = f"{draft.name if out else f'import-{draft.name}'}{when}"
        taken = sum(name == base or name.startswith(f"{base}.") for name in names)
        names.append(f"{base}.{taken + 1}" if taken or sum(d.name == draft.name for d in drafts) > 1 else base)
    return [Path(out or "runs") / name for name in names]


def _all_of(failures: list[str], code: int):
    """One error for all files that could not be read."""
    from commbench.errors import MeasureError

    error = MeasureError("; ".join(failures))
    error.exit_code = code
    return error
