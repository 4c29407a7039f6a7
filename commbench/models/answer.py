"""What a fitted series says of a point: by its own curve on a measured world size, by the family's equations else."""

import numpy as np

from commbench.errors import MeasureError, UsageError
from commbench.models import model
from commbench.models.curve import Curve
from commbench.models.model_file import SeriesModel
from commbench.models.prediction import Prediction, check_place, predict, regime_for, within_reach
from commbench.ops import OPS
from commbench.units import format_size


def answer(series: SeriesModel, ranks: int, nodes: int, size_bytes: int) -> Prediction:
    """Time, 95 % interval, how far it reaches ("interpolation", ...), and a sentence with what it rests on.

    Raises MeasureError where nothing that was measured says anything about it, UsageError for what cannot be.
    """
    if series.kind not in ("pieces", "family"):
        raise MeasureError(f"{series.name}: no model of time was fitted: {'; '.join(series.faults) or series.kind}")
    if not 0 < size_bytes < 2**63:
        raise UsageError(f"size {size_bytes} is none; give the bytes of the operation, such as 1M")
    curve = next((c for c in series.curves if (c.ranks, c.nodes) == (ranks, nodes)), None)
    if curve is not None:
        return _by_curve(curve, size_bytes)
    _need_family(series, ranks, nodes)
    check_place(ranks, nodes)
    try:
        return predict(series.family, ranks, nodes, size_bytes)
    except UsageError as error:
        raise MeasureError(f"{series.name}: {error}") from None


def times_us(series: SeriesModel, ranks: int, nodes: int, size_bytes) -> np.ndarray:
    """The times of answer() for many sizes. Raises as it does."""
    curve = next((c for c in series.curves if (c.ranks, c.nodes) == (ranks, nodes)), None)
    if curve is not None:
        return curve.time_us(size_bytes)
    _need_family(series, ranks, nodes)
    regime = regime_for(series.family, ranks, nodes)
    many = np.full(len(size_bytes), ranks), np.full(len(size_bytes), nodes)
    return model.times_us(series.family.op, regime, *many, size_bytes)


def busbw_GBps(op: str, ranks: int, size_bytes: float, time_us: float) -> float | None:
    """Bus bandwidth as nccl-tests defines it; None for one rank and for an operation without one."""
    known = OPS.get(op)
    if known is None or not known.sized or ranks < 2:
        return None
    return known.bus_factor(ranks) * size_bytes / time_us / 1e3


def nodes_of(series: SeriesModel, ranks: int) -> int:
    """The nodes that `ranks` ranks lie on, as the measurements had it. UsageError where they had it in several ways."""
    measured = sorted({c.nodes for c in series.curves if c.ranks == ranks})
    if len(measured) == 1:
        return measured[0]
    if all(c.nodes == 1 for c in series.curves):
        return 1
    per_node = sorted({c.ranks // c.nodes for c in series.curves if c.nodes > 1})
    if len(per_node) == 1 and not measured and ranks % per_node[0] == 0:
        return ranks // per_node[0]
    ways = f"on {' or '.join(map(str, measured))} nodes" if measured else f"{' or '.join(map(str, per_node))} per node"
    raise UsageError(f"{series.name} was measured {ways}, so {ranks} ranks need --nodes")


def _need_family(series: SeriesModel, ranks: int, nodes: int) -> None:
    if series.family is None:
        worlds = ", ".join(f"{c.ranks} ranks on {c.nodes} node(s)" for c in series.curves)
        raise MeasureError(
            f"{series.name}: the fit is valid for the measured world size only, {worlds}; it says nothing about "
            f"{ranks} on {nodes} node(s): measure three or more rank counts (see `commbench plan-sweep`) and fit again"
        )


def _by_curve(curve: Curve, size_bytes: int) -> Prediction:
    time_us = float(curve.time_us(size_bytes))
    low, high = (float(end) for end in curve.interval_us(size_bytes))
    outside = float(curve.octaves_outside(size_bytes))
    label = "interpolation" if outside == 0 else f"extrapolation {2**outside:.3g} times"
    sizes = " to ".join(format_size(int(size)) for size in curve.size_bytes)
    launches = (
        f"{curve.launches} launches"
        if curve.launches > 1
        else "1 launch, so launch-to-launch variation is not in the interval"
    )
    text = (
        f"{label} on the measured world size, from {curve.points} sizes of {sizes}, {launches}; mean error "
        f"{100 * curve.mape:.1f} % in the fit"
    )
    told = Prediction(time_us, low, high, label, text)
    return within_reach(told, f"{format_size(size_bytes)} on {curve.ranks} ranks", outside)
