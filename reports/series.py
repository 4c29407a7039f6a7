"""Rows sorted into what is drawn: a panel per operation and number of ranks, a series per way of measuring it."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commbench.reports.rows import Row
from commbench.results.records import Point

MANY_GROUPS = 5  # from here on the groups of a split share one legend entry, and their bands are left out


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
    def busbw_GBps(self) -> float | None:
        return self.rows[0].busbw_at(self.time_us)

    @property
    def busbw_band_GBps(self) -> tuple[float, float] | None:
        if self.band_us is None or self.busbw_GBps is None:
            return None
        return self.rows[0].busbw_at(self.band_us[1]), self.rows[0].busbw_at(self.band_us[0])


@dataclass(frozen=True)
class Series:
    """`spots` by rising size; `wrong`: rows with wrong data; `gaps`: sizes at which nothing good was measured."""

    backend: str
    group: str
    in_place: bool
    traits: tuple[str, ...]  # what else tells this series from its neighbours in the panel
    spots: tuple[Spot, ...]
    wrong: tuple[Row, ...]
    gaps: frozenset[int]

    def name(self, with_group: bool) -> str:
        group = [self.group] if with_group else []
        return " · ".join([self.backend, *group, *self.traits])


@dataclass(frozen=True)
class Panel:
    """All series of one operation on groups of one size. `same`: what holds for every one of them."""

    op: str
    ranks: int
    same: tuple[str, ...]
    groups: tuple[str, ...]
    series: tuple[Series, ...]

    @property
    def many_groups(self) -> bool:
        return len(self.groups) >= MANY_GROUPS

    @property
    def sizes(self) -> list[int]:
        """Sizes above 0, which a logarithmic axis can show."""
        drawn = {s.point.size_bytes for one in self.series for s in one.spots}
        drawn |= {row.point.size_bytes for one in self.series for row in one.wrong}
        return sorted(size for size in drawn if size > 0)


def panels(rows: list[Row]) -> list[Panel]:
    """One panel per (operation, ranks) that has a time to draw, in the order of the rows."""
    found = defaultdict(list)
    for row in rows:
        found[row.point.op, row.point.ranks].append(row)
    made = [_panel(op, ranks, of_panel) for (op, ranks), of_panel in found.items()]
    return [panel for panel in made if any(s.spots or s.wrong for s in panel.series)]


def _panel(op: str, ranks: int, rows: list[Row]) -> Panel:
    traits = {row.point.id: _traits(row.point) for row in rows}
    names = dict.fromkeys(name for told in traits.values() for name in told)
    varying = [name for name in names if len({told.get(name) for told in traits.values()}) > 1]
    # A batch that follows the size is no trait of the series; one that was swept at a size is.
    places = {(_key(row.point, traits, varying), row.point.size_bytes) for row in rows}
    batches = {(_key(row.point, traits, varying), row.point.size_bytes, row.point.batch) for row in rows}
    if len(batches) > len(places):
        for row in rows:
            traits[row.point.id]["batch"] = f"batch {row.point.batch}"
        varying.append("batch")
    series = defaultdict(list)
    for row in rows:
        series[_key(row.point, traits, varying)].append(row)
    first = traits[rows[0].point.id]
    same = tuple(first[name] for name in first if name not in varying and first[name])
    groups = tuple(dict.fromkeys(row.point.group for row in rows))
    return Panel(op, ranks, same, groups, tuple(_series(key, of_series) for key, of_series in series.items()))


def _traits(point: Point) -> dict[str, str]:
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
    # Only plain values: a traffic matrix changes with the size, so it is no trait of a series.
    plain = {name: value for name, value in point.params.items() if isinstance(value, (str, int, float))}
    return words | {f"params.{name}": f"{name} {value}" for name, value in plain.items()}


def _key(point: Point, traits: dict, varying: list[str]) -> tuple:
    told = traits[point.id]
    words = tuple(filter(None, (told.get(name) or _unsaid(name) for name in varying)))
    return point.backend, point.group, point.in_place, words


def _unsaid(name: str) -> str:
    return {
        "algorithm": "library",
        "protocol": "default protocol",
        "over_ranks": "max over ranks",
        "in_place": "out of place",
    }.get(name, "")


def _series(key: tuple, rows: list[Row]) -> Series:
    by_point = defaultdict(list)
    for row in rows:
        if row.ok and row.time_us:
            by_point[row.point.id].append(row)
    spots = sorted((_spot(of_point) for of_point in by_point.values()), key=lambda spot: spot.point.size_bytes)
    good = {spot.point.size_bytes for spot in spots}
    wrong = tuple(row for row in rows if row.sample.status == "wrong" and row.time_us)
    gaps = frozenset(row.point.size_bytes for row in rows) - good
    return Series(*key, tuple(spots), wrong, gaps)


def _spot(rows: list[Row]) -> Spot:
    times = [row.time_us for row in rows]
    band = rows[0].interval_us if len(rows) == 1 else (min(times), max(times))
    return Spot(tuple(rows), float(np.median(times)), band)
