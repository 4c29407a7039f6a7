"""One algorithm's equation fitted to times of that algorithm, with the overlap of its phases where it has two."""

from dataclasses import replace

import numpy as np

from commbench.models.equations import phases
from commbench.models.huber import fit_terms
from commbench.models.identify import columns_of, separable
from commbench.models.model import Piece, Regime, columns_for
from commbench.models.selection import regime_of

OVERLAPS = np.linspace(0, 1, 21)
TURNS = 8


def by_equation(op: str, rows, algorithm: str, protocol: str = "") -> Regime:
    """The equation of `algorithm` for these rows; for phases that overlap, with the share w that fits best."""
    names, _ = separable(op, algorithm, rows.ranks, rows.nodes, rows.size_bytes)
    plain = algorithm.removeprefix("own:").lower()
    regime = replace(regime_of(rows), protocol=protocol, choice="minimum")
    kinds = set(phases(op, plain, names))
    if not {"intra", "inter"} <= kinds:
        columns = columns_of(op, plain, names, rows.ranks, rows.nodes, rows.size_bytes, protocol)
        return replace(regime, pieces=(_piece(plain, names, fit_terms(columns, rows.time_us).values),))
    tried = [
        _overlapped(op, replace(regime, choice="overlap", overlap=float(w)), rows, plain, names, start)
        for w in OVERLAPS
        for start in ("intra", "inter")
    ]
    return min(tried, key=lambda found: found[0])[1]


def overlap_interval(op: str, regime: Regime, rows) -> tuple[float, float]:
    """The overlaps that fit nearly as well: n log(loss / least loss) below 3.84, the 95 % point of chi squared."""
    piece = regime.pieces[0]
    losses = []
    for w in OVERLAPS:
        tried = replace(regime, overlap=float(w))
        losses.append(min(_overlapped(op, tried, rows, piece.algorithm, piece.names, s)[0] for s in ("intra", "inter")))
    near = OVERLAPS[len(rows) * np.log(np.array(losses) / min(losses)) < 3.84]
    step = OVERLAPS[1]  # the grid tells no more than its step
    return max(0.0, float(near.min() - step)), min(1.0, float(near.max() + step))


def _overlapped(op, regime, rows, algorithm, names, longer):
    """(loss, regime) with the parameters for a given overlap: which phase is the longer one at each row, and the
    parameters, in turns until the first stays."""
    kinds = np.array(phases(op, algorithm, names))
    columns = columns_of(op, algorithm, names, rows.ranks, rows.nodes, rows.size_bytes, regime.protocol)
    scaled = np.where(np.isin(kinds, ("sum", longer)), columns, (1 - regime.overlap) * columns)
    before = None
    for _ in range(TURNS):
        fit = fit_terms(scaled, rows.time_us)
        piece = _piece(algorithm, names, fit.values)
        scaled = columns_for(op, regime, piece, fit.values, rows.ranks, rows.nodes, rows.size_bytes)
        if before is not None and np.array_equal(scaled, before):
            break
        before = scaled
    residual = np.abs(np.log(rows.time_us / (scaled @ fit.values)))
    return float(np.sum(np.minimum(residual**2, 0.1 * residual))) + 1e-12, replace(regime, pieces=(piece,))


def _piece(algorithm, names, values) -> Piece:
    return Piece(algorithm, names, tuple(float(v) for v in values))
