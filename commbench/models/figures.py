"""The figures beside a fit: its errors, the spread between launches, and the parameters as they are told.

Intervals of parameters are t-intervals over the fits of single launches where there are three or more launches, since
launches differ by more than samples within one do; otherwise the jackknife over rank counts (or sizes), which knows
nothing of other launches and says so.
"""

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from commbench.models.forced import overlap_interval
from commbench.models.identify import CONDITION_MOST, condition_number, separable, weak_terms
from commbench.models.model import Parameter, Regime, columns_for, piece_of, values_of
from commbench.models.selection import log_errors
from commbench.models.switches import left_one_out, refitted

SHARE_LEAST = 0.05  # a term that is never more than this share of the time is not determined by it
LAUNCHES_LEAST = 3
DRAWN = 10


def finished(op: str, regime: Regime, table, held, chosen_by: str) -> Regime:
    """A regime with what was measured, its errors in the fit and held out, and its replicates.

    `table` has all launches."""
    rows = table.medians()
    residual = log_errors(op, regime, rows)
    owner = piece_of(op, regime, rows.ranks, rows.nodes, rows.size_bytes)
    free = sum(len(piece.names) for piece in regime.pieces)
    spare = np.sqrt(len(rows) / max(1, len(rows) - free))  # residuals are smaller than errors by what was fitted
    figures = dict(
        ranks=tuple(sorted(set(rows.ranks.tolist()))),
        size_bytes=(float(rows.size_bytes.min()), float(rows.size_bytes.max())),
        points=len(rows),
        launches=len(set(table.launch.tolist())),
        chosen_by=chosen_by,
        mape=float(np.mean(np.abs(np.expm1(-residual)))),
        residual_log_95=discrepancy(owner, residual * spare, len(regime.pieces)),
        launch_sd_log=launch_sd_log(table),
    )
    if held:
        errors = np.concatenate([h.log_errors for h in held])
        owners = [piece_of(op, regime, h.rows.ranks, h.rows.nodes, h.rows.size_bytes) for h in held]
        figures |= dict(
            holdout_mape=float(np.mean(np.abs(np.expm1(-errors)))),
            holdout_log_95=discrepancy(np.concatenate(owners), errors, len(regime.pieces)),
            holdout_factor=float(max(h.factor.max() for h in held)),
        )
    return left_one_out(op, replace(regime, **figures), rows)


def discrepancy(owner, log_errors, pieces: int) -> tuple[float, ...]:
    """Per piece, the bound that 95 % of errors stay below: the root mean square of its own errors, drawn towards that
    of all as if by ten more of them, times the factor that makes the bounds hold for 95 % of all rows."""
    square = np.mean(log_errors**2)
    count = np.bincount(owner, minlength=pieces)
    own = np.sqrt((np.bincount(owner, log_errors**2, minlength=pieces) + DRAWN * square) / (count + DRAWN))
    own = np.maximum(own, 1e-9)
    return tuple((own * np.quantile(np.abs(log_errors) / own[owner], 0.95)).tolist())


def launch_sd_log(table) -> float | None:
    """The standard deviation of log(time) between launches of the same point, pooled; None with one launch."""
    points, group = np.unique(
        np.column_stack([table.ranks, table.nodes, table.size_bytes]), axis=0, return_inverse=True
    )
    group = group.ravel()
    count = np.bincount(group)
    free = int(np.sum(count - 1))
    if free < 1 or len(set(table.launch.tolist())) < 2:
        return None
    log = np.log(table.time_us)
    mean = np.bincount(group, log) / count
    return float(np.sqrt(np.sum((log - mean[group]) ** 2) / free))


def parameters(op: str, regime: Regime, table) -> list[Parameter]:
    """The latencies of the first piece and the costs per byte of the last, with intervals; None for what the
    measurements do not determine."""
    rows = table.medians()
    where = regime.name if regime.one_node else "several nodes"
    last = len(regime.pieces) - 1
    lows, highs, how = _interval(op, regime, table)
    owner = piece_of(op, regime, rows.ranks, rows.nodes, rows.size_bytes)
    starts = np.cumsum([0] + [len(piece.names) for piece in regime.pieces])
    told = []
    for number, per_byte in ((0, False), (last, True)):
        piece, mine = regime.pieces[number], rows.select(owner == number)
        if not len(mine):
            continue
        columns = columns_for(op, regime, piece, piece.values, mine.ranks, mine.nodes, mine.size_bytes)
        share = np.max(columns * np.array(piece.values) / (columns @ np.array(piece.values))[:, None], axis=0)
        weak = weak_terms(piece.names, columns, piece.values, mine.size_bytes) if len(regime.pieces) == 1 else {}
        condition = condition_number(columns, mine.time_us)
        hard = f"hard to tell apart from the others (condition number {condition:.0f})" * (condition > CONDITION_MOST)
        for i, name in enumerate(piece.names):
            if ("per_byte" in name) != per_byte:
                continue
            at = starts[number] + i
            if piece.values[i] == 0:
                note, value = "not determined: zero fits best, so it is below what these points show", None
            elif share[i] < SHARE_LEAST:
                note, value = f"not determined: at most {100 * share[i]:.0f} % of the time at any point", None
            else:
                note, value = "; ".join(filter(None, [how, weak.get(name), hard])), piece.values[i]
            if value is not None and lows[at] == 0:
                note, value = f"not determined: somewhere below {highs[at]:.3g}, {note}", None
            span = (None, None) if value is None else (lows[at], highs[at])
            told.append(Parameter(name, value, *span, f"{piece.algorithm}, {note}", where))
        _, why = separable(op, piece.algorithm, rows.ranks, rows.nodes, rows.size_bytes)
        told += [Parameter(name, None, note=f"{piece.algorithm}, {reason}", where=where)
                 for name, reason in why.items() if ("per_byte" in name) == per_byte]  # fmt: skip
    if regime.choice == "overlap":
        low, high = overlap_interval(op, regime, rows)
        known = high - low < 0.8
        note = "share of the shorter phase hidden behind the longer" if known else "not determined: any share fits"
        told.append(Parameter("overlap", *((regime.overlap, low, high) if known else (None, None, None)), note, where))
    return told


def _interval(op: str, regime: Regime, table):
    """95 % intervals of all values, and how they came about."""
    launches = sorted(set(table.launch.tolist()))
    values = values_of(regime)
    if len(launches) >= LAUNCHES_LEAST:
        fits = [values_of(refitted(op, regime, table.select(table.launch == launch))) for launch in launches]
        n = len(fits)
        spread = np.std(fits, axis=0, ddof=1) / np.sqrt(n)
        how = f"95 % t-interval of {n} launches"
    else:
        n = len(regime.replicates)
        fits = np.array(regime.replicates)
        spread = np.sqrt((n - 1) / n * np.sum((fits - fits.mean(axis=0)) ** 2, axis=0))
        how = f"95 % interval from leaving out one {regime.replicate_of} of {n} at a time, within launches only"
    half = stdtrit(n - 1, 0.975) * spread
    return np.maximum(values - half, 0).tolist(), (values + half).tolist(), how
