"""A job and its folder: job.sbatch (what was submitted), jobs.jsonl (each submission), the job's output, its runs."""

import contextlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from commbench.errors import CommbenchError, UsageError
from commbench.slurm.queue import call, is_over, refusal, states

SCRIPT = "job.sbatch"
SUBMISSIONS = "jobs.jsonl"


def new_folder(out: str | None, name: str) -> Path:
    """Where a new job's files will go, absolute. Raises UsageError when there is a job already."""
    folder = Path(out) if out else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = folder.absolute()
    if (folder / SCRIPT).exists():
        raise UsageError(f"{folder} holds a job already; go on with it by `commbench slurm submit {folder}`")
    return folder


def commands(folder: Path, text: str) -> list[list[str]]:
    """The sbatch commands for the script `text` that lies in `folder`.

    One for each node count of an array whose index is the number of nodes: Slurm would give all elements of one array
    the same nodes. The caller adds the dependency that makes them run one after the other.
    """
    command = ["sbatch", "--parsable", str(folder / SCRIPT)]
    counts = re.search(r"^#SBATCH --array=([\d,]+)(%\d+)?$", text, re.MULTILINE)
    if counts is None or "\nNODES=$SLURM_ARRAY_TASK_ID\n" not in text:
        return [command]
    return [[*command[:2], f"--nodes={n}", f"--array={n}", command[2]] for n in counts[1].split(",")]


def submit(folder: Path, text: str) -> list[str]:
    """Submit `text` as a new job of `folder`; its job ids. Raises UsageError when Slurm refuses it, with the remedy."""
    call("sbatch", "--version")  # without Slurm nothing is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCRIPT).write_text(text)
        return _sbatch(folder)
    except (CommbenchError, OSError) as error:  # no job, so no folder of one
        with contextlib.suppress(OSError):
            (folder / SCRIPT).unlink()
            folder.rmdir()
        if isinstance(error, OSError):
            raise UsageError(f"{folder} cannot be written: {error.strerror}; choose another --out") from None
        raise


def submit_again(folder: Path) -> list[str]:
    """Submit the job of `folder` once more: it goes on with what its runs lack.

    Raises UsageError when there is none, or the last one is not over yet.
    """
    last = submissions(folder)[-1]["jobs"]
    alive = [state for job in last for state in states(job) if not is_over(state)]
    if alive:
        jobs = " ".join(last)
        raise UsageError(
            f"job {alive[0]['id']} of {folder} is {alive[0]['state']}; wait for it, or scancel {jobs} first"
        )
    return _sbatch(folder)


def submissions(folder: Path) -> list[dict]:
    """{jobs, submitted_at} of each submission. Raises UsageError when `folder` is not one of a job."""
    try:
        rows = [json.loads(line) for line in (folder / SUBMISSIONS).read_text().splitlines()]
        if rows and all(isinstance(job, str) for row in rows for job in row["jobs"]):
            return rows
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UsageError(f"{folder} is not the folder of a job; it is what `commbench slurm submit` printed")


def _sbatch(folder: Path) -> list[str]:
    jobs: list[str] = []
    try:
        for program, *options in commands(folder, (folder / SCRIPT).read_text()):
            after = [f"--dependency=afterany:{jobs[-1]}"] if jobs else []
            done = call(program, *after, *options)
            if done.returncode:
                raise refusal(program, done.stderr)
            jobs.append(done.stdout.strip().partition(";")[0])  # "id;cluster" where there are several clusters
        submission = {"jobs": jobs, "submitted_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        with open(folder / SUBMISSIONS, "a") as file:
            file.write(json.dumps(submission) + "\n")
    except (CommbenchError, OSError):
        if jobs:
            call("scancel", *jobs)
        raise
    return jobs
