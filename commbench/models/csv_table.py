"""Series from CSV files: those of `commbench export`, and published tables of nccl-tests' times.

Columns are found by name, in any order; units stand in the names and no other unit is guessed at.
"""

import csv
import math
from pathlib import Path

import numpy as np

from commbench.errors import UsageError
from commbench.models.table import Row, Table, table_of

_LABELS = (
    "algorithm", "protocol", "backend", "dtype", "redop", "timing", "batch", "in_place", "group", "root", "dataset",
    "gpu",
)  # fmt: skip
_PLACEMENTS = ("time_us_out_of_place", "time_us_in_place")
_TIMES = ("time_us", "median_us")
_OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
}  # fmt: skip
_DELIMITERS = (",", ";", "\t")
_LIMIT_BYTES = 2**30


def from_csv(path: Path, ranks: int | None = None) -> list[Table]:
    """The series of a CSV file. `ranks`: how many took part, for a file without a column ranks or nranks.

    Wanted columns: op (or collective), ranks (or nranks), size_bytes, and a time: time_us, median_us, or
    time_us_out_of_place and time_us_in_place, of which the smaller counts. Optional: nodes or gpus_per_node, launch,
    status, and whatever tells series apart (algorithm, protocol, backend, dataset, ...).
    Raises UsageError naming the column or the line that is wrong.
    """
    lines = _lines(path)
    columns = set(lines[0][1])
    op_column = _column(path, columns, ("op", "collective"), "the operation")
    ranks_column = None
    if ranks is None:
        ranks_column = _column(path, columns, ("ranks", "nranks"), "the number of ranks (or give --ranks)")
    _column(path, columns, ("size_bytes",), "the size in bytes")
    times = [name for name in _PLACEMENTS if name in columns]
    times = times or [_column(path, columns, _TIMES, "the time in microseconds")]
    series: dict[tuple, dict[tuple, tuple[int, Row]]] = {}
    left_out: dict[tuple, dict[str, int]] = {}
    for number, cells in lines:
        where = f"{path}, line {number}"
        key = tuple(_label(cells, op_column).items())
        if cells.get("status", "ok") != "ok":
            counts = left_out.setdefault(key, {})
            reason = "the check found wrong data" if cells["status"] == "wrong" else "it has no result"
            counts[reason] = counts.get(reason, 0) + 1
            continue
        if key[0][1] == "barrier":
            continue
        row = _row(where, cells, ranks or _whole(where, cells, ranks_column), times)
        place = (row.ranks, row.nodes, row.size_bytes, row.launch)
        rows = series.setdefault(key, {})
        if place in rows:
            raise UsageError(
                f"{where} repeats line {rows[place][0]} ({row.size_bytes} bytes on {row.ranks} ranks); keep one of "
                "them, or number repetitions in a column launch"
            )
        rows[place] = number, row
    if not series:
        raise UsageError(f"{path} holds no row that is ok and has a size")
    notes = [] if {"nodes", "gpus_per_node"} & columns else ["no column nodes: all ranks are taken to be on one node"]
    return [
        table_of(dict(key), [row for _, row in rows.values()], left_out.get(key, {}), notes)
        for key, rows in series.items()
    ]


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line number, cells by column) of all rows with something in them."""
    if not path.is_file():
        raise UsageError(f"{path} is neither a folder nor a file; give the folder of a run or a CSV file")
    if path.stat().st_size > _LIMIT_BYTES:
        raise UsageError(f"{path} has over 1 GiB; a table of times is far smaller")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(_DELIMITERS, key=head.count))
            names = [str(name).strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            lines = [
                (reader.line_num, {name: (cells[name] or "").strip() for name in names})
                for cells in reader
                if any(cells[name] for name in names)
            ]
    except (UnicodeDecodeError, csv.Error):
        raise UsageError(f"{path} is not a CSV file in UTF-8; give the folder of a run or a CSV file") from None
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{path} has two columns {twice}; which one counts cannot be told")
    if not lines:
        raise UsageError(f"{path} has no rows; wanted is a line of column names and a line for each time")
    return lines


def _column(path: Path, columns: set[str], names: tuple[str, ...], what: str) -> str:
    """The one of `names` that the file has. Another unit of the same quantity is named, never converted."""
    for name in names:
        if name in columns:
            return name
    quantity = names[0].split("_")[0]
    other = sorted(c for c in columns if c.lower().startswith(quantity) and len(c) < 40)
    found = f"; it has {', '.join(map(repr, other))}, whose unit is not taken for granted: convert it" if other else ""
    raise UsageError(f"{path} has no column {' or '.join(names)}, {what}{found}")


def _label(cells: dict[str, str], op_column: str) -> dict[str, str]:
    op = cells[op_column].lower().replace("-", "_")
    label = {"op": _OPS.get(op.replace("_", ""), op)}
    for name in _LABELS:
        value = cells.get(name, "")
        if name == "in_place" and value:
            value = "yes" if value.lower() in ("true", "yes", "1") else "no"
        if name == "batch":
            value = f"batch {value}" if cells.get("timing") == "streaming" and value else ""
        if name == "root":
            value = "" if value in ("-1", "0") else f"root {value}" * bool(value)
        if value:
            label[name] = value
    return label


def _row(where: str, cells: dict[str, str], ranks: int, times: list[str]) -> Row:
    size_bytes = _whole(where, cells, "size_bytes")
    if cells.get("nodes"):
        nodes = _whole(where, cells, "nodes")
    else:
        nodes = -(-ranks // _whole(where, cells, "gpus_per_node")) if cells.get("gpus_per_node") else 1
    if nodes > ranks:
        raise UsageError(f"{where}: {nodes} nodes cannot be, with {ranks} ranks")
    found = sorted(_time(where, cells, name) for name in times if cells[name])
    if not found:
        raise UsageError(f"{where}: there is no time; fill in {' or '.join(times)}, or take the line out")
    launch = _whole(where, cells, "launch", 0) if cells.get("launch") else 1
    return Row(ranks, nodes, size_bytes, found[0], launch, found[1] if len(found) > 1 else np.nan)


def _whole(where: str, cells: dict[str, str], name: str, least: int = 1) -> int:
    text = cells[name]
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if value < least:
        wanted = "above 0" if least else "from 0 on"
        raise UsageError(f"{where}: {name} is {text[:40]!r}; wanted is a whole number {wanted}, without a unit")
    return value


def _time(where: str, cells: dict[str, str], name: str) -> float:
    try:
        value = float(cells[name])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{where}: {name} is {cells[name][:40]!r}; wanted is a time in microseconds above 0")
    return value
