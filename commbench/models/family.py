"""Fitting one operation: the library's own choice among algorithms and protocols, or one algorithm that was forced."""

import numpy as np

from commbench.errors import MeasureError, UsageError
from commbench.models.equations import STEPPED
from commbench.models.figures import finished, parameters
from commbench.models.forced import by_equation
from commbench.models.model import Model, Parameter, Regime
from commbench.models.selection import HeldOut, choose, cuts, forms, hold_out
from commbench.models.switches import refitted

SIZES_LEAST = 3
ROWS_LEAST, ROWS_OF_SEVERAL = 4, 6  # twice the parameters of one rank count, and of several
HOLDS = 0.25  # a form that is further off than this, on average, describes something else


def fit_family(table) -> Model:
    """The model of a series whose algorithms the library chose: per regime the form that predicts held-out rank counts
    best, with its errors and replicates; and the machine's latencies as far as the rows tell them.

    Raises UsageError for an operation that has no model, MeasureError for too few points.
    """
    op = table.label["op"]
    if op not in STEPPED:
        raise UsageError(f"there is no model over ranks for {op}; there is one for {', '.join(STEPPED)}")
    apart, notes = _parts(table, per_node_apart=True)
    regimes, told = [], []
    inside = [part for part in apart if part.nodes[0] == 1]
    if inside:
        regimes, told = _one_node(op, inside[0])
    several = [part for part in apart if part.nodes[0] > 1]
    if several:
        fitted, form = _alike(op, several)
        regimes += fitted
        together = table.select(table.nodes > 1)
        told += _told(op, finished(op, _fitted(op, together.medians(), form), together, [], ""), together)
    return Model(op, dict(table.label), tuple(regimes), tuple(told), tuple(notes))


def _alike(op: str, parts, alone: str = "") -> tuple[list[Regime], tuple]:
    """The regimes of these parts in the one form that predicts best in all of them, and that form. `alone`: why no
    rank count was held out, where the parts are single ones of many."""
    merged = [part.medians() for part in parts]
    form, held = choose(op, merged)
    every = [h for of_table in held for h in of_table]
    how = alone if alone and not every else _how(every, merged)
    fits = [_fitted(op, rows, form) for rows in merged]
    return [finished(op, *of_part, how) for of_part in zip(fits, parts, [h or every for h in held])], form


def _one_node(op: str, part):
    """One regime for a node's rank counts, and its parameters; each rank count by itself where there are fewer than
    three, or where no form holds for all of them (two GPUs of a node may have other links than four)."""
    counts = sorted(set(part.ranks.tolist()))
    if len(counts) > 2:
        fitted, _ = _alike(op, [part])
        if (fitted[0].holdout_mape or fitted[0].mape) <= HOLDS:
            return fitted, _told(op, fitted[0], part)
    parts = [part.select(part.ranks == count) for count in counts]
    parts = [rows for rows in parts if rows.points >= ROWS_LEAST] or [part]
    alone = f"BIC: no form holds for all {len(counts)} rank counts, so each by itself" if len(counts) > 2 else ""
    fitted, _ = _alike(op, parts, alone)
    return fitted, [p for regime, rows in zip(fitted, parts) for p in _told(op, regime, rows)]


def _told(op: str, regime: Regime, table) -> list[Parameter]:
    """The parameters of what the library chose; none with one rank count, where every algorithm is a line in the size
    and so fits alike."""
    if len(regime.ranks) > 1:
        return parameters(op, regime, table)
    note = (
        f"not determined: on {regime.ranks[0]} ranks alone every algorithm fits, so its steps and their cost are not "
        "known; the curve of that world size has its latency and its cost per byte of the buffer"
    )
    return [Parameter("algorithm", None, note=note, where=regime.name if regime.one_node else "several nodes")]


def fit_equation(table, op: str, algorithm: str, protocol: str = "") -> Model:
    """The model of a series measured with `algorithm` throughout (forced, or a schedule of our own): its equation, with
    one set of parameters for one node and one for several nodes, whose bytes have their own beta per ranks per node.

    Raises UsageError for an algorithm without an equation, MeasureError for too few points.
    """
    parts, notes = _parts(table, per_node_apart=False)
    regimes, told = [], []
    for part in parts:
        rows = part.medians()
        held: list[HeldOut] = []
        for cut in cuts(rows):
            trained = by_equation(op, rows.select(rows.ranks <= cut), algorithm, protocol)
            seen = hold_out(op, trained, rows, cut)
            held += [seen] if len(seen.factor) else []
        regime = finished(op, by_equation(op, rows, algorithm, protocol), part, held, f"given: {algorithm}")
        regimes.append(regime)
        told += parameters(op, regime, part)
    return Model(op, dict(table.label), tuple(regimes), tuple(told), tuple(notes))


def _parts(table, per_node_apart: bool):
    """The rows of each regime, one node first, and sentences on rows that no regime takes."""
    if not len(table) or not (np.all(np.isfinite(table.time_us)) and np.all(table.time_us > 0)):
        raise UsageError("a fit needs times above 0 us; leave out the rows that have none")
    if not np.all(table.size_bytes > 0):
        raise UsageError("a fit needs sizes above 0 bytes; leave out the rows of size 0")
    kinds = np.where(table.nodes == 1, 0, table.per_node if per_node_apart else 1)
    parts, notes = [], []
    for kind in np.unique(kinds):
        part = table.select((kinds == kind) & (table.ranks > 1))
        sizes, points = len(set(part.size_bytes.tolist())), part.points if len(part) else 0
        wanted = ROWS_LEAST if len(set(part.ranks.tolist())) == 1 else ROWS_OF_SEVERAL
        if sizes >= SIZES_LEAST and points >= wanted:
            parts.append(part)
            continue
        where = "one node" if kind == 0 else f"{kind} ranks per node" if per_node_apart else "several nodes"
        notes.append(
            f"{where}: not fitted, {points} points at {sizes} sizes of 2 or more ranks; a fit needs {wanted} "
            f"points at {SIZES_LEAST} sizes"
        )
    if not parts:
        raise MeasureError("; ".join(notes))
    return parts, notes


def _fitted(op: str, rows, form) -> Regime:
    """A form fitted to a regime's rows; with too few rows for it, the same algorithms in the most pieces they allow, or
    what form there is."""
    found = forms(op, rows, form).get(form)
    if found is None:
        every = forms(op, rows)
        if not every:
            raise MeasureError(
                f"{len(rows)} points are too few for {op} on these ranks; measure at least {SIZES_LEAST + 1} sizes"
            )
        alike = [f for f in every if f[0] == form[0] and {f[1], f[3]} <= {form[1], form[3], ""}]
        found = every[max(alike or every, key=lambda f: (f[2] <= form[2] and f[4] <= form[4], f[2] + f[4]))]
    return refitted(op, found, rows)


def _how(seen, merged) -> str:
    if not seen:
        most = max(len(set(rows.ranks.tolist())) for rows in merged)
        few = "fewer than three rank counts" if most < 3 else f"too few points on the smaller of {most} rank counts"
        return f"BIC: with {few} none can be held out"
    return f"hold-out over rank counts: {len(seen)} cuts, {sum(len(h.factor) for h in seen)} points unseen"
