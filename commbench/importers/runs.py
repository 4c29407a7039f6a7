"""Imported tests as runs on the disk, in the form of our own: plan.json, and a journal for each program's output.

One file gives one run as long as its tests can stand side by side: the same test a second time, or on other hosts, is
another run. Under `repeats` all tests are one run, and the same test again is its next launch.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from commbench.errors import PASS, UNMEASURED, WRONG, UsageError, worst
from commbench.importers.found import Test
from commbench.importers.read import Imported
from commbench.importers.samples import ASSUMED
from commbench.results.plan import Plan, Settings
from commbench.results.records import SCHEMA

_CODES = {"ok": PASS, "skip": PASS, "wrong": WRONG, "error": UNMEASURED}


@dataclass
class Draft:
    """A run before it is written: tests with the file and the launch that each belongs to."""

    name: str
    tests: list[tuple[Imported, Test, int]]

    @property
    def hosts(self) -> set[str]:
        return {host for _, test, _ in self.tests for host in test.hosts} - {"not named"}


def runs_of(files: list[Imported], repeats: bool) -> list[Draft]:
    """The runs that the tests of all files make, in their order."""
    drafts: list[Draft] = []
    for file in files:
        own = drafts[-1:] if repeats else []
        for test in file.tests:
            if not own or not (repeats or _joins(own[-1], test)):
                own.append(Draft(slug(file.path.stem), []))
            launch = 1 + max((n for _, other, n in own[-1].tests if _same(other, test)), default=0)
            own[-1].tests.append((file, test, launch))
        drafts += [draft for draft in own if draft not in drafts]
    return drafts


def _joins(draft: Draft, test: Test) -> bool:
    hosts = set(test.hosts) - {"not named"}
    if hosts and draft.hosts and hosts != draft.hosts:
        return False
    return not any(_same(other, test) for _, other, _ in draft.tests)


def _same(first: Test, second: Test) -> bool:
    """True where the second is the first once more."""
    return first.tool.split()[0] == second.tool.split()[0] and bool(_what(first) & _what(second))


def _what(test: Test) -> set[tuple]:
    points = [s.point for s in test.samples]
    return {(p.op, p.params.get("mode"), p.group, p.dtype, p.redop, p.ranks, p.in_place) for p in points}


def slug(text: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80].strip("-.") or "import"


def plan_of(draft: Draft, command: list[str], now: str) -> Plan:
    """What an import has "planned": the points that it found, each a step of its own."""
    points = {s.point.id: replace(s.point, status="ok", reason="") for _, test, _ in draft.tests for s in test.samples}
    facts = draft.tests[0][1].facts
    settings = Settings(warmup=facts.get("warmup_iters", 0), iters=1, checks=int(bool(facts.get("validation", 0))))
    launches = max(launch for *_, launch in draft.tests)
    return Plan(draft.name, tuple((point,) for point in points.values()), settings, launches, tuple(command), now)


def records(plan: Plan, file: Imported, test: Test, launch: int) -> Iterator[dict]:
    """The lines of the journal of one test: header, points, end."""
    now = plan.created_at
    yield _header(plan, file, test, launch)
    for sample in test.samples:
        yield replace(sample, launch=launch, started_at=sample.started_at or now).to_json()
    code = worst(_CODES[s.status] for s in test.samples)
    reason = next((s.reason for s in test.samples if _CODES[s.status] == code and code), "")
    yield {"record": "end", "schema": SCHEMA, "exit_code": code, "reason": reason, "missing": [], "finished_at": now}


def _header(plan: Plan, file: Imported, test: Test, launch: int) -> dict:
    point, name = test.samples[0].point, file.path.name
    cut = [f"cut: {test.cut}"] if test.cut else []
    dropped = {why: {"lines": count, "first": number} for why, (count, number, _) in file.dropped.items()}
    return {
        "record": "header", "schema": SCHEMA, "suite": plan.name, "plan_hash": plan.hash, "launch": launch,
        "backend": point.backend, "world_size": point.ranks, "started_at": plan.created_at,
        "command": list(plan.command), "nodes": test.nodes, "ranks": test.ranks, "library": {}, "oversubscribed": False,
        "versions": {library: version for library, version in test.versions.items() if version},
        "notes": [f"imported from {name}, line {test.line}: {test.tool}", *test.notes, *cut],
        "imported": {"tool": test.tool, "file": name, "line": test.line, "cut": test.cut, "dropped": dropped,
                     "nodes_assumed": any(note.startswith(ASSUMED) for note in test.notes),
                     "told": {key: value for key, value in test.facts.items() if value is not None}},
    }  # fmt: skip


def write_run(draft: Draft, folder: Path, command: list[str]) -> int:
    """Write the run into `folder` and return its exit code: 5 where a check failed. Raises UsageError when a run is
    there already, or the folder cannot be made."""
    if (folder / "plan.json").exists():
        raise UsageError(f"{folder} holds a run already; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made: {error.strerror}; choose another --out") from None
    plan = plan_of(draft, command, datetime.now(UTC).isoformat(timespec="seconds"))
    for number, (file, test, launch) in enumerate(draft.tests, 1):
        with open(folder / f"launch-{number:03d}.jsonl", "w") as journal:
            for record in records(plan, file, test, launch):
                journal.write(json.dumps(record, allow_nan=False) + "\n")
    plan.save(folder / "plan.json")
    return worst(_CODES[s.status] for _, test, _ in draft.tests for s in test.samples)
