"""The stages of a ladder, one after another; each is planned from what those before it have found."""

from pathlib import Path

from commbench.errors import HANG, MeasureError


def climb(run_dir: Path, site, view, code: int, reason: str):
    """Measure the stages that wait in the plan, as long as all that was measured so far is sound.

    Returns (plan, exit code, reason) of the last one that was measured.
    """
    from commbench.acceptance.ladder import next_stage
    from commbench.launch.run import execute
    from commbench.results.store import load_run

    while True:
        run = load_run(run_dir)
        sound = all(sample.status in ("ok", "skip") for sample in run.samples())
        if not run.plan.later or not sound or code == HANG or run.left():
            return run.plan, code, reason
        try:
            plan, told = next_stage(run)
        except MeasureError as stop:
            return run.plan, stop.exit_code, str(stop)
        more = len(plan.points()) - len(run.plan.points())
        plan.save(run_dir / "plan.json")
        view.more(more * plan.launches)
        for text in (*told[:-1], f"{told[-1]}: {more} point(s)"):
            view.message(text)
        if more:
            code, reason = execute(plan, run_dir, site, view)


def culprit_lines(run) -> list[str]:
    """Who is slow, and what differs between nodes, where the run was made to tell: a ladder's."""
    if not any(sample.point.group.startswith("rail round") for sample in run.samples()):
        return []
    from commbench.acceptance.accuse import accuse, lines
    from commbench.acceptance.inventory import findings

    return [*(f"inventory: {finding.text}" for finding in findings(run)), *lines(accuse(run))]
