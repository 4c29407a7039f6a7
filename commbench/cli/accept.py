"""commbench accept RUN --profile NAME: is it as fast as it should be, and who is not? Two profiles: which machine?"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "The verdict is added to the run: `commbench status RUN` returns its code from then on.\n"
        "examples:\n"
        "  commbench accept runs/ladder-20260101 --profile h100-8x400g\n"
        "  commbench accept runs/imported --profile h100-8x400g --profile h800-8x400g\n"
        "  commbench baseline runs/good-* --out site.toml; commbench accept runs/new --profile site.toml"
    )
    add = parser.add_argument
    add("run", help="folder of a run, our own or an imported one, or a folder of runs (the newest counts)")
    add(
        "--profile",
        action="append",
        required=True,
        metavar="NAME|FILE",
        help="a shipped profile or a TOML file; given twice or more: names the machine, and judges it by that profile",
    )
    add("--topology", metavar="FILE", help="which node hangs on which leaf switch, as for `commbench isolate`")
    add("--json", action="store_true", help="one JSON object instead of words")
    add("--nagios", action="store_true", help="one line for monitoring; exits 0, 1, 2, 3 for pass, warn, fail, error")
    add("--junit", metavar="FILE", help="also write the verdicts there as JUnit XML")
    add("--report", metavar="FILE", help="also write a page there (HTML)")


def main(args) -> int:
    import json
    import sys
    from pathlib import Path

    from commbench.acceptance.judge import judge
    from commbench.acceptance.nagios import nagios
    from commbench.acceptance.profile import load_profile
    from commbench.acceptance.record import append_verdict
    from commbench.acceptance.which import which
    from commbench.cli.accept_view import lines, which_lines
    from commbench.errors import MeasureError
    from commbench.measure import now
    from commbench.results.store import load_run, newest_run

    profiles = [load_profile(name) for name in dict.fromkeys(args.profile)]
    run = load_run(newest_run(Path(args.run)))
    topology = Path(args.topology) if args.topology else None
    judgements = {profile.name: judge(run, profile, topology) for profile in profiles}
    machine = which(run, profiles) if len(profiles) > 1 else None
    judgement = judgements[machine.name if machine and machine.name else profiles[0].name]
    try:
        append_verdict(run, judgement, now())
    except OSError as error:
        print(f"commbench: the verdict is not kept with the run: {error.strerror}: {run.path}", file=sys.stderr)
    _write(args, judgement, machine)
    if args.nagios:
        code, line = nagios(judgement)
        print(line)
        return code
    if args.json:
        told = judgement.to_json()
        if machine:
            told["machine"] = machine.to_json() | {"verdicts": {name: j.word for name, j in judgements.items()}}
        print(json.dumps(told, allow_nan=False))
    else:
        print("\n".join([*(which_lines(machine, judgements) if machine else []), *lines(judgement)]))
    if machine and not machine.name:
        raise MeasureError(f"no profile is named: {machine.reason}")
    return judgement.code


def _write(args, judgement, machine) -> None:
    from pathlib import Path

    from commbench.errors import UsageError

    for flag, path in (("--junit", args.junit), ("--report", args.report)):
        if not path:
            continue
        try:
            if flag == "--junit":
                from commbench.acceptance.junit import write_junit

                write_junit(judgement, Path(path))
            else:
                from commbench.reports.accept_page import write_accept_page

                write_accept_page(judgement, Path(path), machine)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}; choose another {flag}") from None
