"""The full table: one column is a name, a kind and the cell it makes of a row."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from commbench.reports.rows import Row
from commbench.results import metrics
from commbench.timing.statistics import percentile
from commbench.units import format_size


@dataclass(frozen=True)
class Column:
    """`cell` gives the text, or (text, number to sort by; None sorts last). `fixed` columns are never folded away."""

    name: str
    cell: Callable
    numeric: bool = False
    fixed: bool = False


def _time(get) -> Callable:
    return lambda row: (_microseconds(get(row)), get(row))


def _microseconds(time_us: float | None) -> str:
    return "–" if time_us is None else f"{time_us:.2f}"


def _GBps(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if value >= 0.0005 else "<0.001"


def _count(get) -> Callable:
    return lambda row: (str(get(row)), get(row))


def _size(row: Row):
    """The size, which a skipped point never came to have: there the one that was asked for."""
    size = row.point.size_bytes
    if row.sample.status == "skip":
        size = size or row.point.params.get("requested_bytes", 0)
    return format_size(size), size


def _percentile(percent: float) -> Callable:
    return _time(lambda row: percentile(row.sample.samples_us, percent))


def _busbw(row: Row):
    applies = metrics.bus_factor(row.sample) is not None
    return (_GBps(row.busbw_GBps) if applies else "n/a", row.busbw_GBps)


def _interval(row: Row):
    if row.interval_us is None:
        return "–", None
    return " – ".join(map(_microseconds, row.interval_us)), row.interval_us[0]


def _root(row: Row):
    return (str(row.point.root), row.point.root) if row.point.root >= 0 else ("–", None)


def _wrong(row: Row):
    wrong = row.sample.wrong
    return ("not checked" if row.ok else "–", None) if wrong is None else (str(wrong), wrong)


def slowest(row: Row):
    """(The rank that was the slowest most often, with its share of the samples; that share)."""
    counts, samples = row.sample.slowest_count, len(row.sample.samples_us)
    if not samples or len(counts) < 2 or not any(counts):
        return "–", None
    worst = int(np.argmax(counts))
    rank = row.point.members[worst] if worst < len(row.point.members) else worst
    share = counts[worst] / samples
    return f"{rank} ({share:.0%})", share


def _params(row: Row) -> str:
    """Plain parameters by value; a matrix is only named, and the size that was asked for is near the size."""
    params = {name: value for name, value in row.point.params.items() if name != "requested_bytes"}
    return ", ".join(f"{n} {v}" if isinstance(v, str | int | float) else n for n, v in params.items())


def _remarks(row: Row) -> str:
    if not row.ok:
        return ""
    return ", ".join(metrics.remarks(row.sample))


# What was measured, what came out, then the rest.
COLUMNS = (
    Column("op", lambda row: row.point.op, fixed=True),
    Column("backend", lambda row: row.point.backend, fixed=True),
    Column("algorithm", lambda row: row.point.choice),
    Column("group", lambda row: row.point.group),
    Column("ranks", _count(lambda row: row.point.ranks), numeric=True),
    Column("size", _size, numeric=True, fixed=True),
    Column("dtype", lambda row: row.point.dtype),
    Column("redop", lambda row: row.point.redop if row.point.redop != "none" else "–"),
    Column("in place", lambda row: "yes" if row.point.in_place else "no"),
    Column("timing", lambda row: row.point.timing),
    Column("params", _params),
    Column("time, µs", _time(lambda row: row.time_us), numeric=True, fixed=True),
    Column("95 % interval, µs", _interval, numeric=True, fixed=True),
    Column("algbw, GB/s", lambda row: (_GBps(row.algbw_GBps), row.algbw_GBps), numeric=True, fixed=True),
    Column("busbw, GB/s", _busbw, numeric=True, fixed=True),
    Column("#wrong", _wrong, numeric=True, fixed=True),
    Column("status", lambda row: row.sample.status, fixed=True),
    Column("algorithm seen", lambda row: row.sample.algorithm_seen),
    Column("min, µs", _time(lambda row: min(row.sample.samples_us, default=None)), numeric=True),
    Column("p95, µs", _percentile(95), numeric=True),
    Column("p99, µs", _percentile(99), numeric=True),
    Column("skew, µs", _time(lambda row: row.sample.skew_us), numeric=True),
    Column("slowest rank", slowest, numeric=True),
    Column("samples", _count(lambda row: len(row.sample.samples_us)), numeric=True),
    Column("stopped", lambda row: row.sample.stop_reason),
    Column("count", _count(lambda row: row.point.count), numeric=True),
    Column("root", _root, numeric=True),
    Column("batch", _count(lambda row: row.point.batch), numeric=True),
    Column("launch", _count(lambda row: row.sample.launch), numeric=True),
    Column("remarks", _remarks),
    Column("reason", lambda row: row.sample.reason),
)


def table(rows: list[Row]) -> dict:
    """Heads and lines of cells (text, sort key or None, folded), and what stands in the folded columns.

    A column that holds the same in every row is folded: the page names its value once and hides it until asked.
    """
    cells = [[column.cell(row) for column in COLUMNS] for row in rows]
    cells = [[cell if isinstance(cell, tuple) else (cell, None) for cell in line] for line in cells]
    held = [{line[i][0] for line in cells} for i in range(len(COLUMNS))]
    folded = [len(rows) > 1 and len(held[i]) == 1 and not column.fixed for i, column in enumerate(COLUMNS)]
    same = [(column.name, held[i].pop()) for i, column in enumerate(COLUMNS) if folded[i]]
    return {
        "heads": [(column.name, column.numeric, fold) for column, fold in zip(COLUMNS, folded, strict=True)],
        "lines": [
            (row.sample.status, [(*cell, c.numeric, f) for cell, c, f in zip(line, COLUMNS, folded, strict=True)])
            for row, line in zip(rows, cells, strict=True)
        ],
        "same": [(name, value) for name, value in same if value not in ("", "–")],
        "folded": sum(folded),
    }
