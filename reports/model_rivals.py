"""Which of several algorithms is the fastest over size and ranks: on what was measured, and by the models beyond."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from commbench.models.contest import SeriesCrossover, contender, contests
from commbench.models.crossover import Crossing
from commbench.models.model import piece_of
from commbench.models.model_file import SeriesModel
from commbench.models.prediction import regime_for
from commbench.models.table import Table
from commbench.reports.model_worlds import Told, World, by_equations

MEASURED, UNDECIDED, BEYOND = "measured", "within error", "beyond"
FACTORS = (2, 4, 8)  # times the largest measured ranks
_PER_OCTAVE = 16


@dataclass(frozen=True)
class Rivals:
    """Series of one operation that differ in the algorithm (and protocol) only, by the names that --algorithm takes.

    name: what they have in common. found: every pair of them on every world size that both were measured on."""

    op: str
    name: str
    backend: str
    worlds: dict[str, list[World]]
    series: dict[str, SeriesModel]
    found: list[SeriesCrossover]


@dataclass(frozen=True)
class Stretch:
    """Sizes from low to high on one world size, on which `who` is the fastest. kind: MEASURED, UNDECIDED (as the models
    say, but the measurements do not tell the difference) or BEYOND what was measured."""

    row: str
    low: float
    high: float
    who: str
    kind: str


def rivals_of(fitted: Sequence[tuple[SeriesModel, Table, list[World]]]) -> list[Rivals]:
    """All groups of two or more series that were measured alike but for the algorithm."""
    alike = {}
    for one in fitted:
        label = {k: v for k, v in one[1].label.items() if k not in ("algorithm", "protocol")}
        alike.setdefault(tuple(label.items()), []).append(one)
    return [_group(dict(key), group) for key, group in alike.items() if len(group) > 1]


def _group(label: dict[str, str], group) -> Rivals:
    tables = [table for _, table, _ in group]
    names = [contender(table.label) for table in tables]
    return Rivals(
        op=label["op"],
        name=replace(tables[0], label=label).name,
        backend=label.get("backend", ""),
        worlds=dict(zip(names, (worlds for *_, worlds in group))),
        series=dict(zip(names, (series for series, *_ in group))),
        found=contests(tables),
    )


def fastest(rivals: Rivals) -> list[Stretch]:
    """The fastest of the rivals on every world size that several of them tell the time of."""
    every = [w for worlds in rivals.worlds.values() for w in worlds]
    grid = _grid(every)
    found = []
    for ranks, nodes in _places(every):
        told = {name: _told(rivals, name, ranks, nodes) for name in rivals.worlds}
        told = {name: one for name, one in told.items() if one}
        if len(told) < 2:
            continue
        names = list(told)
        first = np.argmin([of_sizes(grid)[0] for of_sizes, _ in told.values()], axis=0)
        measured = np.all([_within(world, grid) for _, world in told.values()], axis=0)
        decided = _decided(rivals, ranks, nodes, names, first, grid)
        kind = np.where(~measured, BEYOND, np.where(decided, MEASURED, UNDECIDED))
        found += _stretches(f"{ranks} × {nodes}", grid, [names[i] for i in first], kind)
    return found


def chosen(series: SeriesModel, worlds: Sequence[World]) -> list[Stretch]:
    """The algorithm that the equations of one series take, where they have several for its regimes."""
    known = [world for world in worlds if world.by_equations]
    regimes = series.family.regimes if series.family else ()
    if not known or len({piece.algorithm for regime in regimes for piece in regime.pieces}) < 2:
        return []
    grid = _grid(known)
    found = []
    for ranks, nodes in _places(known):
        if by_equations(series.family, ranks, nodes) is None:
            continue
        regime = regime_for(series.family, ranks, nodes)
        many = np.full(len(grid), ranks), np.full(len(grid), nodes)
        who = [regime.pieces[i].algorithm for i in piece_of(series.family.op, regime, *many, grid)]
        world = next((w for w in known if (w.ranks, w.nodes) == (ranks, nodes)), None)
        kind = np.where(_within(world, grid), MEASURED, BEYOND)
        found += _stretches(f"{ranks} × {nodes}", grid, who, kind)
    return found


def crossings(rivals: Rivals, drawn: Sequence[Stretch]) -> Iterator[tuple[str, Crossing]]:
    """(row, crossing) of the pairs that are the two fastest where they cross."""
    for pair in rivals.found:
        row = f"{pair.ranks} × {pair.nodes}"
        for crossing in pair.found.crossings:
            low, high = crossing.low_bytes or crossing.size_bytes, crossing.high_bytes or crossing.size_bytes
            near = {s.who for s in drawn if s.row == row and s.low / 1.1 <= high and low <= s.high * 1.1}
            if {crossing.below, crossing.above} <= near:
                yield row, crossing


def _grid(worlds: Sequence[World]) -> np.ndarray:
    low = min(world.rows.size_bytes[0] for world in worlds)
    high = max(world.rows.size_bytes[-1] for world in worlds)
    return np.geomspace(low, high, max(2, int(_PER_OCTAVE * np.log2(high / low)) + 1))


def _places(worlds: Sequence[World]) -> list[tuple[int, int]]:
    """(ranks, nodes): those measured, and a few times the largest of each placement on several nodes; by placement."""
    places = {(world.ranks, world.nodes) for world in worlds}
    for placement in {world.placement for world in worlds if world.nodes > 1}:
        last = max((world.ranks, world.nodes) for world in worlds if world.placement == placement)
        places |= {(factor * last[0], factor * last[1]) for factor in FACTORS}
    return sorted(places, key=lambda place: (place[1] > 1, place[0] // place[1], place[0]))


def _told(rivals: Rivals, name: str, ranks: int, nodes: int) -> tuple[Told, World | None] | None:
    world = next((w for w in rivals.worlds[name] if (w.ranks, w.nodes) == (ranks, nodes)), None)
    if world and world.told:
        return world.told, world
    family = rivals.series[name].family
    told = family and by_equations(family, ranks, nodes)
    return (told, None) if told else None


def _within(world: World | None, grid: np.ndarray) -> np.ndarray:
    if world is None:
        return np.zeros(len(grid), bool)
    return (grid >= world.rows.size_bytes[0]) & (grid <= world.rows.size_bytes[-1])


def _decided(rivals: Rivals, ranks: int, nodes: int, names: list[str], first: np.ndarray, grid: np.ndarray):
    """Where the fastest is known to be faster than each of the others."""
    sure = np.ones((len(names), len(grid)), bool)  # whether a rival is beaten, or is itself the fastest
    for i, name in enumerate(names):
        for j in set(first.tolist()) - {i}:
            pair = next((p for p in rivals.found if set(p.names) == {name, names[j]}
                         and (p.ranks, p.nodes) == (ranks, nodes)), None)  # fmt: skip
            regions = pair.found.regions if pair else ()
            won = np.zeros(len(grid), bool)
            for low, high, who in regions:
                won |= (grid >= low) & (grid <= high) & (who == names[j])
            sure[i] &= won | (first != j)
    return np.all(sure, axis=0)


def _stretches(row: str, grid: np.ndarray, who: Sequence[str], kind: Sequence[str]) -> Iterator[Stretch]:
    """Neighbouring sizes that have the same said of them, as one."""
    for (name, what), places in groupby(range(len(grid)), key=lambda i: (who[i], str(kind[i]))):
        places = list(places)
        yield Stretch(row, float(grid[places[0]]), float(grid[min(places[-1] + 1, len(grid) - 1)]), name, what)
