"""What the jobs of some folders have measured: their runs, and one table of all rows."""

import csv
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

from commbench.errors import HANG, UNMEASURED, UsageError
from commbench.results.export import to_csv
from commbench.results.store import Run, exit_code, load_run


@dataclass(frozen=True)
class Found:
    """A run below a folder, its exit code and the reason for it.

    left: points that are still to be measured. restarts: how often Slurm had restarted its job. jobs: the ids.
    """

    run: Run
    left: int
    code: int
    reason: str
    restarts: int
    jobs: tuple[str, ...]


def runs_below(folder: Path) -> list[Found]:
    """All runs in `folder` (or `folder` itself), sorted by name. Raises UsageError when it is no folder."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; name what `commbench slurm submit` printed, or a run")
    plans = sorted({*folder.glob("plan.json"), *folder.glob("*/plan.json"), *folder.glob("*/*/plan.json")})
    return [_found(load_run(plan.parent)) for plan in sorted(plans, key=lambda plan: _natural(plan.parent.name))]


def _found(run: Run) -> Found:
    variables = [node.get("environment", {}) for launch in run.launches for node in launch.header.get("nodes", ())]
    restarts = [count for told in variables if (count := told.get("SLURM_RESTART_COUNT", "")).isdigit()]
    jobs = dict.fromkeys(told["SLURM_JOB_ID"] for told in variables if "SLURM_JOB_ID" in told)
    code, reason = exit_code(run)
    if code == HANG and run.launches and not run.launches[-1].end and shutil.disk_usage(run.path).free == 0:
        code, reason = UNMEASURED, "its disk is full; free some space, then submit the job's folder again"
    return Found(run, run.left(), code, reason, max(map(int, restarts), default=0), tuple(jobs))


def _natural(name: str):
    """nodes-2 before nodes-16."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


def summary(found: Found) -> str:
    """One line: where, how much is done, how it ended."""
    run = found.run
    samples, wanted = run.samples(), len(run.plan.points()) * run.plan.launches
    counts = {status: sum(s.status == status for s in samples) for status in ("ok", "skip", "wrong", "error")}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing measured"
    header = next((launch.header for launch in reversed(run.launches) if launch.header), {})
    world = f", {header['world_size']} ranks on {len(header['nodes'])} node(s)" if "world_size" in header else ""
    jobs = f", job {' '.join(found.jobs)}" if found.jobs else ""
    restarts = f", {found.restarts} restart(s)" if found.restarts else ""
    why = f": {found.reason}" if found.reason else ""
    return f"{run.path}: {told} of {wanted} points{world}{jobs}{restarts}, exit code {found.code}{why}"


def write_rows(found: list[Found], path: Path) -> None:
    """All rows of all runs as one CSV file: the run's folder, then the columns of `commbench export`."""
    tables = []
    for one in found:
        text = io.StringIO(newline="")
        to_csv(one.run.samples(), text)
        text.seek(0)
        tables.append((str(one.run.path), list(csv.DictReader(text))))
    columns = dict.fromkeys(name for _, rows in tables for row in rows for name in row)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["run", *columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"run": run, **row} for run, rows in tables for row in rows)
