"""What is to be said of a job: Slurm's word on it, and its runs."""

from pathlib import Path

from commbench.errors import UNMEASURED, MeasureError, worst
from commbench.slurm.collect import runs_below, summary
from commbench.slurm.queue import is_over, meaning, states
from commbench.slurm.submit import submissions

_OUTPUT_LINES = 8


def status(folder: Path) -> tuple[list[str], int]:
    """(sentences, exit code) of the job in `folder`: the worst of its runs; 3 while it is not over, or without a run.

    Works without Slurm as well, from the runs alone. Raises UsageError when `folder` is not one of a job.
    """
    jobs = submissions(folder)[-1]["jobs"]
    try:
        found = [state for job in jobs for state in states(job)]
        lines = [_told(state) for state in found] or [f"job {' '.join(jobs)}: Slurm does not know it any more"]
    except MeasureError as error:
        found, lines = [], [f"job {' '.join(jobs)}: {error}"]
    runs = runs_below(folder)
    lines += [summary(run) for run in runs]
    alive = any(not is_over(state) for state in found)
    code = UNMEASURED if alive or not runs else worst(run.code for run in runs)
    if not runs and not alive:
        lines += ["no run has begun; the end of the job's output:", *_last_lines(folder)]
    if found and not alive and any(one.left for one in runs):
        lines += [f"go on with: commbench slurm submit {folder}"]
    return [*lines, f"exit code {code}"], code


def _told(state: dict) -> str:
    nodes = f" on {state['nodes']}" if state["nodes"] else ""
    restarts = f", restarted {state['restarts']} time(s)" if state["restarts"] not in ("", "0") else ""
    why = f", {told}" if (told := meaning(state)) else ""
    return f"job {state['id']}: {state['state']}{nodes}{restarts}{why}"


def _last_lines(folder: Path) -> list[str]:
    outputs = sorted(folder.glob("*.out"), key=lambda path: path.stat().st_mtime)
    lines = outputs[-1].read_text(errors="replace").splitlines()[-_OUTPUT_LINES:] if outputs else []
    return [f"  {line}" for line in lines] or ["  there is none: is the folder on a disk that all nodes share?"]
