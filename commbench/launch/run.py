"""A whole run from its plan: launch after launch, each with an end record; nothing finished is measured again."""

import fcntl
import time
from dataclasses import replace
from pathlib import Path

from commbench.errors import HANG, PASS, UNMEASURED, WRONG, MeasureError, UsageError
from commbench.launch.probe import probe
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import Outcome
from commbench.measure import now
from commbench.ops.algorithms_nccl import UNAVAILABLE
from commbench.results.journal import Journal, read_lines
from commbench.results.plan import Plan, world_of
from commbench.results.records import SCHEMA, Point, Sample
from commbench.results.store import exit_code, load_run
from commbench.units import format_size


def execute(plan: Plan, run_dir: Path, site, view) -> tuple[int, str]:
    """Measure what `run_dir` lacks of `plan`; returns the run's exit code and the reason for it.

    `site.launch(spec, tick)` runs one launch. `view` is told of headers (view.header), points (view.point)
    and messages (view.message) as they come.
    Raises UsageError when another process is at work in the same folder.
    """
    with open(run_dir / "lock", "w") as lock:
        _take(lock, run_dir)
        waiting = 0
        for repetition, world in ((n, world) for n in range(1, plan.launches + 1) for world in plan.worlds(n)):
            code = _until_done(plan, run_dir, site, view, world, repetition)
            waiting += code is None
            if code == HANG:
                break  # what hung once hangs again; the rows so far stand
    code, reason = exit_code(load_run(run_dir))
    return code, _one_world(waiting) if waiting and code == UNMEASURED else reason


def _one_world(waiting: int) -> str:
    """Why launches wait for another start."""
    return (
        f"MPI forms one world across nodes for each start by srun or mpirun, so {waiting} launch(es) wait for a start "
        "each: the same srun or mpirun once more, with --resume (the scripts of `commbench slurm` do that themselves)"
    )


def _take(lock, run_dir: Path) -> None:
    """Hold the lock of a run until this process ends. `commbench status` holds it for a moment, so ask again."""
    for _ in range(5):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        except OSError as error:
            raise UsageError(
                f"{run_dir} cannot be locked ({error.strerror}); choose another file system by --out"
            ) from None
    raise UsageError(f"{run_dir} is being measured by another process; wait for it or use another --out")


def _until_done(plan, run_dir, site, view, world, repetition) -> int | None:
    """Launches of one world until nothing is left. A point that failed is given up, and the rest gets a new launch.

    Returns the exit code of the last launch, None where another one is needed that `site` cannot start.
    """
    given_up: set[str] = set()
    seen = None
    steps = [step for step in plan.steps if world_of(step) == world]
    while True:
        done = load_run(run_dir).finished(repetition) | given_up
        if all(point.id in done for step in steps for point in step):
            return PASS
        if not site.can_launch(world.backend):
            return None
        if seen is None:
            seen = probe(plan, world, site)
        outcome = _one_launch(plan, run_dir, site, view, world, repetition, given_up, seen)
        if outcome.exit_code != UNMEASURED or outcome.step is None:
            return outcome.exit_code
        view.message(f"{outcome.reason}; the rest goes on in a new launch")
        given_up |= {point.id for point in plan.steps[outcome.step]}


def _one_launch(plan, run_dir, site, view, world, repetition, given_up, seen) -> Outcome:
    number = len(list(run_dir.glob("launch-*.jsonl"))) + 1
    journal = run_dir / f"launch-{number:03d}.jsonl"
    journal.touch()
    spec = LaunchSpec(
        run_dir=str(run_dir),
        journal=str(journal),
        backend=world.backend,
        ranks=world.ranks,
        repetition=repetition,
        timeout_s=plan.settings.timeout_s,
        given_up=tuple(given_up),
        forced=dict(world.forced),
        seen=seen,
    )
    tail = _Tail(journal, view)
    try:
        outcome = site.launch(spec, tail.read)
    except MeasureError as error:
        outcome = Outcome(UNMEASURED, str(error))
    except KeyboardInterrupt:
        tail.read()
        _close(journal, plan, Outcome(HANG, "stopped by Ctrl-C or SIGTERM"), repetition)
        raise
    if outcome.step is not None and outcome.exit_code != PASS:
        outcome = replace(outcome, reason=f"{outcome.reason}; in {_label(plan.steps[outcome.step])}")
    tail.read()
    _close(journal, plan, outcome, repetition)
    tail.read()
    return outcome


def _label(points) -> str:
    point = points[0]
    if point.kind == "layer":  # a size and an algorithm are an operation's
        return f"{point.op} over {point.backend}, {point.dtype}, group {point.group}"
    size = format_size(point.params.get("requested_bytes", 0))
    return f"{point.op} over {point.backend}, {size}, {point.dtype}, algorithm {point.choice}, group {point.group}"


def _close(path: Path, plan: Plan, outcome: Outcome, repetition: int) -> None:
    """The lines of points in flight that failed, then the end record. No rank is alive any more."""
    records, _, _ = read_lines(path)
    written = {record["id"] for record in records if record.get("record") == "point"}
    code = outcome.exit_code
    if code == PASS and any(record.get("status") == "wrong" for record in records):
        code = WRONG
    in_flight = [p for p in plan.steps[outcome.step] if p.id not in written] if outcome.step is not None else []
    journal = Journal(path)
    if in_flight and code == UNMEASURED:
        failed, status, reason = in_flight, "error", outcome.reason
        if UNAVAILABLE in reason.lower():
            failed, status = [p for p in _alike(plan, in_flight[0]) if p.id not in written], "skip"
            reason = f"NCCL has no {failed[0].choice} for {failed[0].op} of {failed[0].dtype} on this machine"
        for point in failed:
            journal.write(Sample(point, repetition, now(), status=status, reason=reason).to_json())
    journal.write(
        {
            "record": "end",
            "schema": SCHEMA,
            "exit_code": code,
            "reason": outcome.reason,
            "missing": outcome.missing,
            "point": in_flight[0].id if in_flight else None,
            "finished_at": now(),
        }
    )
    journal.close()


def _alike(plan: Plan, refused: Point) -> list[Point]:
    """The points that a library refuses as it has refused this one: the same choice for the same data."""

    def key(point):
        return point.backend, point.world_size, point.members, point.op, point.choice, point.dtype, point.redop

    return [point for point in plan.points() if point.status == "ok" and key(point) == key(refused)]


class _Tail:
    """Hands each new point of a journal to the view."""

    def __init__(self, path: Path, view):
        self._path, self._view, self._at = path, view, 0

    def read(self) -> None:
        if self._path.stat().st_size > self._at:
            records, self._at, _ = read_lines(self._path, self._at)
            for record in records:
                if record.get("record") == "point":
                    self._view.point(Sample.from_json(record))
                elif record.get("record") == "header":
                    self._view.header(record)
