"""commbench isolate RUN: which node, NIC, rail or switch of a measured run is slow."""

import argparse

_EPILOG = """examples:
  srun commbench run ladder && commbench isolate runs
  commbench isolate runs/links-20260101-120000 --topology topology.conf
exit codes: 0 nobody is slow, 1 somebody is, 3 the run holds nothing to tell by"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("run", help="folder of a run, or a folder of runs (the newest counts)")
    parser.add_argument(
        "--topology", metavar="FILE", help="Slurm's topology.conf, or TOML: [switches] leaf1 = 'node[1-32]'"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def main(args) -> int:
    import json
    from pathlib import Path

    from commbench.acceptance.accuse import accuse, lines, to_json
    from commbench.errors import BELOW, PASS, MeasureError
    from commbench.results.store import load_run, newest_run

    run = load_run(newest_run(Path(args.run)))
    found = accuse(run, Path(args.topology) if args.topology else None)
    if not found.between and not found.alone:
        raise MeasureError(
            f"{run.path} has no rates between pairs of nodes; measure them with `commbench run ladder` or "
            "`commbench run links`"
        )
    print(json.dumps(to_json(found)) if args.json else "\n".join(lines(found)))
    return BELOW if found.culprits or found.undetermined else PASS
