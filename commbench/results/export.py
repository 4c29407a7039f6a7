"""A stored run for other programs: CSV for spreadsheets, JSON for scripts, nccl-tests' tables for its parsers."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

import numpy as np

from commbench.errors import UsageError
from commbench.results.metrics import algbw_GBps, busbw_GBps, busbw_interval_GBps, interval_us, load, time_us
from commbench.results.nccl_tests import (
    PROGRAMS,
    device_lines,
    footer_lines,
    half,
    header_lines,
    notes,
    one_line,
    row_line,
)  # fmt: skip
from commbench.results.records import SCHEMA, Point, Sample
from commbench.results.store import Launch, Run
from commbench.timing.statistics import percentile
from commbench.units import rank_spans

_IDENTITY = [f.name for f in fields(Point) if f.name not in ("status", "reason")]
_RAW = ("samples_us", "parts_us", "rank_median_us", "slowest_count")  # lists; they stand in the JSON only
_OUTCOME = [f.name for f in fields(Sample) if f.name not in ("point", *_RAW)]
# What the rows of one table differ in.
_SIZES = ("size_bytes", "send_bytes", "recv_bytes", "count", "in_place", "batch", "params")
_SIZE_PARAMS = ("requested_bytes", "matrix", "sent", "received")


def figures(sample: Sample) -> dict:
    """All that is computed from the raw times; None where a figure does not exist. `samples` is their number."""
    times = sample.samples_us
    interval, busbw_interval = interval_us(sample) or (None, None), busbw_interval_GBps(sample) or (None, None)
    return {
        "samples": len(times),
        "time_us": time_us(sample),
        "interval_low_us": interval[0],
        "interval_high_us": interval[1],
        "min_us": min(times, default=None),
        "max_us": max(times, default=None),
        "p50_us": percentile(times, 50),
        "p95_us": percentile(times, 95),
        "p99_us": percentile(times, 99),
        "algbw_GBps": algbw_GBps(sample),
        "busbw_GBps": busbw_GBps(sample),
        "busbw_low_GBps": busbw_interval[0],
        "busbw_high_GBps": busbw_interval[1],
        **(load(sample) or {}),
        **{f"part_{name}_us": float(np.median(part)) for name, part in sample.parts_us.items()},
    }


def to_csv(samples: Iterable[Sample], file) -> None:
    """One row per sample: what was measured, its figures, what came out. Open `file` with newline=""."""
    rows = [
        {"id": s.point.id, **{name: getattr(s.point, name) for name in _IDENTITY}, **figures(s)}
        | {name: getattr(s, name) for name in _OUTCOME}
        for s in samples
    ]
    columns = dict.fromkeys(name for row in rows for name in row) or ["id", *_IDENTITY, *_OUTCOME]
    writer = csv.DictWriter(file, [_cell(name) for name in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows({_cell(name): _cell(value) for name, value in row.items()} for row in rows)


def _cell(value):
    """Numbers as they are; text on one line, and never the beginning of a spreadsheet formula."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, tuple):
        return rank_spans(value)
    text = one_line(json.dumps(value) if isinstance(value, dict) else value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def to_json(run: Run, file, ratios: list[dict] = ()) -> None:
    """One JSON document: the plan, every launch with its header, points (raw samples, computed figures) and end, and
    the `ratios` of its links (models/ratio.py).

    Raises UsageError when the run holds NaN or infinity, which JSON does not have.
    """
    plan = asdict(run.plan) | {
        "hash": run.plan.hash,
        "steps": [[point.to_json() | {"id": point.id} for point in step] for step in run.plan.steps],
    }
    document = {"schema": SCHEMA, "plan": plan, "launches": [_launch(launch) for launch in run.launches]}
    document["ratios"] = list(ratios)
    try:
        text = json.dumps(document, allow_nan=False, indent=1)
    except ValueError:
        raise UsageError(f"{run.path} holds NaN or infinity; take those lines out of its journals") from None
    file.write(text + "\n")


def _launch(launch: Launch) -> dict:
    return {
        "journal": launch.path.name,
        "header": launch.header,
        "points": [sample.to_json() | {"computed": figures(sample)} for sample in launch.samples],
        "end": launch.end,
        "unreadable_lines": launch.unreadable,
    }


def to_nccl_tests(run: Run) -> Iterator[str]:
    """The run as nccl-tests would print it, line by line: a table for each thing that it would start a program for.

    Raises UsageError when nothing in the run is a collective that nccl-tests knows.
    """
    tables, left_out = {}, {}
    for sample in run.samples():
        if sample.point.op in PROGRAMS:
            tables.setdefault(_table_of(sample), []).append(sample)
        else:
            left_out[sample.point.op] = left_out.get(sample.point.op, 0) + 1
    if not tables:
        found = ", ".join(left_out) or "nothing"
        raise UsageError(f"{run.path} holds {found}, which nccl-tests has no table for; use --format csv or json")
    return _lines(run, list(tables.values()), left_out)


def _table_of(sample: Sample) -> str:
    """Equal for samples that stand in one table: all of their identity but what a sweep over sizes changes."""
    what = {name: getattr(sample.point, name) for name in _IDENTITY if name not in _SIZES}
    what["params"] = {name: value for name, value in sample.point.params.items() if name not in _SIZE_PARAMS}
    return json.dumps([what, sample.launch], sort_keys=True)


def _lines(run: Run, tables: list[list[Sample]], left_out: dict[str, int]) -> Iterator[str]:
    for samples in tables:
        yield from _table(run, samples)
        yield ""
    for op, count in left_out.items():
        yield f"# Left out: {count} result(s) of {one_line(op)}, which nccl-tests has no program for"


def _table(run: Run, samples: list[Sample]) -> Iterator[str]:
    point, settings, program = samples[0].point, run.plan.settings, PROGRAMS[samples[0].point.op]
    header = next((launch.header for launch in run.launches if samples[0] in launch.samples), {})
    yield from header_lines(
        program,
        [_asked_bytes(sample) for sample in samples],
        warmup=settings.warmup,
        iters=max(len(sample.samples_us) * sample.point.batch for sample in samples),
        checks=settings.checks,
        graph=settings.graph,
        devices=device_lines(header, point.members),
        notes=_notes(run, samples),
    )
    rows = {}
    for sample in samples:
        rows.setdefault((_asked_bytes(sample), sample.point.batch), {})[sample.point.in_place] = sample
    halves = []
    for _, row in sorted(rows.items()):
        pair = half(row.get(False)), half(row.get(True))
        halves += pair
        # A point that was skipped knows only the size asked for; the other placement knows the size it became.
        yield row_line(max((sample.point for sample in row.values()), key=lambda p: p.size_bytes), *pair)
    yield from footer_lines(program, halves)


def _asked_bytes(sample: Sample) -> int:
    """The size before it was rounded down to whole elements and ranks."""
    return sample.point.params.get("requested_bytes", sample.point.size_bytes)


def _notes(run: Run, samples: list[Sample]) -> list[str]:
    point, launch = samples[0].point, samples[0].launch
    said = [f"Backend {point.backend}, group {point.group} of {point.ranks} rank(s), algorithm {point.algorithm}, "
            f"launch {launch} of {run.plan.launches}"]  # fmt: skip
    if run.plan.settings.iters is None:
        counts = [len(sample.samples_us) for sample in samples]
        said.append(f"Each row took as many samples as its precision needed: {min(counts)} to {max(counts)}")
    said += notes(sample.point for sample in samples)
    if any(sample.oversubscribed for sample in samples):
        said.append("Ranks shared processor cores: the times are not those of the network alone")
    missing = [sample for sample in samples if half(sample) is None]
    for reason in dict.fromkeys(f"{sample.status}: {sample.reason}" for sample in missing):
        said.append(f"N/A stands for {reason}")
    return said
