"""A fitted series, and who is faster where, as lines for a terminal and a log."""

from commbench.cli.columns import aligned, figure
from commbench.models.answer import busbw_GBps
from commbench.models.contest import SeriesCrossover
from commbench.models.curve import Curve
from commbench.models.model import Parameter
from commbench.models.model_file import SeriesModel
from commbench.results.nccl_tests import one_line
from commbench.units import format_size

_KINDS = {
    "pieces": "pieces over the size, one world size each",
    "family": "equations over ranks, and pieces over the size on each measured world size",
    "loggp": "LogGP",
    "none": "NOT FITTED",
}


def series_lines(series: SeriesModel) -> list[str]:
    """What was fitted, to how much, how well, and what a reader must know."""
    points = f"{series.points} points {'read' if series.kind == 'none' else 'used'}"
    left = [f"{count} left out because {reason}" for reason, count in series.left_out.items()]
    launches = f"{series.launches} launch{'es' if series.launches > 1 else ''}"
    lines = [one_line(series.name), f"  {', '.join([points, *left])}; {launches}; model: {_KINDS[series.kind]}"]
    if series.loggp:
        lines += aligned([_parameter(p) for p in series.loggp.parameters])
    if series.curves:
        lines += aligned([_CURVE_HEAD, *(_curve(series.label["op"], c) for c in series.curves)])
        lines += _breaks(series.curves)
    if series.family:
        lines += [""] + aligned([_REGIME_HEAD, *map(_regime, series.family.regimes)])
        if series.family.parameters:
            lines += [""] + aligned([_parameter(p) for p in series.family.parameters])
    lines += [f"  not fitted: {one_line(fault)}" for fault in series.faults]
    lines += [f"  note: {one_line(warning)}" for warning in series.warnings]
    return lines


_CURVE_HEAD = [
    "ranks x nodes", "sizes", "pieces", "latency us", "95 %", "top busbw GB/s", "95 %", "error %", "held out %",
    "interval",
]  # fmt: skip


def _curve(op: str, curve: Curve) -> list[str]:
    latency, slope = curve.parameters
    rates = [busbw_GBps(op, curve.ranks, 1.0, v) if v else None for v in (slope.value, slope.high, slope.low)]
    known = next((p.note for p in curve.parameters if p.value is not None), "")
    return [
        f"{curve.ranks} x {curve.nodes}",
        f"{curve.points}",
        f"{len(curve.pieces.first)}",
        _value(latency.value),
        _span(latency.low, latency.high),
        "-" if slope.value and rates[0] is None else _value(rates[0]),
        _span(rates[1], rates[2]),
        f"{100 * curve.mape:.1f}",
        "-" if curve.holdout_mape is None else f"{100 * curve.holdout_mape:.1f}",
        known,
    ]


def _value(value: float | None) -> str:
    return "not determined" if value is None else figure(value)


def _span(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{figure(low)} to {figure(high)}"


def _breaks(curves: tuple[Curve, ...]) -> list[str]:
    """Where a curve changes its piece; for one curve each break, for many only how to see them."""
    lines = []
    for curve in curves if len(curves) <= 4 else ():
        spans = [f"{format_size(int(low))} to {format_size(int(high))}" for low, high in curve.pieces.breaks]
        if spans:
            lines.append(f"  breaks on {curve.ranks} x {curve.nodes}, each somewhere between: {', '.join(spans)}")
    return lines


_REGIME_HEAD = ["equations for", "form", "points", "launches", "error %", "held-out ranks %", "chosen by"]


def _regime(regime) -> list[str]:
    algorithms = [piece.algorithm for piece in regime.pieces]
    form = f"{regime.choice} of " + " + ".join(f"{algorithms.count(a)} {a}" for a in dict.fromkeys(algorithms))
    if len(regime.ranks) == 1 and not regime.chosen_by.startswith("given"):
        form = "lines over the size"  # on one rank count they are of no algorithm
    elif len(algorithms) == 1:
        form = algorithms[0]
    held = "-" if regime.holdout_mape is None else f"{100 * regime.holdout_mape:.1f}"
    return [
        regime.name, form, str(regime.points), str(regime.launches), f"{100 * regime.mape:.1f}",
        held, regime.chosen_by,
    ]  # fmt: skip


def _parameter(parameter: Parameter) -> list[str]:
    value = "-" if parameter.value is None else figure(parameter.value)
    span = _span(parameter.low, parameter.high)
    if parameter.value is None and parameter.high is not None:
        span = f"within {span}"
    return [parameter.name, parameter.where, value, span, one_line(parameter.note)]


def crossover_lines(crossovers: list[SeriesCrossover]) -> list[str]:
    """One line for each pair of algorithms on a world size."""
    rows = [
        [f"{c.op} ({c.where})", f"{c.ranks} x {c.nodes}", " against ".join(c.names), c.sentence, c.found.label]
        for c in crossovers
    ]
    return aligned([[one_line(cell) for cell in row] for row in rows])
