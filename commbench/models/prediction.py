"""A model's time for points that nobody measured, with a 95 % interval and the word for how far it reaches.

The interval adds three variances of log(time): between launches, of the parameters (jackknife), and the discrepancy of
the form itself. (Held-out errors are those of fits to fewer ranks, so they hold the parameters' error already: there
the larger of the two counts.) The discrepancy is what 95 % of the errors in the fit stay below within the measured
ranks, beyond them what 95 % of the held-out errors stay below, and further than those reach, in proportion to the
logarithm of the distance. Beyond eight times the measured ranks the word is "projection".
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from commbench.errors import MeasureError, UsageError
from commbench.models.identify import per_rank_count
from commbench.models.model import Model, Regime, piece_of, times_us
from commbench.units import format_size

PROJECTION = 8.0
SPAN_MOST = 10.0  # an answer less certain than that is none
HALF_MOST = 20.0  # of log(time): half a thousand million times longer or shorter is no statement


@dataclass(frozen=True)
class Prediction:
    """time_us with its 95 % interval, `label` ("interpolation", "extrapolation 2 times", "projection 32 times") and a
    sentence with the figures it rests on."""

    time_us: float
    low_us: float
    high_us: float
    label: str
    text: str


def predict(model: Model, ranks: int, nodes: int, size_bytes: float) -> Prediction:
    """The time of one point. Raises UsageError where the model has nothing to say, and what to measure then;
    MeasureError where its interval says nothing."""
    regime = regime_for(model, ranks, nodes)
    if not size_bytes > 0:
        raise UsageError(f"size {size_bytes} is none; give the bytes of the operation, such as 1M")
    time_us, low_us, high_us = (float(t[0]) for t in predict_many(model, regime, [ranks], [nodes], [size_bytes]))
    label = reach(regime, ranks, size_bytes)
    beyond = _beyond(ranks, regime.ranks[0], regime.ranks[-1]), _beyond(size_bytes, *regime.size_bytes)
    told = Prediction(time_us, low_us, high_us, label, _text(regime, label, size_bytes))
    return within_reach(told, f"{format_size(size_bytes)} on {ranks} ranks", float(np.log2(max(beyond))))


def within_reach(told: Prediction, point: str, octaves: float) -> Prediction:
    """The prediction, or MeasureError where it lies outside the measurements and its interval says nothing."""
    if not np.isfinite(told.time_us) or (octaves > 0 and not told.high_us <= SPAN_MOST * told.time_us):
        raise MeasureError(
            f"a size of {point} lies {octaves:.3g} octaves outside what was measured, where the interval spans more "
            f"than a factor of {SPAN_MOST:.0f} either way; measure nearer to it"
        )
    return told


def regime_for(model: Model, ranks: int, nodes: int) -> Regime:
    """The regime that a point belongs to. UsageError when it was not measured."""
    check_place(ranks, nodes)
    per_node = ranks // nodes
    alike = [r for r in model.regimes if r.one_node == (nodes == 1) and (nodes == 1 or per_node in r.per_node)]
    if not alike:
        known = "; ".join(regime.name for regime in model.regimes)
        wanted = "one node" if nodes == 1 else f"{per_node} ranks per node on several nodes"
        raise UsageError(
            f"nothing was measured with {wanted} (measured: {known}); measure some points there and fit again"
        )
    able = [r for r in alike if ranks in r.ranks or not per_rank_count(r.pieces)]
    if not able:
        known = " and ".join(str(r.ranks[0]) for r in alike)
        raise UsageError(
            f"{alike[0].name.split(',')[0]}: {known} ranks were measured and fitted each by itself, which says nothing "
            f"about {ranks}; measure three or more rank counts and fit again"
        )
    return able[0]


def check_place(ranks: int, nodes: int) -> None:
    """UsageError unless so many ranks can take part on so many nodes."""
    if not 1 <= nodes <= ranks or ranks < 2:
        raise UsageError(f"{ranks} ranks on {nodes} nodes is no place for a collective; give 2 or more ranks")
    if ranks % nodes:
        raise UsageError(f"{ranks} ranks cannot lie evenly on {nodes} nodes; give a multiple of the nodes")


def predict_many(model: Model, regime: Regime, ranks, nodes, size_bytes):
    """Times of points of one regime, and both ends of their 95 % intervals."""
    ranks, nodes, size_bytes = np.asarray(ranks), np.asarray(nodes), np.asarray(size_bytes, float)
    time_us = times_us(model.op, regime, ranks, nodes, size_bytes)
    parameter = _parameter_half(model.op, regime, ranks, nodes, size_bytes)
    form = _discrepancy(model.op, regime, ranks, nodes, size_bytes)
    held_out = bool(regime.holdout_log_95) & (ranks > regime.ranks[-1])
    both = np.where(held_out, np.maximum(parameter, form), np.hypot(parameter, form))
    half = np.minimum(np.nan_to_num(np.hypot(_launch_half(regime), both), nan=HALF_MOST), HALF_MOST)
    return time_us, time_us * np.exp(-half), time_us * np.exp(half)


def reach(regime: Regime, ranks: int, size_bytes: float) -> str:
    """ "interpolation" within the measured ranks and sizes, else how many times beyond them."""
    in_ranks = float(_beyond(ranks, regime.ranks[0], regime.ranks[-1]))
    in_size = float(_beyond(size_bytes, *regime.size_bytes))
    if max(in_ranks, in_size) <= 1:
        return "interpolation"
    word = "projection" if in_ranks > PROJECTION else "extrapolation"
    times = [f"{in_ranks:.3g} times"] if in_ranks > 1 else []
    times += [f"{in_size:.3g} times in size"] if in_size > 1 else []
    return f"{word} {' and '.join(times)}"


def _beyond(value, low, high):
    """How many times a value lies outside a range; 1 within it."""
    return np.maximum(np.maximum(np.asarray(value) / high, low / np.asarray(value)), 1.0)


def _launch_half(regime: Regime) -> float:
    if regime.launch_sd_log is None:
        return 0.0
    return float(stdtrit(max(1, regime.launches - 1), 0.975)) * regime.launch_sd_log


def _parameter_half(op, regime, ranks, nodes, size_bytes):
    n = len(regime.replicates)
    if n < 2:
        return np.zeros(len(ranks))
    told = [times_us(op, regime, ranks, nodes, size_bytes, np.array(v)) for v in regime.replicates]
    told = np.log(np.maximum(told, 1e-300))
    return stdtrit(n - 1, 0.975) * np.sqrt((n - 1) / n * np.sum((told - told.mean(axis=0)) ** 2, axis=0))


def _discrepancy(op, regime: Regime, ranks, nodes, size_bytes):
    piece = piece_of(op, regime, ranks, nodes, size_bytes)
    inside = np.array(regime.residual_log_95)[piece]
    doublings = np.log2(_beyond(ranks, regime.ranks[0], regime.ranks[-1]))
    sizes = np.log2(_beyond(size_bytes, *regime.size_bytes))
    if not regime.holdout_log_95:
        return inside * (1 + doublings + sizes)
    outside = np.maximum(inside, np.array(regime.holdout_log_95)[piece])
    outside = outside * np.maximum(doublings / np.log2(regime.holdout_factor), 1)
    return np.where(doublings > 0, outside, inside) * (1 + sizes)


def _text(regime: Regime, label: str, size_bytes) -> str:
    low, high = (format_size(int(s)) for s in regime.size_bytes)
    ranks = f"{regime.ranks[0]} to {regime.ranks[-1]} ranks" if len(regime.ranks) > 1 else f"{regime.ranks[0]} ranks"
    launches = (
        f"{regime.launches} launches"
        if regime.launches > 1
        else "1 launch, so launch-to-launch variation is not in the interval"
    )
    held = f", {100 * regime.holdout_mape:.1f} % on rank counts held out" if regime.holdout_mape is not None else ""
    return (
        f"{label}, from {regime.points} points on {ranks} ({regime.name}), {low} to {high}, {launches}; mean error "
        f"{100 * regime.mape:.1f} % in the fit{held}"
    )
