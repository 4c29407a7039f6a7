"""A run on the disk, read back: plan.json and the journals beside it."""

import fcntl
from dataclasses import dataclass, field
from pathlib import Path

from commbench.errors import HANG, PASS, UNMEASURED, WRONG, UsageError, worst
from commbench.results.journal import each_record
from commbench.results.plan import Plan
from commbench.results.records import SCHEMA, Sample


@dataclass(frozen=True)
class Launch:
    """One journal: header and end record ({} where missing), samples, and how many lines could not be read.

    verdict: the end record that `commbench accept` has added after it; {} where it has not. after: the nodes with their
    error counters as they stood at the end of the launch.
    """

    path: Path
    header: dict
    samples: tuple[Sample, ...]
    end: dict
    unreadable: int
    verdict: dict = field(default_factory=dict)
    after: tuple[dict, ...] = ()


@dataclass(frozen=True)
class Run:
    """Everything a run has left."""

    path: Path
    plan: Plan
    launches: tuple[Launch, ...]

    def samples(self) -> list[Sample]:
        """The samples of all launches; of a point measured again after an error in one launch number, the last."""
        latest = {}
        for launch in self.launches:
            for sample in launch.samples:
                latest[sample.point.id, sample.launch] = sample
        return list(latest.values())

    def finished(self, launch: int) -> set[str]:
        """Ids of points that need not be measured again in repetition `launch`: all but those in error."""
        return {s.point.id for s in self.samples() if s.launch == launch and s.status != "error"}

    def left(self) -> int:
        """How many points are still to be measured, those of every launch counted; those in error are among them."""
        wanted = {point.id for point in self.plan.points()}
        return sum(len(wanted - self.finished(n)) for n in range(1, self.plan.launches + 1))


def load_run(path) -> Run:
    """The run in folder `path`. Raises UsageError when it is none or its records are of another schema."""
    path = Path(path)
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; a run is the folder that `commbench run` printed")
    plan = Plan.load(path / "plan.json")
    return Run(path, plan, tuple(_load_launch(p) for p in sorted(path.glob("launch-*.jsonl")) if p.is_file()))


def _load_launch(path: Path) -> Launch:
    header, end, verdict, samples, after, unreadable = {}, {}, {}, [], (), 0
    for record in each_record(path):
        if record is None:
            unreadable += 1
            continue
        if record.get("schema", SCHEMA) != SCHEMA:
            raise UsageError(f"{path} has schema {record['schema']!r}; this commbench reads schema {SCHEMA}")
        kind = record.get("record")
        if kind == "header":
            header = record if _header(record) else {}
        elif kind == "end" and isinstance(record.get("verdict"), dict):
            verdict = record
        elif kind == "end":
            end, verdict = record, {}
        elif kind == "counters" and _header(record):
            after = tuple(record.get("nodes", []))
        elif kind == "point":
            try:
                samples.append(Sample.from_json(record))
            except (TypeError, KeyError, AttributeError):
                unreadable += 1
    return Launch(path, header, tuple(samples), end, unreadable, verdict, after)


def _header(record: dict) -> bool:
    """Whether a header has the form that readers rely on; one that was tampered with is as good as none."""
    lists = (record.get(name, []) for name in ("nodes", "ranks"))
    return all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in lists)


def is_running(path: Path) -> bool:
    """True while a supervisor holds the lock of the run (the kernel releases it when the process dies)."""
    try:
        with open(
            path / "lock"
        ) as file:  # read only, and a shared lock: others may look at a run that they cannot change
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def exit_code(run: Run) -> tuple[int, str]:
    """(the exit code of the run, why). Still running: 3. Incomplete without an end record: killed, 4.

    A verdict that `commbench accept` has added to the newest launch is the newest word, and holds the run's own code.
    """
    verdict = run.launches[-1].verdict if run.launches else {}
    if type(verdict.get("exit_code")) is int and not is_running(run.path):
        return worst([verdict["exit_code"]]), str(verdict.get("reason", ""))
    return own_exit_code(run)


def own_exit_code(run: Run) -> tuple[int, str]:
    """(the exit code that measuring has left, why), whatever was judged afterwards."""
    if is_running(run.path):
        return UNMEASURED, "still running"
    if not run.launches:
        return HANG, "no launch has begun and none is running"
    ends = [launch.end for launch in run.launches]
    left = run.left()
    complete = not left and not run.plan.later
    samples = run.samples()
    if complete and all(s.status == "skip" for s in samples):
        return UNMEASURED, "every point was skipped"
    codes = [WRONG if s.status == "wrong" else UNMEASURED for s in samples if s.status not in ("ok", "skip")]
    killed = not complete and not ends[-1]
    if killed:
        codes.append(HANG)
    elif not complete:
        codes.append(ends[-1].get("exit_code") or UNMEASURED)
    code = worst(codes)
    if killed and code == HANG:
        return HANG, f"{run.launches[-1].path.name} has no end record: it was killed"
    reasons = [end.get("reason", "") for end in ends if end.get("exit_code") == code and end.get("reason")]
    if run.plan.later and not reasons:
        return code, f"stage {run.plan.later[0][0]!r} and what follows it have not been measured"
    if left and not reasons and all(s.status in ("ok", "skip") for s in samples):
        return code, f"{left} point(s) are not measured yet"
    return code, reasons[-1] if reasons else ("" if code == 0 else "see the rows that are not ok")


def goes_on(run: Run) -> bool:
    """Whether another start would measure what is left: the newest launch came to its end, and it was not all."""
    at_its_end = bool(run.launches) and run.launches[-1].end.get("exit_code") in (PASS, WRONG)
    return at_its_end and not is_running(run.path) and run.left() > 0


def newest_run(path: Path) -> Path:
    """`path` itself when it is a run, else the run in it whose plan is newest. Raises UsageError when there is none."""
    if (path / "plan.json").exists():
        return path
    plans = sorted(path.glob("*/plan.json"), key=lambda plan: plan.stat().st_mtime)
    if not plans:
        raise UsageError(f"{path} is no run and holds none; a run is the folder that `commbench run` printed")
    return plans[-1].parent
