"""What the page of a fit shows of one series: its measurements on each world size beside what the models say there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from commbench.errors import UsageError
from commbench.models.curve import Curve
from commbench.models.launches import WITHIN
from commbench.models.model import Model
from commbench.models.model_file import SeriesModel
from commbench.models.prediction import predict_many, regime_for
from commbench.models.table import Table, without_outpaced
from commbench.reports.model_marks import ramp

PANEL_MOST = 8  # world sizes in one figure
Told = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class World:
    """One world size. rows: the medians fitted to; low_us, high_us: their lowest and highest launch; outpaced: medians
    that were left out. by_curve, by_equations: time_us, low_us and high_us of sizes, or None where there is no model;
    curve_us, equations_us: these three at the sizes of `rows`."""

    ranks: int
    nodes: int
    colour: str
    rows: Table
    low_us: np.ndarray
    high_us: np.ndarray
    launches: int
    outpaced: Table
    curve: Curve | None
    by_curve: Told | None
    by_equations: Told | None
    curve_us: np.ndarray | None
    equations_us: np.ndarray | None

    @property
    def name(self) -> str:
        return f"{self.ranks} × {self.nodes}"

    @property
    def placement(self) -> str:
        return "one node" if self.nodes == 1 else f"{self.ranks // self.nodes} per node"

    @property
    def told(self) -> Told | None:
        """The model that a prediction on this world size comes from."""
        return self.by_curve or self.by_equations


def worlds_of(series: SeriesModel, table: Table) -> list[World]:
    """The world sizes of a fitted series, ascending, each in its colour."""
    used, every = without_outpaced(table), table.medians()
    middle = used.medians()
    kept = set(zip(middle.ranks, middle.nodes, middle.size_bytes))
    left = every.select([point not in kept for point in zip(every.ranks, every.nodes, every.size_bytes)])
    places = sorted(set(zip(middle.ranks.tolist(), middle.nodes.tolist())))
    found = []
    for (ranks, nodes), colour in zip(places, ramp(len(places))):
        own, rows, outpaced = (t.select((t.ranks == ranks) & (t.nodes == nodes)) for t in (used, middle, left))
        times = [own.time_us[own.size_bytes == size] for size in rows.size_bytes]
        curve = next((c for c in series.curves if (c.ranks, c.nodes) == (ranks, nodes)), None)
        told = curve and by_curve(curve), series.family and by_equations(series.family, ranks, nodes)
        found.append(World(
            ranks, nodes, colour, rows, np.array([t.min() for t in times]), np.array([t.max() for t in times]),
            own.launches, outpaced, curve, *told, *(one and np.array(one(rows.size_bytes)) for one in told),
        ))  # fmt: skip
    return found


def by_curve(curve: Curve) -> Told:
    return lambda size_bytes: (curve.time_us(size_bytes), *curve.interval_us(size_bytes))


def by_equations(family: Model, ranks: int, nodes: int) -> Told | None:
    """What the equations say on so many ranks and nodes, or None where they say nothing."""
    try:
        regime = regime_for(family, ranks, nodes)
    except UsageError:
        return None
    return lambda sizes: predict_many(family, regime, np.full(len(sizes), ranks), np.full(len(sizes), nodes), sizes)


def in_panels(worlds: Sequence[World]) -> list[tuple[str, list[World]]]:
    """The worlds of each figure and its name: all in one, or where they are many those of one placement."""
    if len(worlds) <= PANEL_MOST:
        return [("", list(worlds))]
    placements = sorted({(w.nodes > 1, w.ranks // w.nodes if w.nodes > 1 else 0, w.placement) for w in worlds})
    return [(name, _recoloured([w for w in worlds if w.placement == name])) for *_, name in placements]


def _recoloured(worlds: list[World]) -> list[World]:
    return [replace(world, colour=colour) for world, colour in zip(worlds, ramp(len(worlds)))]


def band_name(launches: Sequence[int]) -> str:
    """What a band rests on: one launch knows nothing of the next."""
    if max(launches) == 1:
        return f"95 % band, {WITHIN}"
    spread = f"{min(launches)} to {max(launches)}" if min(launches) < max(launches) else str(max(launches))
    return f"95 % band of one more launch, from {spread} launches"
