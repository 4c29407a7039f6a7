"""Time over the ranks at a few sizes, as the equations tell it: on what was measured, and beyond."""

from collections.abc import Sequence

import numpy as np

from commbench.models.model import Model
from commbench.models.prediction import PROJECTION
from commbench.reports.looks import time_axis
from commbench.reports.model_marks import GREY, band, line, ramp, short
from commbench.reports.model_worlds import World, by_equations
from commbench.reports.rows import figure
from commbench.units import format_size

_BEYOND = (2, 4, 8, 16)  # times the measured ranks: past PROJECTION, to show what the word means
_SIZES = 4
_RANKS_LEAST = 3


def reach_figure(family: Model, worlds: Sequence[World]) -> dict | None:
    """A panel for each placement of which the equations know three rank counts or more; None without any."""
    panels = [[w for w in worlds if w.placement == name and w.by_equations]
              for name in dict.fromkeys(world.placement for world in worlds)]  # fmt: skip
    panels = [panel for panel in panels if len(panel) >= _RANKS_LEAST]
    sizes = _few_sizes([world for panel in panels for world in panel])
    if not sizes:
        return None
    data, layout, times = [], _layout(), []
    for number, panel in enumerate(panels):
        axis = str(number + 1) if number else ""
        places = [(w.ranks, w.nodes) for w in panel]
        if panel[-1].nodes > 1:
            places += [(factor * panel[-1].ranks, factor * panel[-1].nodes) for factor in _BEYOND]
        told = np.array([by_equations(family, *place)(np.array(sizes)) for place in places])  # (places, 3, sizes)
        ranks = np.array([ranks for ranks, _ in places])
        data += _panel(panel, ranks, sizes, told, {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}, number == 0)
        _add_axes(layout, axis, panel[0].placement, ranks, panel[-1].ranks, _domain(number, len(panels)))
        times += [told.min(), told.max()]
    span = [float(np.log10(min(times))) - 0.1, float(np.log10(max(times))) + 0.1]
    for name in [name for name in layout if name.startswith("yaxis")]:
        layout[name] = time_axis(times) | {"range": span} | layout[name]
    return {"data": data, "layout": layout}


def _few_sizes(worlds: Sequence[World]) -> list[float]:
    """Up to four of the sizes that were measured on all worlds, from the smallest to the largest."""
    common = sorted(set.intersection(*(set(world.rows.size_bytes.tolist()) for world in worlds))) if worlds else []
    return (
        [common[i] for i in sorted(set(np.linspace(0, len(common) - 1, _SIZES).round().astype(int)))] if common else []
    )


def _domain(number: int, count: int) -> list[float]:
    gap = 0.06
    width = (1 - gap * (count - 1)) / count
    return [number * (width + gap), number * (width + gap) + width]


def _panel(worlds, ranks: np.ndarray, sizes: list[float], told: np.ndarray, axes: dict, named: bool) -> list[dict]:
    data, last = [], worlds[-1].ranks
    inside, outside = ranks <= last, ranks >= last
    for i, (size, colour) in enumerate(zip(sizes, ramp(len(sizes)))):
        name = format_size(int(size))
        entry = axes | {"legendgroup": name, "showlegend": False, "hoverinfo": "skip"}
        time_us, low, high = told[:, :, i].T
        data += [band(ranks, low, high, colour, **entry), line(ranks[inside], time_us[inside], colour, **entry)]
        words = [_hover(name, *row, last) for row in zip(ranks[outside], time_us[outside], low[outside], high[outside])]
        beyond = line(ranks[outside], time_us[outside], colour, "dash", **entry)
        data.append(beyond | {"hoverinfo": "text", "hovertext": words})
        data.append(_measured(worlds, size, name, colour) | axes | {"legendgroup": name, "showlegend": named})
    return data


def _hover(size: str, ranks: int, time_us: float, low: float, high: float, last: int) -> str:
    times = ranks / last
    word = "measured" if times <= 1 else "projection" if times > PROJECTION else "extrapolation"
    span = f"{figure(low)} – {figure(high)}"
    return f"<b>{size} on {ranks} ranks</b>: {figure(time_us)} µs ({span})<br>{word}, {times:g} times"


def _measured(worlds: Sequence[World], size: float, name: str, colour: str) -> dict:
    spots = [(w.ranks, w.rows.time_us[w.rows.size_bytes == size][0]) for w in worlds]
    return {
        "type": "scatter", "mode": "markers", "name": name, "marker": {"color": colour, "size": 6},
        "x": [ranks for ranks, _ in spots], "y": short(time_us for _, time_us in spots), "hoverinfo": "text",
        "hovertext": [f"<b>{name} on {ranks} ranks</b>: measured {figure(time_us)} µs" for ranks, time_us in spots],
    }  # fmt: skip


def _layout() -> dict:
    return {
        "height": 380, "margin": {"l": 82, "r": 14, "t": 40, "b": 46}, "hovermode": "closest", "shapes": [],
        "annotations": [], "legend": {"orientation": "h", "x": 0, "y": 1.03, "yanchor": "bottom",
                                      "groupclick": "togglegroup", "title": {"text": "size, bytes  "}},
    }  # fmt: skip


def _add_axes(layout: dict, axis: str, placement: str, ranks: np.ndarray, last: int, domain: list[float]) -> None:
    ticks = [int(n) for n in ranks[:: 1 + len(ranks) // 9]]
    edges = [float(np.log10(ranks[0])) - 0.05, float(np.log10(ranks[-1])) + 0.05]
    layout[f"xaxis{axis}"] = {
        "type": "log", "title": {"text": f"ranks, {placement}"}, "tickvals": ticks, "ticktext": [str(n) for n in ticks],
        "range": edges, "domain": domain, "anchor": f"y{axis}",
    }  # fmt: skip
    layout[f"yaxis{axis}"] = {"anchor": f"x{axis}"}
    if not axis:
        layout["yaxis"] |= {"title": {"text": "time, µs", "standoff": 8}}
    reach = last * PROJECTION
    shades = (last, reach, "extrapolation", 0.1, 0.01), (reach, 10 ** edges[1], "projection", 0.25, 0.07)
    for low, high, word, opacity, height in shades:
        if ranks[-1] > last:
            layout["shapes"].append({
                "type": "rect", "xref": f"x{axis}", "yref": f"y{axis} domain", "x0": float(low), "x1": float(high),
                "y0": 0, "y1": 1, "fillcolor": GREY, "opacity": opacity, "line": {"width": 0}, "layer": "below",
            })  # fmt: skip
            layout["annotations"].append({
                "text": word, "showarrow": False, "xref": f"x{axis}", "yref": "paper", "x": float(np.log10(high)),
                "y": height, "xanchor": "right", "yanchor": "bottom", "font": {"size": 11},
            })  # fmt: skip
