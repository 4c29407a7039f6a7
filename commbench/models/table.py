"""The measurements of one series as columns: what a model is fitted to.

A series is what one model may describe: one operation, algorithm, backend, dtype, timing, ... over ranks, nodes, sizes
and launches. Isolated and streaming times, or a library's ring and our own, are different series.
"""

from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import numpy as np

from commbench.errors import UsageError
from commbench.results.nccl_tests import one_line
from commbench.results.store import load_run, newest_run

OUTPACED = 3.0  # no larger message is this much faster, unless a figure was rounded, a call disturbed, a choice bad
COPIED_LEAST = 3  # so many times of two sources, and all of one alike, are no coincidence
_USUAL = {"protocol": "default", "redop": "none", "group": "all", "root": "-1", "in_place": "no", "over_ranks": "max"}


@dataclass(frozen=True)
class Table:
    """Rows of one series, as equally long arrays. `label` tells it from other series (op, algorithm, backend, ...).

    time_us: the median over the samples of one launch, or an import's printed figure. second_us: the slower placement
    of the same point (in place beside out of place), NaN where there is none. samples: raw times of each row, or ().
    left_out: how many rows were read and are not here, by reason. notes: sentences a reader of the fit should see.
    """

    label: dict[str, str]
    ranks: np.ndarray
    nodes: np.ndarray
    size_bytes: np.ndarray
    time_us: np.ndarray
    launch: np.ndarray
    second_us: np.ndarray | None = None
    samples: tuple = ()
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.time_us)

    @property
    def per_node(self) -> np.ndarray:
        return self.ranks // self.nodes

    @property
    def launches(self) -> int:
        return len(np.unique(self.launch))

    @property
    def points(self) -> int:
        """Different (ranks, nodes, size), each measured in one launch or in several."""
        return len(np.unique(self._keys(), axis=0))

    @property
    def name(self) -> str:
        """The label in words, without what is usual."""
        return ", ".join(one_line(v) for key, v in self.label.items() if _USUAL.get(key) != v)

    def used(self) -> str:
        """How many points the series has, and what was left out: "24 points used, 1 left out because it failed"."""
        said = [f"{self.points} points used"]
        said += [f"{count} left out because {reason}" for reason, count in self.left_out.items()]
        return ", ".join(said)

    def select(self, mask) -> "Table":
        """The rows where `mask` holds (a boolean array or an array of row numbers)."""
        rows = np.arange(len(self))[mask]
        columns = {name: getattr(self, name)[rows] for name in ("ranks", "nodes", "size_bytes", "time_us", "launch")}
        second = None if self.second_us is None else self.second_us[rows]
        samples = tuple(self.samples[row] for row in rows) if self.samples else ()
        return replace(self, **columns, second_us=second, samples=samples)

    def medians(self) -> "Table":
        """Launches merged: per point the median over its launches; launch is 0 and raw samples are gone."""
        keys, group = np.unique(self._keys(), axis=0, return_inverse=True)
        rows = [np.flatnonzero(group.ravel() == g) for g in range(len(keys))]
        second = None if self.second_us is None else np.array([_median(self.second_us[r]) for r in rows])
        return replace(
            self,
            ranks=keys[:, 0].astype(int),
            nodes=keys[:, 1].astype(int),
            size_bytes=keys[:, 2],
            time_us=np.array([np.median(self.time_us[r]) for r in rows]),
            launch=np.zeros(len(keys), int),
            second_us=second,
            samples=(),
        )

    def _keys(self) -> np.ndarray:
        return np.column_stack([self.ranks, self.nodes, self.size_bytes]).astype(float).reshape(-1, 3)


def _median(values) -> float:
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) else np.nan


@dataclass(frozen=True)
class Row:
    """One measured time before it stands in a table."""

    ranks: int
    nodes: int
    size_bytes: int
    time_us: float
    launch: int = 1
    second_us: float = np.nan
    samples_us: tuple[float, ...] = ()


