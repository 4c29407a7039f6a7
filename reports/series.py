"""Rows sorted into what is drawn: a panel per operation and kind of group, a series per way of measuring it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commbench.reports.rows import Row
from commbench.results.records import Point

MANY_GROUPS = 5  # from here on the groups of a split share one look, and their bands are left out
A_LINE = 3  # sizes a series needs to be worth a line beside longer ones
FEW = 8  # series of fewer sizes are still drawn as lines where there are no longer ones and not more than this


@dataclass(frozen=True)
class Spot:
    """One measured size of a series: the median over its launches of each launch's median time.

    `band_us`: with one launch the 95 % interval of the median, with several the lowest and highest launch.
    `rows`: the ok rows it comes from, one a launch.
    """

    rows: tuple[Row, ...]
    time_us: float
    band_us: tuple[float, float] | None

    @property
    def point(self) -> Point:
        return self.rows[0].point

    @property
    def size_bytes(self) -> int:
        return self.point.size_bytes

    @property
    def busbw_GBps(self) -> float | None:
        return self.rows[0].busbw_at(self.time_us)

    @property
    def busbw_band_GBps(self) -> tuple[float, float] | None:
        if self.band_us is None or self.busbw_GBps is None:
            return None
        return self.rows[0].busbw_at(self.band_us[1]), self.rows[0].busbw_at(self.band_us[0])


@dataclass(frozen=True)
class Series:
    """What is joined by one line: same backend, group, algorithm and so on, over the sizes.

    `traits`: (name, words) of all it was measured with. `spots`: by rising size. `wrong`: rows with wrong data.
    `gaps`: sizes at which nothing good was measured.
    """

    backend: str
    group: str
    traits: tuple[tuple[str, str], ...]
    spots: tuple[Spot, ...]
    wrong: tuple[Row, ...]
    gaps: frozenset[int]

    @property
    def algorithm(self) -> str:
        """As asked for, with its protocol where one was."""
        told = dict(self.traits)
        return "/".join(filter(None, (told["algorithm"] or "library", told["protocol"])))

    @property
    def in_place(self) -> bool:
        return ("in_place", "in place") in self.traits

    @property
    def sized(self) -> list[Spot]:
        """Spots of more than 0 bytes, which a logarithmic axis can show."""
        return [spot for spot in self.spots if spot.size_bytes > 0]


@dataclass(frozen=True)
class Panel:
    """All series of one operation on groups of one kind.

    `lines`: those drawn over the size. `variants`: those drawn as dots, with one or two sizes beside longer series
    (a sweep of dtypes at 1M), or without a size.
    """

    op: str
    first: Point
    groups: tuple[str, ...]
    lines: tuple[Series, ...]
    variants: tuple[Series, ...]

    @property
    def by_algorithm(self) -> bool:
        """Whether it compares algorithms; then it is of one backend."""
        return len({series.algorithm for series in self.lines + self.variants}) > 1

    @property
    def many_groups(self) -> bool:
        return len(self.groups) >= MANY_GROUPS

    @property
    def oversubscribed(self) -> bool:
        spots = (spot for series in self.lines + self.variants for spot in series.spots)
        return any(row.sample.oversubscribed for spot in spots for row in spot.rows)

    @property
    def shows_group(self) -> bool:
        """Whether a name must tell the group."""
        return 1 < len(self.groups) < MANY_GROUPS


def panels(rows: list[Row]) -> list[Panel]:
    """One panel per operation, world size, ranks of the group, scope and split that has a time to draw.

    Where algorithms are compared, also per backend. Operations stand in the order in which they first come.
    """
    found = defaultdict(list)
    for row in rows:
        point = row.point
        split = point.group.rpartition(" #")[0]  # "DIV 8 #3" is one of the groups of the split "DIV 8"
        found[point.op, point.world_size, point.ranks, point.scope, split].append(row)
    found = {key: part for whole, of_key in found.items() for key, part in _by_backend(whole, of_key).items()}
    ops = list(dict.fromkeys(row.point.op for row in rows))
    made = [_panel(found[key]) for key in sorted(found, key=lambda key: ops.index(key[0]))]
    return [panel for panel in made if panel.lines or panel.variants]


def _by_backend(key: tuple, rows: list[Row]) -> dict[tuple, list[Row]]:
    """The rows of a panel, apart by backend where they compare algorithms."""
    if len({row.point.choice for row in rows}) == 1:
        return {key: rows}
    backends = dict.fromkeys(row.point.backend for row in rows)
    return {(*key, backend): [row for row in rows if row.point.backend == backend] for backend in backends}


def same(series: Sequence[Series]) -> list[str]:
    """What holds for every one of `series`, in words."""
    varying = _varying(series)
    return [words for name, words in series[0].traits if words and name not in varying] if series else []


def apart(series: Sequence[Series]) -> list[tuple[str, ...]]:
    """For each of `series` what tells it from the others, in words; backend and group are not among it."""
    varying = _varying(series)
    told = [dict(one.traits) for one in series]
    return [tuple(filter(None, (words.get(name) or _UNSAID.get(name) for name in varying))) for words in told]


# How a trait that goes without saying is called where another series has it otherwise.
_UNSAID = {
    "algorithm": "library",
    "protocol": "default protocol",
    "over_ranks": "max over ranks",
    "in_place": "out of place",
}


def _varying(series: Sequence[Series]) -> list[str]:
    told = [dict(one.traits) for one in series]
    names = dict.fromkeys(name for words in told for name in words)
    return [name for name in names if len({words.get(name) for words in told}) > 1]


def _panel(rows: list[Row]) -> Panel:
    keys = {row.id: (row.point.backend, row.point.group, _traits(row.point)) for row in rows}
    # A batch that follows the size is no trait of the series; one that was swept at one size is.
    places = {(keys[row.id], row.point.size_bytes) for row in rows}
    batches = {(keys[row.id], row.point.size_bytes, row.point.batch) for row in rows}
    swept = len(batches) > len(places)
    series = defaultdict(list)
    for row in rows:
        backend, group, traits = keys[row.id]
        series[backend, group, (*traits, ("batch", f"batch {row.point.batch}")) if swept else traits].append(row)
    groups = tuple(dict.fromkeys(row.point.group for row in rows))
    lines, variants = _divide([_series(key, of_series) for key, of_series in series.items()])
    return Panel(rows[0].point.op, rows[0].point, groups, lines, variants)


def _traits(point: Point) -> tuple[tuple[str, str], ...]:
    """What tells apart points of one size, in words; "" for what goes without saying."""
    words = {
        "algorithm": "" if point.algorithm == "library" else point.algorithm,
        "protocol": "" if point.protocol == "default" else point.protocol,
        "dtype": point.dtype,
        "redop": "" if point.redop == "none" else point.redop,
        "root": "" if point.root < 0 else f"root {point.root}",
        "timing": point.timing,
        "over_ranks": "" if point.over_ranks == "max" else f"{point.over_ranks} over ranks",
        "in_place": "in place" if point.in_place else "",
    }
    # What follows the size (the size asked for, the pieces of a pipeline, a traffic matrix) is no trait of a series.
    follows = ("requested_bytes", "pieces")
    plain = {n: v for n, v in point.params.items() if isinstance(v, str | int | float) and n not in follows}
    return (*words.items(), *((f"params.{n}", f"{n.replace('_', ' ')} {v}") for n, v in plain.items()))


def _divide(series: list[Series]) -> tuple[tuple[Series, ...], tuple[Series, ...]]:
    """(lines, variants)."""

    def sizes(one: Series) -> int:
        return len({size for size in one.gaps | {spot.size_bytes for spot in one.spots} if size > 0})

    drawn = [one for one in series if one.spots or one.wrong]
    least = A_LINE if any(sizes(one) >= A_LINE for one in drawn) or len(drawn) > FEW else 1
    return tuple(one for one in drawn if sizes(one) >= least), tuple(one for one in drawn if sizes(one) < least)


def _series(key: tuple, rows: list[Row]) -> Series:
    by_point = defaultdict(list)
    for row in rows:
        if row.ok and row.time_us:
            by_point[row.id].append(row)
    spots = sorted((_spot(of_point) for of_point in by_point.values()), key=lambda spot: spot.size_bytes)
    wrong = tuple(row for row in rows if row.sample.status == "wrong" and row.time_us)
    gaps = frozenset(row.point.size_bytes for row in rows) - {spot.size_bytes for spot in spots}
    return Series(*key, tuple(spots), wrong, gaps)


def _spot(rows: list[Row]) -> Spot:
    times = [row.time_us for row in rows]
    band = rows[0].interval_us if len(rows) == 1 else (min(times), max(times))
    return Spot(tuple(rows), float(np.median(times)), band)
