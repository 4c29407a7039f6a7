"""The command line: one small file per verb, imported only when its verb is used, so that --help is instant."""

import argparse
import os
import signal
import sys
from importlib import import_module

from commbench import __version__
from commbench.errors import HANG, PASS, UNMEASURED, USAGE, CommbenchError, disk_sentence

VERBS = {
    "run": "measure a suite, a suite file or one operation",
    "perf": "one operation with nccl-tests' flags and its exact table",
    "status": "what of a run is done, and its exit code",
    "report": "one self-contained HTML page of a stored run",
    "export": "a stored run as CSV, JSON or nccl-tests' table",
    "import": "what other tools printed (nccl-tests, OSU, perftest, ...) as runs",
    "accept": "a run held against a profile: pass, warn, fail, and which machine it is",
    "isolate": "which node, NIC, rail or switch of a measured run is slow",
    "baseline": "a profile of your own machine from its good nodes",
    "compare": "two runs, launch against launch: what became slower",
    "fit": "models of what was measured, with intervals and crossovers",
    "predict": "the time that a fitted model says, or the model for other programs",
    "plan": "how to cut a model over a cluster: memory, step time, the best layouts",
    "plan-sweep": "what to measure so that a model over ranks can be fitted",
    "simulate": "how long our own schedules take on a modelled fabric",
    "kernels": "attention kernels: checked, timed, counted, one beside the other",
    "lab": "an emulated cluster on this machine, its links of set rate and delay",
    "slurm": "sweeps through sbatch: render, submit, status, collect",
    "doctor": "what this machine can run, and how to get what is missing",
}

EPILOG = (
    "exit codes: 0 pass, 1 below the bar, 2 usage or configuration, 3 could not measure, "
    "4 hang or lost rank, 5 wrong data"
)


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence and where to look."""

    def error(self, message):
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(USAGE)


def _as_ctrl_c(signum, frame):
    """SIGTERM (scancel, a time limit) ends a run as tidily as Ctrl-C does: ranks ended, scratch removed, end record."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # srun sends a second one when the first task has ended by it
    raise KeyboardInterrupt


def _module(verb: str):
    name = "import_" if verb == "import" else verb.replace("-", "_")  # `import` is no name for a module
    return import_module(f"commbench.cli.{name}")


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = Parser(
        prog="commbench",
        description="Collective-communication benchmarks: measure a fabric, check the data, keep every sample.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"commbench {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, what in VERBS.items():
        verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.", add_help=name != "perf")
        if name == chosen:
            _module(name).add_arguments(verb)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        parsed = parser.parse_args(arguments)
        sys.exit(_module(parsed.verb).main(parsed))
    except CommbenchError as error:
        print(f"commbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("commbench: stopped by Ctrl-C or SIGTERM; finished rows are kept, `--resume` goes on", file=sys.stderr)
        sys.exit(HANG)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # `commbench ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(UNMEASURED if chosen in ("run", "perf") else PASS)  # a run that lost its reader has stopped
        print(f"commbench: {disk_sentence(error)}", file=sys.stderr)
        sys.exit(UNMEASURED)
