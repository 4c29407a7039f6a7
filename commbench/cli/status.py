"""commbench status DIR: what is done, running or failed; exits with the run's own code."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="folder of a run, or a folder of runs (the newest counts)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object instead of words")
    how.add_argument(
        "--goes-on",
        action="store_true",
        help="print nothing; exit 0 if the newest launch came to its end and `commbench run --resume` would measure "
        "more, else 1",
    )


def main(args) -> int:
    import json
    from pathlib import Path

    from commbench.errors import BELOW, PASS
    from commbench.results.store import exit_code, goes_on, is_running, load_run, newest_run

    run = load_run(newest_run(Path(args.run)))
    if args.goes_on:
        return PASS if goes_on(run) else BELOW
    code, reason = exit_code(run)
    samples, wanted = run.samples(), len(run.plan.points()) * run.plan.launches
    counts = {status: sum(s.status == status for s in samples) for status in ("ok", "skip", "wrong", "error")}
    told = {
        "run": str(run.path),
        "suite": run.plan.name,
        "running": is_running(run.path),
        "points": wanted,
        **counts,
        "left": wanted - len(samples),
        "launches": len(run.launches),
        "exit_code": code,
        "reason": reason,
        "missing": [missing for launch in run.launches for missing in launch.end.get("missing", ())],
    }
    if args.json:
        print(json.dumps(told))
        return code
    state = "running" if told["running"] else "not running"
    print(f"{told['suite']} in {told['run']}: {state}, {told['launches']} launch(es)")
    print(", ".join(f"{told[key]} {key}" for key in ("ok", "skip", "wrong", "error", "left")) + f" of {wanted} points")
    for sample in samples:
        if sample.status in ("wrong", "error"):
            point = sample.point
            print(f"{sample.status}: {point.op} {point.backend} {point.size_bytes} B: {sample.reason}")
    for missing in told["missing"]:
        print(f"lost: rank {missing['rank']} on {missing['host']} ({missing['why']})")
    print(f"exit code {code}" + (f": {reason}" if reason else ""))
    return code
