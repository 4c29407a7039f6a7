"""Which algorithm of one operation is faster where, on each world size that several of them were measured on."""

from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from commbench.models.crossover import Crossing, Crossover, crossover
from commbench.models.pieces import fit_curves, predict
from commbench.models.table import Table
from commbench.units import format_size

SIZES_LEAST = 3
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
        crossings = tuple(Crossing(*_sizes(crossing[:3]), *map(str, crossing[3:])) for crossing in found["crossings"])
        regions = tuple((*_sizes(region[:2]), region[2] and str(region[2])) for region in found["regions"])
        first, second = map(str, data["names"])
        told = Crossover(str(found["verdict"]), crossings, regions, str(found["label"]))
        whole = int(data["ranks"]), int(data["nodes"])
        return SeriesCrossover(str(data["op"]), str(data["where"]), (first, second), *whole, told)


def _sizes(values):
    return [None if value is None else float(value) for value in values]


def contests(tables: list[Table]) -> list[SeriesCrossover]:
    """Every pair of algorithms (or protocols) that were measured alike, on every world size that both have."""
    alike: dict[tuple, list[Table]] = {}
    for table in tables:
        key = tuple((k, v) for k, v in table.label.items() if k not in _CONTENDERS)
        alike.setdefault(key, []).append(table)
    found, fitted = [], {}
    for key, group in alike.items():
        where = ", ".join(v for k, v in key if k in ("dataset", "gpu", "backend", "dtype", "timing"))
        for first, second in combinations(group, 2):
            for ranks, nodes in _common_worlds(first, second):
                told = _contest(first, second, ranks, nodes, fitted)
                if told is not None:
                    found.append(SeriesCrossover(first.label["op"], where, *told))
    return found


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
