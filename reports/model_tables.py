"""The figures of a fit as tables of words: {"heads", "lines", "words"}, the latter the columns that are no numbers."""

from collections.abc import Sequence

from commbench.models.answer import busbw_GBps
from commbench.models.contest import SeriesCrossover
from commbench.models.curve import Curve
from commbench.models.model import Model, Parameter
from commbench.models.model_file import SeriesModel
from commbench.units import format_size

NOT_DETERMINED = "not determined"
_KINDS = {
    "pieces": "curves over the size",
    "family": "equations over ranks, curves over the size",
    "loggp": "LogGP",
    "none": "not fitted",
}


def kind(series: SeriesModel) -> str:
    return _KINDS[series.kind]


def curves_table(op: str, curves: Sequence[Curve]) -> dict:
    """A line for each world size: latency and cost per byte with their intervals, and the errors."""
    heads = [
        "ranks × nodes", "sizes", "launches", "pieces", "latency, µs", "95 %", "last beta, µs/byte", "95 %",
        "as busbw, GB/s", "error, %", "held out, %", "intervals from",
    ]  # fmt: skip
    lines = []
    for curve in curves:
        latency, beta = curve.parameters
        lines.append([
            f"{curve.ranks} × {curve.nodes}", curve.points, curve.launches, len(curve.pieces.first), _value(latency),
            _span(latency), _value(beta), _span(beta), _rate(op, curve.ranks, beta.value),
            number(100 * curve.mape, 2), percent(curve.holdout_mape), _notes(curve),
        ])  # fmt: skip
    return {"heads": heads, "lines": lines, "words": {0, 11}}


def pieces_table(op: str, curves: Sequence[Curve]) -> dict:
    """A line for each piece of each curve, and where the break before it lies."""
    heads = [
        "ranks × nodes", "piece", "sizes", "break before it", "intercept, µs", "beta, µs/byte", "as busbw, GB/s",
    ]  # fmt: skip
    lines = []
    for curve in curves:
        pieces = curve.pieces
        ends = [*(pieces.first[1:] - 1), len(pieces.size_bytes) - 1]
        breaks = ["–", *(f"{_size(low)} to {_size(high)}" for low, high in pieces.breaks)]
        for i, (first, last) in enumerate(zip(pieces.first, ends)):
            beta = float(pieces.beta_us_per_byte[i])
            lines.append([
                f"{curve.ranks} × {curve.nodes}", i + 1,
                f"{_size(pieces.size_bytes[first])} to {_size(pieces.size_bytes[last])}", breaks[i],
                number(pieces.intercept_us[i]) if pieces.intercept_us[i] else NOT_DETERMINED,
                number(beta) if beta else NOT_DETERMINED, _rate(op, curve.ranks, beta or None),
            ])  # fmt: skip
    return {"heads": heads, "lines": lines, "words": {0, 2, 3}}


def regimes_table(family: Model) -> dict:
    """A line for each part of the measurements with equations of its own."""
    heads = ["equations for", "ranks", "form", "points", "launches", "error, %",
             "held-out ranks, %", "chosen by"]  # fmt: skip
    lines = []
    for regime in family.regimes:
        algorithms = [piece.algorithm for piece in regime.pieces]
        parts = " + ".join(f"{algorithms.count(name)} {name}" for name in dict.fromkeys(algorithms))
        lines.append([
            regime.name, ", ".join(map(str, regime.ranks)), f"{regime.choice} of {parts}" if len(algorithms) > 1 else
            parts.removeprefix("1 "), regime.points, regime.launches, number(100 * regime.mape, 2),
            percent(regime.holdout_mape), regime.chosen_by,
        ])  # fmt: skip
    return {"heads": heads, "lines": lines, "words": {0, 1, 2, 7}}


def parameters_table(parameters: Sequence[Parameter]) -> dict:
    """A line for each parameter: value, interval and unit, or that it is not determined; and the note."""
    heads = ["parameter", "where", "value", "95 %", "unit", "as a rate, GB/s", "rests on"]
    lines = [
        [p.name, p.where, _value(p), _span(p), _unit(p.name), _per_byte_rate(p), p.note or "–"] for p in parameters
    ]  # fmt: skip
    return {"heads": heads, "lines": lines, "words": {0, 1, 4, 6}}


def crossovers_table(found: Sequence[SeriesCrossover]) -> dict:
    lines = [[f"{c.ranks} × {c.nodes}", " against ".join(c.names), c.sentence, c.found.label] for c in found]
    return {
        "heads": ["ranks × nodes", "between", "who is faster", "interval from"],
        "lines": lines,
        "words": {0, 1, 2, 3},
    }


def number(value: float | None, digits: int = 4) -> str:
    """So many significant digits, as a person would write them."""
    if value is None:
        return "–"
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"


def percent(share: float | None) -> str:
    return "–" if share is None else number(100 * share, 2)


def _value(parameter: Parameter) -> str:
    return NOT_DETERMINED if parameter.value is None else number(parameter.value)


def _span(parameter: Parameter) -> str:
    if parameter.low is None or parameter.high is None:
        return "–"
    span = f"{number(parameter.low)} to {number(parameter.high)}"
    return span if parameter.value is not None else f"within {span}"


def _notes(curve: Curve) -> str:
    """What the intervals rest on, each note once, and what was said of the pieces."""
    notes = [p.note if p.value is not None else f"{p.name}: {p.note}" for p in curve.parameters]
    return "; ".join(dict.fromkeys(filter(None, [*notes, curve.pieces.remark])))


def _rate(op: str, ranks: int, beta_us_per_byte: float | None) -> str:
    return "–" if beta_us_per_byte is None else number(busbw_GBps(op, ranks, 1.0, beta_us_per_byte))


def _per_byte_rate(parameter: Parameter) -> str:
    return number(1e-3 / parameter.value) if parameter.value and "us_per_byte" in parameter.name else "–"


def _unit(name: str) -> str:
    return "µs/byte" if "us_per_byte" in name else "µs" if name.endswith("_us") else "share"


def _size(size_bytes: float) -> str:
    return format_size(int(size_bytes))
