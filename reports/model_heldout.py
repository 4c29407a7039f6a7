"""Predicted against measured for points that a fit had not seen."""

from collections.abc import Callable, Sequence

import numpy as np

from commbench.reports.looks import text, time_axis
from commbench.reports.model_marks import GREY, percent_axis, ramp, short, size_axis
from commbench.reports.model_unseen import Unseen
from commbench.reports.rows import figure
from commbench.units import format_size


def ranks_figure(points: Sequence[Unseen]) -> dict:
    """Held-out rank counts, a colour for each largest rank count of the training."""
    across = sorted({point.ranks for point in points})
    axis = {
        "type": "log", "title": {"text": "ranks predicted"}, "tickvals": across, "ticktext": [str(n) for n in across],
        "range": [float(np.log10(across[0])) - 0.12, float(np.log10(across[-1])) + 0.12],
    }  # fmt: skip
    seen = sorted(points, key=lambda point: point.largest)
    return _figure(seen, lambda point: f"fitted to {point.seen}", lambda point: point.ranks, axis, columns=5)


def sizes_figure(points: Sequence[Unseen]) -> dict:
    """Held-out largest sizes, a colour for each series."""
    axis = size_axis(point.size_bytes for point in points)
    return _figure(points, lambda point: point.series, lambda point: point.size_bytes, axis, columns=2)


def _figure(points: Sequence[Unseen], name_of: Callable, x_of: Callable, x_axis: dict, columns: int) -> dict:
    groups = {}
    for point in points:
        groups.setdefault(name_of(point), []).append(point)
    data = []
    for (name, own), colour in zip(groups.items(), ramp(len(groups))):
        entry = {
            "type": "scatter", "mode": "markers", "name": text(name, 90), "legendgroup": text(name, 90),
            "marker": {"color": colour, "size": 6, "opacity": 0.7},
            "hoverinfo": "text", "hovertext": [_hover(point) for point in own],
        }  # fmt: skip
        data.append(entry | {"x": short(p.time_us for p in own), "y": short(p.told_us for p in own)})
        beside = {"x": short(map(x_of, own)), "y": short(p.apart for p in own), "xaxis": "x2", "yaxis": "y2"}
        data.append(entry | beside | {"showlegend": False})
    return {"data": _tenth(points) + data, "layout": _layout(points, data, x_axis, -(-(len(groups) + 1) // columns))}


def _hover(point: Unseen) -> str:
    return (
        f"<b>{text(point.series, 90)}</b><br>{point.ranks} ranks on {point.nodes} node(s), size "
        f"{format_size(int(point.size_bytes))}<br>measured {figure(point.time_us)} µs, predicted "
        f"{figure(point.told_us)} µs: {point.apart:+.1f} %<br>fitted to {point.seen}"
    )


def _tenth(points: Sequence[Unseen]) -> list[dict]:
    """The diagonal and the band of 10 % to both sides."""
    times = [t for p in points for t in (p.time_us, p.told_us)]
    ends = np.array([min(times) / 1.5, max(times) * 1.5])
    entry = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    return [
        entry | {"x": short([*ends, *ends[::-1]]), "y": short([*(ends / 1.1), *(ends[::-1] * 1.1)]), "fill": "toself",
                 "fillcolor": GREY + "40", "line": {"width": 0}, "name": "within 10 %"},
        entry | {"x": short(ends), "y": short(ends), "line": {"color": GREY, "width": 1}, "showlegend": False},
    ]  # fmt: skip


def _layout(points: Sequence[Unseen], data: list[dict], x_axis: dict, legend_rows: int) -> dict:
    times = [t for p in points for t in (p.time_us, p.told_us)]
    axis = time_axis(times) | {"range": [float(np.log10(min(times) / 1.3)), float(np.log10(max(times) * 1.3))]}
    legend = 20 * legend_rows
    return {
        "height": 394 + legend, "margin": {"l": 82, "r": 14, "t": 28 + legend, "b": 46}, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
        "xaxis": axis | {"title": {"text": "measured, µs"}, "domain": [0, 0.45]},
        "yaxis": axis | {"title": {"text": "predicted, µs", "standoff": 8}},
        "xaxis2": x_axis | {"domain": [0.55, 1], "anchor": "y2"},
        "yaxis2": percent_axis(data, "2", "measured / predicted − 1, %"),
        "shapes": [{"type": "rect", "xref": "x2 domain", "yref": "y2", "x0": 0, "x1": 1, "y0": -10, "y1": 10,
                    "fillcolor": GREY, "opacity": 0.25, "line": {"width": 0}, "layer": "below"}],
    }  # fmt: skip
