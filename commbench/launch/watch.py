"""The supervisor's watch over the ranks of one launch: their deaths, their deadlines, and the end of all of them."""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from commbench.errors import HANG, PASS, UNMEASURED, USAGE
from commbench.launch.spec import LaunchSpec
from commbench.world.progress import DONE, FORMING, PHASES, STARTING, Progress

_TICK_S = 0.05
_START_S = 30.0  # on top of the time-out: interpreters that load from a busy disk, before a rank can say anything
_GRACE_S = 1.0  # the others' last words: after one rank dies, Gloo tells its neighbours within 0.1 s


@dataclass(frozen=True)
class Outcome:
    """How a launch ended on this supervisor. `step` is the plan's step in flight, None outside of any."""

    exit_code: int
    reason: str = ""
    missing: list = field(default_factory=list)
    step: int | None = None


def watch(family, spec: LaunchSpec, ranks: list[int], host: str, tick) -> Outcome:
    """Watch until all ranks have ended, one has died, or one has made no progress for spec.timeout_s.

    family.poll() returns {local rank: exit status} of those that have ended (negative: killed by that signal);
    family.kill() ends the rest. `ranks` are the world ranks of the local ranks. `tick()` is called about 20 times a
    second and may return an Outcome of another supervisor, which ends this one too. Afterwards no local rank is alive.
    """
    progress = Progress(spec.progress, spec.local_ranks)
    began_ns = time.monotonic_ns()
    try:
        while True:
            foreign = tick()
            if foreign is not None:
                return foreign
            ended = family.poll()
            if len(ended) == spec.local_ranks and all(code == PASS for code in ended.values()):
                return Outcome(PASS)
            if any(code != PASS for code in ended.values()):
                return _after_death(family, spec, ranks, host, progress)
            late = _late(progress.rows(), began_ns, spec.timeout_s, ended)
            if late and all(progress.rows()[r]["phase"] == DONE for r in late):
                return Outcome(PASS)  # everything is measured and written; only the library does not let go
            if late:
                return _hang(late, progress.rows(), spec, ranks, host)
            time.sleep(_TICK_S)
    finally:
        family.kill()


def _late(rows, began_ns, timeout_s, ended) -> list[int]:
    now_ns = time.monotonic_ns()
    late = []
    for local_rank, row in enumerate(rows):
        if local_rank in ended:
            continue
        waited_s = (now_ns - max(row["stamp_ns"], began_ns)) / 1e9
        allowance_s = _START_S if row["phase"] == STARTING else row["allowance_ms"] / 1e3
        if waited_s > timeout_s + allowance_s:
            late.append(local_rank)
    return late


def _after_death(family, spec, ranks, host, progress) -> Outcome:
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and len(family.poll()) < spec.local_ranks:
        time.sleep(_TICK_S)
    ended = family.poll()
    rows = progress.rows()
    step = _step_in_flight(rows)
    killed = {r: -code for r, code in ended.items() if code < 0}
    if killed:
        missing = [
            {"rank": ranks[r], "host": host, "why": f"killed by {signal.Signals(number).name}"}
            for r, number in killed.items()
        ]
        return Outcome(HANG, "lost " + tell(missing), missing, step)
    told = [(ranks[r], said) for r in sorted(ended) if (said := error_of(spec, r))]
    code = max((c for c in ended.values() if c != PASS), default=UNMEASURED)
    reason = (
        told[0][1]
        if told
        else f"rank {ranks[min(ended)]} ended with exit code {code}: {last_lines(spec.log(min(ended)))}"
    )
    if told and step is not None:
        reason = f"rank {told[0][0]}: {reason}"
    return Outcome(code if code == USAGE else UNMEASURED, reason, [], step)


def _hang(late, rows, spec, ranks, host) -> Outcome:
    """Who is behind: ranks that are stopped, else those that have got less far than the others."""
    stopped = [r for r, row in enumerate(rows) if process_state(row["pid"]) in ("T", "t")]
    place = [(row["step"], row["phase"], row["calls"]) for row in rows]
    behind = [r for r in range(len(rows)) if place[r] < max(place)]
    if stopped:
        missing = [{"rank": ranks[r], "host": host, "why": "stopped (SIGSTOP)"} for r in stopped]
    elif behind:
        missing = [{"rank": ranks[r], "host": host, "why": _stands(rows[r])} for r in behind]
    else:
        missing = []
    step = _step_in_flight(rows)
    where = f"no progress for {spec.timeout_s:g} s (--timeout) in {_stands(rows[late[0]])}{_said(spec, rows, late)}"
    if missing:
        return Outcome(HANG, f"{where}; waiting for {tell(missing)}", missing, step)
    return Outcome(HANG, f"{where}; all ranks of {host} wait, none is behind", missing, step)


def _said(spec, rows, late) -> str:
    """What mpirun or the first late rank has printed, where it has not got as far as a world."""
    if rows[late[0]]["phase"] > FORMING:
        return ""
    logs = [path for path in (spec.launcher_log, spec.log(late[0])) if path.exists() and path.read_bytes().strip()]
    return f" (it printed: {last_lines(logs[0], 12)})" if logs else ""


def tell(missing: list[dict]) -> str:
    """rank 2 on node1 (stopped), rank 3 on ..."""
    return ", ".join(f"rank {m['rank']} on {m['host']} ({m['why']})" for m in missing[:8])


def _stands(row) -> str:
    phase = PHASES[row["phase"]]
    return f"{phase}, call {row['calls']}" if row["phase"] not in (STARTING, FORMING) else phase


def _step_in_flight(rows) -> int | None:
    if not rows or max(row["phase"] for row in rows) <= FORMING:
        return None
    step = max(row["step"] for row in rows)
    return step if step >= 0 else None


def process_state(pid: int) -> str | None:
    """The kernel's letter for the state of a process (R, S, D, T, Z, ...), None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def error_of(spec: LaunchSpec, local_rank: int) -> str | None:
    """What a rank said of its own failure."""
    try:
        return json.loads(spec.error(local_rank).read_text())["message"]
    except (OSError, ValueError, KeyError):
        return None


def last_lines(path: Path, count: int = 5) -> str:
    """The end of a rank's output, for an error message."""
    try:
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return " | ".join(lines[-count:]) or "it printed nothing"


def kill_all(pids) -> None:
    """SIGKILL to every pid that is still there; also ends stopped processes."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
