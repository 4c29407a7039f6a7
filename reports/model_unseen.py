"""Points that a fit had not seen, predicted: rank counts above those of the training, the largest sizes of a curve.

The model file keeps the errors only, so the smaller fits are made again here, as the fit itself made them.
"""

from dataclasses import dataclass

import numpy as np

from commbench.models.curve import HELD_OUT, SIZES_LEAST
from commbench.models.equations import STEPPED
from commbench.models.forced import by_equation
from commbench.models.model import Regime
from commbench.models.model_file import SeriesModel
from commbench.models.pieces import fit_pieces, predict, repeat_noise
from commbench.models.selection import cuts, forms, hold_out
from commbench.models.table import Table
from commbench.reports.model_worlds import World
from commbench.units import format_size


@dataclass(frozen=True)
class Unseen:
    """One held-out point: measured and predicted time, and what the prediction had seen, at the largest `largest`."""

    ranks: int
    nodes: int
    size_bytes: float
    time_us: float
    told_us: float
    series: str
    seen: str
    largest: float

    @property
    def apart(self) -> float:
        """measured / predicted - 1, in percent."""
        return 100 * (self.time_us / self.told_us - 1)


def unseen_ranks(series: SeriesModel, table: Table) -> list[Unseen]:
    """Every regime of the equations fitted to its smaller rank counts (as selection.choose does it), and what it then
    says of up to four times as many. `table`: without outpaced points."""
    found = []
    for regime in series.family.regimes if series.family else ():
        rows = _rows(regime, table).medians()
        for cut in cuts(rows):
            trained = _refitted(series.family.op, regime, rows.select(rows.ranks <= cut))
            if trained is None:
                continue
            held = hold_out(series.family.op, trained, rows, cut)
            told = held.rows.time_us / np.exp(held.log_errors)
            found += _points(held.rows, told, series.name, f"up to {cut} ranks", cut)
    return found


def unseen_sizes(series: SeriesModel, worlds: list[World]) -> list[Unseen]:
    """Every curve fitted without its largest sizes (as curve.fit_curve does it), and what it then says of them."""
    found = []
    for world in worlds:
        rows = world.rows
        if world.curve is None or len(rows) < HELD_OUT + SIZES_LEAST + 1:
            continue
        noise = None if rows.second_us is None else repeat_noise(rows.time_us, rows.second_us)
        seen, unseen = rows.select(slice(None, -HELD_OUT)), rows.select(slice(-HELD_OUT, None))
        told = predict(fit_pieces(seen.size_bytes, seen.time_us, noise), unseen.size_bytes)
        largest = float(seen.size_bytes[-1])
        found += _points(unseen, told, series.name, f"sizes up to {format_size(int(largest))}", largest)
    return found


def _points(rows: Table, told_us: np.ndarray, *seen) -> list[Unseen]:
    columns = (rows.ranks, rows.nodes, rows.size_bytes, rows.time_us, told_us)
    return [Unseen(*point, *seen) for point in zip(*(column.tolist() for column in columns))]


def _rows(regime: Regime, table: Table) -> Table:
    if regime.one_node:
        return table.select((table.nodes == 1) & np.isin(table.ranks, regime.ranks))
    return table.select((table.nodes > 1) & np.isin(table.per_node, regime.per_node))


def _refitted(op: str, regime: Regime, rows: Table) -> Regime | None:
    """The form of a regime fitted to other rows; None where they are too few."""
    algorithms = [piece.algorithm for piece in regime.pieces]
    if regime.chosen_by.startswith("given"):
        return by_equation(op, rows, algorithms[0], regime.protocol)
    second = STEPPED[op]
    first = next((name for name in algorithms if name != second), "")
    stepped = algorithms.count(second)
    form = regime.choice, first, len(algorithms) - stepped, second if stepped or not first else "", stepped
    return forms(op, rows, form).get(form)
