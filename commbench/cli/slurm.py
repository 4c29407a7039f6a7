"""commbench slurm render|submit|status|collect: sweeps through sbatch."""

import argparse
import sys

_HELP = {
    "render": "print the sbatch text of a script for a site; needs no Slurm",
    "submit": "render it, and hand it to sbatch; with a job's folder: submit that job again",
    "status": "what Slurm and the runs say of a job; exits with the runs' code",
    "collect": "all rows of the runs of some jobs in one CSV table",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  commbench slurm render sweep --site my-site.toml --nodes 4\n"
        "  commbench slurm submit scaling --site my-site.toml --nodes 1,2,4,8 --flags '--launches 3'\n"
        "  commbench slurm status runs/scaling-20260101-120000\n"
        "  commbench slurm collect runs/scaling-20260101-120000 --out rows.csv"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in _HELP.items():
        action = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name in ("render", "submit"):
            _script_arguments(action, name == "submit")
        elif name == "status":
            action.add_argument("folder", help="folder of a job: what `commbench slurm submit` printed")
        else:
            action.add_argument("folder", nargs="+", help="folders of jobs, or of runs")
            action.add_argument("--out", help="CSV file to write (default: only the summary)")


def _script_arguments(parser: argparse.ArgumentParser, submits: bool) -> None:
    add = parser.add_argument
    where = ", or the folder of a job to submit again" if submits else ""
    add("script", help=f"sweep, scaling, pairs, rails, accept, nightly, or a file{where}")
    add("--site", help="a shipped site file's name, or a path; copy a shipped one for your cluster")
    add("--nodes", help="number of nodes; for an array over node counts several: 1,2,4,8")
    add("--time", help="time limit, as sbatch takes it")
    add("--suite", help="the suite of a script that measures one")
    add("--backend", help="gloo, nccl, mpi, or several with commas")
    add("--launcher", choices=["srun", "torchrun", "mpirun"], help="how ranks are started (default: the site's)")
    add(
        "--sbatch",
        action="append",
        default=[],
        metavar="=OPTION",
        help="a long option of sbatch, as --sbatch=--qos=low",
    )
    add("--flags", default="", help="more flags for `commbench run`, in one word: --flags '--size 8..64M --launches 3'")
    add("--out", help="folder of the job and its runs, on a disk that all nodes share")
    if submits:
        add("--dry-run", action="store_true", help="print the text and what would be done; submit nothing")


def main(args) -> int:
    return {"render": _render, "submit": _submit, "status": _status, "collect": _collect}[args.action](args)


def _text(args, runs: str | None) -> str:
    import shlex

    from commbench.errors import UsageError
    from commbench.slurm.render import Wishes, read_script, render
    from commbench.slurm.site import read_site, shipped_sites

    script = read_script(args.script)
    if not args.site:
        raise UsageError(
            f"name the site with --site: a file of yours, or one of {', '.join(shipped_sites())} to look at"
        )
    try:
        flags = tuple(shlex.split(args.flags))
    except ValueError as error:
        raise UsageError(f"--flags {args.flags!r} is not understood: {error}") from None
    wishes = Wishes(
        nodes=_node_counts(args.nodes),
        time=args.time,
        suite=args.suite,
        backend=args.backend,
        launcher=args.launcher,
        runs=runs,
        sbatch=tuple(args.sbatch),
        flags=flags,
    )
    return render(script, read_site(args.site), wishes)


def _node_counts(text: str | None) -> tuple[int, ...]:
    from commbench.errors import UsageError

    words = text.split(",") if text else []
    if not all(word.isdecimal() and 0 < int(word) < 1_000_000 for word in words):
        raise UsageError(f"--nodes {text!r} is no number of nodes, nor several with commas like 1,2,4")
    return tuple(sorted({int(word) for word in words}))


def _render(args) -> int:
    from pathlib import Path

    sys.stdout.write(_text(args, str(Path(args.out).absolute()) if args.out else None))
    return 0


def _submit(args) -> int:
    import shlex
    from pathlib import Path

    from commbench.slurm.submit import SCRIPT, commands, new_folder, submit, submit_again

    if (Path(args.script) / SCRIPT).exists():
        folder = Path(args.script).absolute()
        if args.dry_run:
            print(f"# would submit {folder / SCRIPT} again")
            return 0
        print(f"job {' '.join(submit_again(folder))}")
    else:
        folder = new_folder(args.out, Path(args.script).stem)
        text = _text(args, str(folder))
        if args.dry_run:
            sys.stdout.write(text)
            print(f"# would be written to {folder / SCRIPT} and submitted by")
            for command in commands(folder, text):
                print(f"# {shlex.join(command)}")
            return 0
        print(f"job {' '.join(submit(folder, text))}")
    print(f"commbench slurm status {shlex.quote(str(folder))}")
    return 0


def _status(args) -> int:
    from pathlib import Path

    from commbench.slurm.status import status

    lines, code = status(Path(args.folder))
    print("\n".join(lines))
    return code


def _collect(args) -> int:
    from pathlib import Path

    from commbench.errors import UNMEASURED, UsageError, worst
    from commbench.slurm.collect import runs_below, summary, write_rows

    found = [one for folder in args.folder for one in runs_below(Path(folder))]
    for one in found:
        print(summary(one))
    if not found:
        print(f"no run in {', '.join(args.folder)}", file=sys.stderr)
        return UNMEASURED
    if args.out:
        try:
            write_rows(found, Path(args.out))
        except OSError as error:
            raise UsageError(f"{args.out} cannot be written: {error.strerror}; choose another --out") from None
        print(f"rows: {args.out}")
    return worst(one.code for one in found)
