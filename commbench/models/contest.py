"""Which algorithm of one operation is faster where, on each world size that several of them were measured on."""

from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from commbench.models.checked import count, each, maybe, number, word
from commbench.models.crossover import Crossing, Crossover, crossover
from commbench.models.pieces import fit_curves, predict
from commbench.models.table import Table
from commbench.units import format_size

SIZES_LEAST = 3
RIVALS_MOST, RIVALS_KEPT = 12, 6  # pairs grow with the square of the rivals, and nobody reads a thousand of them
_CONTENDERS = ("algorithm", "protocol")


@dataclass(frozen=True)
class SeriesCrossover:
    """Two algorithms of `op` on one world size. `where`: what both have in common; found: who is faster where."""

    op: str
    where: str
    names: tuple[str, str]
    ranks: int
    nodes: int
    found: Crossover

    @property
    def sentence(self) -> str:
        """ "ring always", "tree up to 64K (48K to 80K), ring from there on", or "not determined"."""
        if not self.found.crossings:
            return self.found.verdict
        parts = []
        for crossing in self.found.crossings:
            size = format_size(round(crossing.size_bytes))
            span = "no interval"
            if crossing.low_bytes is not None:
                span = f"{format_size(round(crossing.low_bytes))} to {format_size(round(crossing.high_bytes))}"
            parts.append(f"{crossing.below} up to {size} ({span})")
        return ", ".join([*parts, f"{self.found.crossings[-1].above} from there on"])

    @staticmethod
    def from_json(data: dict) -> "SeriesCrossover":
        """Of asdict's dictionary; KeyError, TypeError or ValueError for another one."""
        found = data["found"]
        first, second = each(word, data["names"])
        told = Crossover(
            word(found["verdict"]), each(_crossing, found["crossings"]), each(_region, found["regions"]),
            word(found["label"]),
        )  # fmt: skip
        whole = count(data["ranks"], 1), count(data["nodes"], 1)
        return SeriesCrossover(word(data["op"]), word(data["where"]), (first, second), *whole, told)


def _crossing(data) -> Crossing:
    size, low, high, below, above = data
    if (low is None) != (high is None):
        raise ValueError("an interval has two ends")
    return Crossing(number(size), maybe(low), maybe(high), word(below), word(above))


def _region(data) -> tuple[float, float, str | None]:
    low, high, who = data
    return number(low), number(high), None if who is None else word(who)


def contests(tables: list[Table]) -> list[SeriesCrossover]:
    """Every pair of algorithms (or protocols) that were measured alike, on every world size that both have; where many
    were, the pairs of the few that are fastest anywhere (see not_compared)."""
    found, fitted = [], {}
    for key, group in _alike(tables):
        where = ", ".join(v for k, v in key if k in ("dataset", "gpu", "backend", "dtype", "timing"))
        kept = {world: _fastest(rivals, world) for world, rivals in _rivals(group).items()}
        for first, second in _pairs(kept):
            for ranks, nodes in _common_worlds(first, second):
                if not {id(first), id(second)} <= {id(t) for t in kept[ranks, nodes]}:
                    continue
                told = _contest(first, second, ranks, nodes, fitted)
                if told is not None:
                    found.append(SeriesCrossover(first.label["op"], where, *told))
    return found


def not_compared(tables: list[Table]) -> list[str]:
    """A sentence for each world size on which contests() leaves rivals out."""
    return [
        f"{group[0].label['op']} on {ranks} x {nodes}: of {len(rivals)} rivals only the {RIVALS_KEPT} that are fastest "
        "anywhere are compared"
        for _, group in _alike(tables)
        for (ranks, nodes), rivals in _rivals(group).items()
        if len(rivals) > RIVALS_MOST
    ]


def _alike(tables: list[Table]):
    """The series that differ by algorithm and protocol alone: (what they have in common, they) of each kind."""
    alike: dict[tuple, list[Table]] = {}
    for table in tables:
        key = tuple((k, v) for k, v in table.label.items() if k not in _CONTENDERS)
        alike.setdefault(key, []).append(table)
    return alike.items()


def _rivals(group: list[Table]) -> dict[tuple[int, int], list[Table]]:
    """The series measured on each (ranks, nodes)."""
    rivals: dict[tuple[int, int], list[Table]] = {}
    for table in group:
        for world in sorted(set(zip(table.ranks.tolist(), table.nodes.tolist()))):
            rivals.setdefault(world, []).append(table)
    return rivals


def _fastest(rivals: list[Table], world: tuple[int, int]) -> list[Table]:
    """All of them, or of many the few that come nearest to the fastest time at any size (then: at all of theirs)."""
    if len(rivals) <= RIVALS_MOST:
        return rivals
    times = []
    for table in rivals:
        own = table.select((table.ranks == world[0]) & (table.nodes == world[1])).medians()
        times.append(dict(zip(own.size_bytes.tolist(), own.time_us.tolist())))
    best: dict[float, float] = {}
    for of_one in times:
        for size, time_us in of_one.items():
            best[size] = min(time_us, best.get(size, np.inf))
    slower = [[time_us / best[size] for size, time_us in of_one.items()] for of_one in times]
    order = sorted(range(len(rivals)), key=lambda i: (min(slower[i]), float(np.mean(slower[i]))))
    return [rivals[i] for i in sorted(order[:RIVALS_KEPT])]


def _pairs(kept: dict[tuple[int, int], list[Table]]):
    """Every pair that is compared on some world size, once."""
    pairs = {(id(a), id(b)): (a, b) for few in kept.values() for a, b in combinations(few, 2)}
    return pairs.values()


def contender(label: dict[str, str]) -> str:
    """A series among those of its operation, as --algorithm takes it: "ring", "tree/ll", "own:ring"."""
    protocol = label.get("protocol", "default")
    return label.get("algorithm", "library") + (f"/{protocol}" if protocol != "default" else "")


def _common_worlds(first: Table, second: Table) -> list[tuple[int, int]]:
    worlds = [set(zip(t.ranks.tolist(), t.nodes.tolist())) for t in (first, second)]
    return sorted(worlds[0] & worlds[1])


def _contest(first: Table, second: Table, ranks: int, nodes: int, fitted: dict):
    own = [t.select((t.ranks == ranks) & (t.nodes == nodes)) for t in (first, second)]
    low = max(t.size_bytes.min() for t in own)
    high = min(t.size_bytes.max() for t in own)
    if low >= high or min(len(set(t.size_bytes)) for t in own) < SIZES_LEAST:
        return None
    names = contender(first.label), contender(second.label)
    launches = tuple(sorted(set(own[0].launch.tolist()) & set(own[1].launch.tolist())))
    fits, left_out = [], []
    for series, table in zip((first, second), own):
        key = id(series), ranks, nodes, launches
        if key not in fitted:
            fitted[key] = _fits(table, launches)
        fits.append(fitted[key][0])
        left_out.append(fitted[key][1])
    return names, ranks, nodes, crossover(*fits, low, high, names, left_out=tuple(left_out))


def _fits(table: Table, launches: tuple[int, ...]):
    """A time(size) for each launch; for a single one also those with one size left out each time."""
    if len(launches) > 1:
        return _times([table.select(table.launch == launch) for launch in launches]), ()
    middle = table.medians()
    return _times([middle]), _times([middle.select(np.arange(len(middle)) != i) for i in range(len(middle))])


def _times(tables: list[Table]):
    return [partial(predict, pieces) for pieces in fit_curves([(t.size_bytes, t.time_us) for t in tables])]
