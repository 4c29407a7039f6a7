"""Series from a run: per point and launch one time, and what tells a sample's series from another."""

import re
from dataclasses import replace

import numpy as np

from commbench.errors import UsageError
from commbench.models.table import Row, Table, table_of
from commbench.ops import OPS
from commbench.results.metrics import BUSY_CORES
from commbench.results.records import Sample
from commbench.results.store import Run

_OF_ONE_POINT = (
    "requested_bytes", "matrix", "sent", "received", "align_bytes", "wanted_world_size", "pieces", "per_node"
)  # fmt: skip


def from_run(run: Run) -> list[Table]:
    """The series of a run: per point and launch the median of its samples; rows that are not ok are left out, counted.

    Raises UsageError when the run has no time of a sized operation.
    """
    rows: dict[tuple, list[Row]] = {}
    left_out: dict[tuple, dict[str, int]] = {}
    notes: dict[tuple, list[str]] = {}
    disturbed: dict[tuple, int] = {}
    for sample in run.samples():
        key = tuple(_label(sample).items())
        reason = _unusable(sample)
        if reason:
            counts = left_out.setdefault(key, {})
            counts[reason] = counts.get(reason, 0) + 1
            continue
        p = sample.point
        row = Row(p.ranks, p.nodes, p.size_bytes, float(np.median(sample.samples_us)), sample.launch)
        rows.setdefault(key, []).append(replace(row, samples_us=sample.samples_us))
        if sample.oversubscribed:
            notes.setdefault(key, []).append("ranks shared processor cores: the times hold waiting for a core")
        disturbed[key] = disturbed.get(key, 0) + ((sample.foreign_cores or 0) >= BUSY_CORES)
    if not rows:
        total = sum(sum(counts.values()) for counts in left_out.values())
        raise UsageError(f"{run.path} holds no time to fit: {total} row(s), none of them ok and with a size")
    unreadable = sum(launch.unreadable for launch in run.launches)
    if unreadable:
        for key in rows:
            notes.setdefault(key, []).append(f"{unreadable} line(s) of the run could not be read")
    for key, count in disturbed.items():
        if count:
            notes.setdefault(key, []).append(f"{count} of {len(rows[key])} rows were disturbed by other programs")
    return [
        table_of(dict(key), _merged(found), left_out.get(key, {}), notes.get(key, ())) for key, found in rows.items()
    ]


def _label(sample: Sample) -> dict[str, str]:
    """What tells this sample's series from another. Sizes, ranks and nodes are the axes of a series, not its name."""
    p = sample.point
    timing = f"{p.timing} x{p.batch}" if p.timing == "streaming" else p.timing
    label = {"op": p.op, "algorithm": p.algorithm, "protocol": p.protocol, "backend": p.backend, "dtype": p.dtype}
    label |= {"redop": p.redop, "timing": timing, "in_place": "yes" if p.in_place else "no", "group": p.group}
    label |= {"root": "-1" if p.root <= 0 else f"root {p.root}", "over_ranks": p.over_ranks}
    label |= {name: f"{name} {value}" for name, value in p.params.items() if name not in _OF_ONE_POINT}
    return {key: str(value) for key, value in label.items()}


def _unusable(sample: Sample) -> str:
    """Why a sample cannot be a row ("" where it can)."""
    p = sample.point
    if sample.status == "wrong":
        return "the check found wrong data"
    if sample.status != "ok":
        return {"skip": "it was skipped", "error": "it failed"}[sample.status]
    if not sample.samples_us:
        return "it has no raw times"
    if _ran_otherwise(sample):
        return "it was not seen to run by the algorithm that it asked for"
    if not all(type(value) is int and value > 0 for value in (p.ranks, p.nodes, p.size_bytes)):
        return "it has no size" if p.op in OPS else "its size, ranks or nodes are no numbers above 0"
    return ""


def _ran_otherwise(sample: Sample) -> bool:
    """True where the library was seen to take another algorithm than the one it was forced to."""
    asked, seen = sample.point.algorithm, sample.algorithm_seen.lower().replace("_", "")
    forced = asked != "library" and not asked.startswith("own:") and seen != "not observed"
    return forced and asked.lower().replace("_", "") not in re.findall(r"[a-z0-9]+", seen)


def _merged(rows: list[Row]) -> list[Row]:
    """Points that differ only in what was asked for (1001 bytes rounded to 1000) are one: the median of their times."""
    places: dict[tuple, list[Row]] = {}
    for row in rows:
        places.setdefault((row.ranks, row.nodes, row.size_bytes, row.launch), []).append(row)
    return [
        group[0] if len(group) == 1 else replace(group[0], time_us=float(np.median([r.time_us for r in group])))
        for group in places.values()
    ]