def table_of(label: dict[str, str], rows: list[Row], left_out=(), notes=()) -> Table:
    """The rows in order of ranks, nodes, size and launch."""
    rows = sorted(rows, key=lambda r: (r.ranks, r.nodes, r.size_bytes, r.launch))
    return Table(
        label,
        np.array([r.ranks for r in rows], int),
        np.array([r.nodes for r in rows], int),
        np.array([r.size_bytes for r in rows], float),
        np.array([r.time_us for r in rows], float),
        np.array([r.launch for r in rows], int),
        np.array([r.second_us for r in rows], float),
        tuple(r.samples_us for r in rows),
        dict(left_out),
        tuple(dict.fromkeys(notes)),
    )


def without_outpaced(table: Table) -> Table:
    """Without the points that a larger size on the same ranks outpaces threefold; they are counted."""
    middle = table.medians()
    slow = set()
    for ranks, nodes in set(zip(middle.ranks, middle.nodes)):
        curve = middle.select((middle.ranks == ranks) & (middle.nodes == nodes))
        slow |= {(ranks, nodes, size) for size in curve.size_bytes[outpaced(curve.time_us, OUTPACED)]}
    keep = np.array([key not in slow for key in zip(table.ranks, table.nodes, table.size_bytes)], bool)
    if keep.all():
        return table
    reason = "a larger size took less than a third of the time (a rounded figure, a disturbed call or a bad choice)"
    return replace(table.select(keep), left_out=table.left_out | {reason: int((~keep).sum())})


def outpaced(time_us: np.ndarray, factor: float) -> np.ndarray:
    """Which times, in order of size, are more than `factor` times that of some larger size."""
    least_onward = np.minimum.accumulate(time_us[::-1])[::-1]
    return time_us > factor * least_onward


def read_series(paths, ranks: int | None = None) -> list[Table]:
    """The series in run folders and CSV files, in order of appearance; `ranks` is for a CSV without a column of them.

    A folder that holds runs stands for all of them. The same series in several sources is one: points that repeat are
    further launches, others are further points. Raises UsageError naming what is missing, or which source is a copy.
    """
    from commbench.models.csv_table import from_csv  # both build on this file
    from commbench.models.run_table import from_run

    parts: dict[tuple, list[tuple[Path, Table]]] = {}
    for path in _sources(paths):
        for table in from_run(load_run(path)) if path.is_dir() else from_csv(path, ranks):
            mine = parts.setdefault(tuple(table.label.items()), [])
            for earlier, other in mine:
                if _copied(other, table):
                    raise UsageError(
                        f"{earlier} and {path} hold the same rows of {table.name}; a copy is no further launch: leave "
                        "one of them out"
                    )
            mine.append((path, table))
    return [reduce(joined, [table for _, table in mine]) for mine in parts.values()]


def _sources(paths) -> list[Path]:
    """CSV files and run folders, each once; a folder of runs is given by its runs, in order of name."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"{path} does not exist; give the folder of a run or a CSV file")
        runs = [path]
        if path.is_dir() and not (path / "plan.json").exists():
            runs = sorted(plan.parent for plan in path.glob("*/plan.json")) or [newest_run(path)]
        for one in runs:
            if one.resolve() in found:
                raise UsageError(f"{one} is given twice; a copy is no further launch: leave one of them out")
            found[one.resolve()] = one
    return list(found.values())


def _copied(first: Table, second: Table) -> bool:
    """Whether every time of one table stands in the other one too, whatever the launch is called."""
    rows = [set(zip(t.ranks.tolist(), t.nodes.tolist(), t.size_bytes.tolist(), t.time_us.tolist()))
            for t in (first, second)]  # fmt: skip
    small, large = sorted(rows, key=len)
    return len(small) >= COPIED_LEAST and small <= large


def joined(first: Table, second: Table) -> Table:
    """Both tables as one. Where they hold the same point and launch, the launches of the second are counted on."""
    places = [set(zip(t.ranks, t.nodes, t.size_bytes, t.launch)) for t in (first, second)]
    onward = first.launch.max() if places[0] & places[1] else 0
    left_out = dict(first.left_out)
    for reason, count in second.left_out.items():
        left_out[reason] = left_out.get(reason, 0) + count
    columns = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("ranks", "nodes", "size_bytes", "time_us", "second_us")
    }
    return replace(
        first,
        **columns,
        launch=np.concatenate([first.launch, second.launch + onward]),
        samples=first.samples + second.samples,
        left_out=left_out,
        notes=tuple(dict.fromkeys(first.notes + second.notes)),
    )
