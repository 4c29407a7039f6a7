"""A run whose ranks all start on this machine."""

import os
import socket
import sys
from datetime import datetime
from pathlib import Path

from commbench.errors import PASS, UsageError


def run_here(args) -> int:
    from commbench.launch.local import LocalSite

    set_environment(args.iface)
    return run(args, None, LocalSite())


def set_environment(interface: str | None) -> None:
    """What ranks inherit: the interface of --iface. Raises UsageError when this machine lacks it (or Gloo's own),
    and for a variable with which torch would not start.
    """
    level = os.environ.get("TORCH_DISTRIBUTED_DEBUG") or "OFF"
    if level.upper() not in ("OFF", "INFO", "DETAIL"):
        raise UsageError(f"TORCH_DISTRIBUTED_DEBUG={level!r} is none of OFF, INFO, DETAIL; torch would not start")
    wanted = interface or os.environ.get("GLOO_SOCKET_IFNAME")
    if not wanted:
        return
    here = [name for _, name in socket.if_nameindex()]
    missing = [name for name in wanted.split(",") if name not in here]
    if missing:
        source = "--iface" if interface else "GLOO_SOCKET_IFNAME"
        raise UsageError(f"{source} {missing[0]!r}: this machine has no such interface; it has {', '.join(here)}")
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"):
            os.environ[name] = interface


def run(args, node_of, site) -> int:
    """`commbench run` on the place where its ranks live."""
    run_dir, plan = prepare(args, node_of)
    return conduct(plan, run_dir, site, args.no_report)


def prepare(args, node_of):
    """(folder, plan) of a new run or of the one to resume."""
    from commbench.cli.planning import plan_run
    from commbench.results.plan import Plan

    if args.resume:
        fixed = {name for name, value in vars(args).items() if value is not None and value is not False}
        extra = sorted(fixed - {"verb", "resume", "no_report", "iface"})
        if extra:
            raise UsageError(f"--resume goes on with the plan of {args.resume} as it is; leave out {', '.join(extra)}")
        run_dir = Path(args.resume)
        plan = Plan.load(run_dir / "plan.json")
        if any(point.kind == "kernel" for point in plan.points()):
            raise UsageError(f"{run_dir} is a run of `commbench kernels`, which cannot be resumed; measure it anew")
        return run_dir, plan
    plan = plan_run(args, node_of)
    run_dir = new_folder(args.out, plan.name)
    plan.save(run_dir / "plan.json")
    return run_dir, plan


def new_folder(out: str | None, name: str, resumes: bool = True) -> Path:
    """An empty folder for a run, which --resume may go on with. Raises UsageError when it holds a run already or cannot
    be made."""
    if out:
        run_dir = Path(out)
        if (run_dir / "plan.json").exists():
            go_on = f"go on with it by --resume {run_dir}, or " if resumes else ""
            raise UsageError(f"{run_dir} holds a run already; {go_on}choose another --out")
    else:
        run_dir = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(2, 1000):
        try:
            run_dir.mkdir(parents=True, exist_ok=bool(out))
            return run_dir
        except FileExistsError:  # another run began in this very second
            if out:
                raise UsageError(f"{run_dir} is a file; choose another --out") from None
            run_dir = run_dir.with_name(f"{run_dir.name.split('_')[0]}_{number}")
        except OSError as error:
            raise UsageError(f"the folder {run_dir} cannot be made: {error.strerror}; choose another --out") from None
    raise UsageError("no name is left for a new folder under runs; choose one with --out")


def refine(run_dir: Path, view):
    """The plan of a run with more sizes around each break of its curves, saved."""
    from commbench.results.store import load_run
    from commbench.suite.refine import refined

    plan, breaks = refined(load_run(run_dir))
    plan.save(run_dir / "plan.json")
    more = sum(map(len, plan.steps[len(plan.steps) - plan.refined :])) * plan.launches
    view.more(more)
    view.message(f"{breaks} break(s) in the curves, {more} more point(s) around them")
    return plan


def conduct(plan, run_dir: Path, site, no_report: bool) -> int:
    """Run the plan with the live view, then print where everything is; the exit code of the run."""
    from commbench.cli.climb import climb, culprit_lines
    from commbench.cli.table import LiveView
    from commbench.launch.run import execute
    from commbench.results.metrics import disturbances
    from commbench.results.store import load_run

    left = len(plan.points()) * plan.launches - sum(s.status != "error" for s in load_run(run_dir).samples())
    view = LiveView(left, sys.stdout, plain=not site.starts_mpi)
    try:
        code, reason = execute(plan, run_dir, site, view)
        if plan.refine and code == PASS:
            plan = refine(run_dir, view)
            code, reason = execute(plan, run_dir, site, view)
        if plan.later:
            plan, code, reason = climb(run_dir, site, view, code, reason)
    finally:
        view.close()
    run = load_run(run_dir)
    counts = {status: sum(s.status == status for s in run.samples()) for status in ("ok", "skip", "wrong", "error")}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{told or 'nothing measured'} of {len(plan.points()) * plan.launches} points in {run_dir}")
    disturbed = sum(bool(disturbances(sample)) for sample in run.samples())
    if disturbed:
        print(f"{disturbed} of them were disturbed (oversubscribed, or other programs on the cores)")
    for line in [*ratio_lines(run), *culprit_lines(run)]:
        print(line)
    if code:
        print(f"exit code {code}: {reason}", file=sys.stderr)
        done = sum(s.status != "error" for s in run.samples())
        if code in (3, 4) and (plan.later or done < len(plan.points()) * plan.launches):
            print(f"go on with: commbench run --resume {run_dir}", file=sys.stderr)
    if not no_report:
        from commbench.reports.page import write_report

        try:
            print(f"report: {write_report(run, run_dir / 'report.html').resolve()}")
        except OSError as error:  # the run stands; its page can be written elsewhere
            print(
                f"the report cannot be written ({error.strerror}): commbench report {run_dir} --out FILE",
                file=sys.stderr,
            )
    return code


def ratio_lines(run) -> list[str]:
    """What the run says of links within a node over links between nodes, a line each."""
    if not any(sample.point.scope == "inter" for sample in run.samples()):
        return []
    from commbench.lab.told import lab_of, set_ratio
    from commbench.models.ratio import datasheet, gpus_of, ratios, sentence

    sheet, of_lab = datasheet(gpus_of(run)), set_ratio(lab_of(run))
    return [sentence(ratio, sheet, of_lab) for ratio in ratios(run.samples())]
