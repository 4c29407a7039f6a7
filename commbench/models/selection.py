"""Which form describes a series: tried on rank counts that it was not fitted to, never chosen by how well it fits.

Regimes (values of ranks per node) of one library share their form, since it is the library's algorithms that are looked
for, and each has its own parameters. For each of the last cuts through a regime's rank counts, all forms are fitted to
the smaller counts and held against the larger ones, up to four times as many ranks. A form's score is the mean, over
cuts and regimes, of its error over the least error there. With fewer than three rank counts there is nothing to hold
out, and the Bayesian information criterion decides.
"""

from dataclasses import dataclass

import numpy as np

from commbench.models.envelope import fit_minimum
from commbench.models.equations import STEPPED
from commbench.models.identify import separable
from commbench.models.model import Regime, times_us
from commbench.models.switches import switch_forms

PIECES_FIRST, PIECES_SECOND = 5, 6
CUTS = 3
HELD_OUT_UP_TO = 4  # times the largest rank count of the training
DOUBLING = {"all_reduce": ("tree", "recursive_doubling"), "all_gather": ("recursive_doubling",),
            "reduce_scatter": ("recursive_doubling",), "all_to_all": ("bruck",), "broadcast": ("tree", "binomial"),
            "reduce": ("tree", "binomial"), "gather": ("binomial",), "scatter": ("binomial",)}  # fmt: skip
ENVELOPES = ((0, 2), (0, 3), (1, 1), (2, 1), (3, 1))  # pieces of the first and of the second algorithm


@dataclass(frozen=True)
class HeldOut:
    """Rows that a fit had not seen, their log(measured / model), and their ranks over the largest of the training."""

    rows: object
    log_errors: np.ndarray
    factor: np.ndarray

    @property
    def mape(self) -> float:
        return float(np.mean(np.abs(np.expm1(-self.log_errors))))


def regime_of(table) -> Regime:
    """An empty regime for the rows of a table: all on one node, or all on several."""
    one_node = bool(np.all(table.nodes == 1))
    return Regime(() if one_node else tuple(sorted(set(table.per_node.tolist()))), one_node, "switch", ())


def forms(op: str, table, only=None) -> dict[tuple, Regime]:
    """The forms fitted to a table, or `only` that one: (choice, first algorithm, pieces, second, pieces) -> Regime.

    Forms for which the table has too few rows are not there.
    """
    second = STEPPED[op]
    parts = (second, separable(op, second, table.ranks, table.nodes, table.size_bytes)[0])
    empty, found = regime_of(table), {}
    for first in DOUBLING.get(op, ("",)):
        other = (first, separable(op, first, table.ranks, table.nodes, table.size_bytes)[0]) if first else parts
        most_first = PIECES_FIRST if first else 0
        if only is None or (only[0] == "switch" and only[1] in ("", first)):
            for (k, m), (pieces, split) in switch_forms(op, table, other, parts, most_first, PIECES_SECOND).items():
                form = "switch", first if k else "", k, second if m else "", m
                found[form] = _with(empty, "switch", pieces, split)
        for k, m in ENVELOPES:
            form = "minimum", first if k else "", k, second, m
            terms = k * len(other[1]) + m * len(parts[1])
            wanted = only == form if only else form not in found and (not k or first == DOUBLING[op][0])
            if wanted and bool(k) == bool(first) and len(table) >= 2 * terms:
                found[form] = _with(empty, "minimum", fit_minimum(op, table, [other] * k + [parts] * m), None)
    return found if only is None else {form: regime for form, regime in found.items() if form == only}


def _with(empty: Regime, choice: str, pieces, split) -> Regime:
    return Regime(empty.per_node, empty.one_node, choice, pieces, split)


def cuts(table) -> list[int]:
    """The largest rank count of each training: all but the smallest and the largest, and of these the last three."""
    return sorted(set(table.ranks.tolist()))[1:-1][-CUTS:]


def hold_out(op: str, regime: Regime, table, cut: int) -> HeldOut:
    """A regime fitted up to `cut` ranks, against the rows of up to four times as many."""
    known = np.full(len(table), True) if regime.one_node else np.isin(table.per_node, regime.per_node)
    test = table.select(known & (table.ranks > cut) & (table.ranks <= HELD_OUT_UP_TO * cut))
    return HeldOut(test, log_errors(op, regime, test), test.ranks / cut)


def log_errors(op: str, regime: Regime, table) -> np.ndarray:
    """log(measured / model) of each row."""
    return np.log(table.time_us / times_us(op, regime, table.ranks, table.nodes, table.size_bytes))


def choose(op: str, tables) -> tuple[tuple, list[list[HeldOut]]]:
    """The form for these tables (one per regime), and its held-out rows per table and cut."""
    tried: list[tuple[int, dict[tuple, HeldOut]]] = []
    for i, table in enumerate(tables):
        for cut in cuts(table):
            fits = forms(op, table.select(table.ranks <= cut))
            held = {form: hold_out(op, regime, table, cut) for form, regime in fits.items()}
            if held and len(next(iter(held.values())).factor):
                tried.append((i, held))
    if not tried:
        return _by_information(op, tables), [[] for _ in tables]
    ratios: dict[tuple, list[float]] = {}
    for _, held in tried:
        least = max(min(h.mape for h in held.values()), 1e-6)
        for form, h in held.items():
            ratios.setdefault(form, []).append(h.mape / least)
    common = {form: np.mean(r) for form, r in ratios.items() if 2 * len(r) >= len(tried)}
    best = min(common, key=common.get)
    return best, [[held[best] for j, held in tried if j == i and best in held] for i in range(len(tables))]


def _by_information(op: str, tables) -> tuple:
    """The form with the least BIC over all tables: n log(mean squared log error) + parameters and breaks * log n."""
    totals: dict[tuple, list[float]] = {}
    for table in tables:
        for form, regime in forms(op, table).items():
            if form[0] == "switch":
                free = sum(len(piece.names) + 1 for piece in regime.pieces)
                error = max(float(np.mean(log_errors(op, regime, table) ** 2)), 1e-8)
                totals.setdefault(form, []).append(len(table) * np.log(error) + free * np.log(len(table)))
    common = {form: sum(values) for form, values in totals.items() if len(values) == len(tables)}
    return min(common or {form: sum(v) for form, v in totals.items()}, key=(common or totals).get, default=())
