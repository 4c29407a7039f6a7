"""One series: what was measured beside what the model says, and how far they lie apart, over the size."""

import math
from collections.abc import Sequence

import numpy as np

from commbench.reports.looks import time_axis
from commbench.reports.model_marks import GREY, band, line, percent_axis, short, size_axis, size_grid
from commbench.reports.model_worlds import World, band_name
from commbench.reports.rows import figure
from commbench.units import format_size

_LANE = 0.022  # of the height of the figure, for the breaks of one of several worlds


def fit_figure(worlds: Sequence[World]) -> dict:
    """Times, curves, bands and breaks on the left; residuals of the curve, and of the equations, on the right."""
    data = []
    for world in worlds:
        entry = {"legendgroup": world.name, "showlegend": False, "hoverinfo": "skip"}
        data += _model_lines(world, entry) + [_measured(world, entry), *_outpaced(world, entry)]
        data += _residuals(world, world.curve_us, "2", entry) + _residuals(world, world.equations_us, "3", entry)
    both = any(world.by_equations for world in worlds)
    return {"data": data + _key(worlds, both), "layout": _layout(worlds, data, both)}


def _model_lines(world: World, entry: dict) -> list[dict]:
    """The model's line and its band; where both are known, the equations as a second line, dotted."""
    if world.told is None:
        return []
    sizes = world.rows.size_bytes
    grid = size_grid(sizes[0], sizes[-1], *sizes)
    time_us, low, high = world.told(grid)
    drawn = [band(grid, low, high, world.colour, **entry), line(grid, time_us, world.colour, **entry)]
    if world.by_curve and world.by_equations:
        drawn.append(line(grid, world.by_equations(grid)[0], world.colour, "dot", **entry))
    return drawn


def _measured(world: World, entry: dict) -> dict:
    rows = world.rows
    marks = entry | {
        "type": "scatter", "mode": "markers", "name": world.name, "showlegend": True, "hoverinfo": "text",
        "marker": {"color": world.colour, "size": 6}, "x": rows.size_bytes.tolist(), "y": short(rows.time_us),
        "hovertext": [_hover(world, i) for i in range(len(rows))],
    }  # fmt: skip
    if world.launches > 1:
        marks["error_y"] = {
            "type": "data", "symmetric": False, "array": short(world.high_us - rows.time_us),
            "arrayminus": short(rows.time_us - world.low_us), "width": 0, "thickness": 1, "color": world.colour,
        }  # fmt: skip
    return marks


def _outpaced(world: World, entry: dict) -> list[dict]:
    rows = world.outpaced
    words = [f"<b>{world.name}</b>: {format_size(int(s))}, {figure(t)} µs<br>left out: a larger size was far faster"
             for s, t in zip(rows.size_bytes, rows.time_us)]  # fmt: skip
    marker = {"color": world.colour, "symbol": "x-thin-open", "size": 8}
    marks = {"type": "scatter", "mode": "markers", "hoverinfo": "text", "hovertext": words, "marker": marker}
    return [entry | marks | {"x": rows.size_bytes.tolist(), "y": short(rows.time_us)}] if len(rows) else []


def _hover(world: World, i: int) -> str:
    size, time_us = world.rows.size_bytes[i], world.rows.time_us[i]
    said = [f"<b>{world.ranks} ranks on {world.nodes} node(s)</b>, size {format_size(int(size))} ({size:,.0f} bytes)"]
    span = f" ({figure(world.low_us[i])} – {figure(world.high_us[i])} in {world.launches} launches)"
    said.append(f"measured {figure(time_us)} µs{span if world.launches > 1 else ', 1 launch'}")
    for name, told in (("curve", world.curve_us), ("equations", world.equations_us)):
        if told is not None:
            apart = 100 * (time_us / told[0, i] - 1)
            span = f"{figure(told[1, i])} – {figure(told[2, i])}"
            said.append(f"{name} {figure(told[0, i])} µs ({span}), measured {apart:+.1f} %")
    return "<br>".join(said)


def _residuals(world: World, told: np.ndarray | None, axis: str, entry: dict) -> list[dict]:
    if told is None:
        return []
    apart = 100 * (world.rows.time_us / told[0] - 1)
    return [entry | {
        "type": "scatter", "mode": "lines+markers", "x": world.rows.size_bytes.tolist(), "y": short(apart),
        "xaxis": f"x{axis}", "yaxis": f"y{axis}", "hoverinfo": "text",
        "line": {"color": world.colour + "90", "width": 0.8}, "marker": {"color": world.colour, "size": 5},
        "hovertext": [f"<b>{world.name}</b>, {format_size(int(size))}: {percent:+.1f} %"
                      for size, percent in zip(world.rows.size_bytes, apart)],
    }]  # fmt: skip


def _key(worlds: Sequence[World], both: bool) -> list[dict]:
    """Legend entries that say what the lines mean, without points of their own."""
    entry = {"type": "scatter", "mode": "lines", "x": [None], "y": [None], "hoverinfo": "skip"}
    launches = [world.launches for world in worlds]
    style = {"line": {"width": 0}, "fill": "toself", "fillcolor": GREY + "50"}
    made = [entry | {"name": band_name(launches)} | style] if any(w.told for w in worlds) else []
    named = [("curve", "solid")] * any(w.by_curve for w in worlds) + [("equations over ranks", "dot")] * both
    return made + [entry | {"name": name, "line": {"color": GREY, "dash": dash}} for name, dash in named]


def _breaks(worlds: Sequence[World]) -> list[dict]:
    """Each break as the stretch of sizes it lies in: over the whole height for one world, in lanes for several."""
    height = 1.0 if len(worlds) == 1 else _LANE
    return [
        {
            "type": "rect", "xref": "x", "yref": "y domain", "x0": low, "x1": high, "y0": i * height,
            "y1": (i + 1) * height, "fillcolor": world.colour, "opacity": 0.18 if len(worlds) == 1 else 0.75,
            "line": {"width": 0}, "layer": "below",
        }
        for i, world in enumerate(worlds) if world.curve for low, high in world.curve.pieces.breaks
    ]  # fmt: skip


def _layout(worlds: Sequence[World], data: list[dict], both: bool) -> dict:
    sizes = size_axis(size for world in worlds for size in (*world.rows.size_bytes, *world.outpaced.size_bytes))
    times = [t for trace in data if "yaxis" not in trace for t in trace["y"]]
    low, high = math.log10(min(times)), math.log10(max(times))
    lanes = _LANE * len(worlds) if len(worlds) > 1 else 0
    below = (high - low) * lanes / (1 - lanes) + 0.05 * (high - low + 0.1)
    legend = 21 * math.ceil((len(worlds) + 4) / 9)
    layout = {
        "height": 414 + legend, "margin": {"l": 82, "r": 14, "t": 28 + legend, "b": 46}, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup",
                   "title": {"text": "ranks × nodes  "}},
        "xaxis": sizes | {"domain": [0, 0.52]},
        "yaxis": {"title": {"text": "time, µs", "standoff": 8}} | time_axis(times)
        | {"range": [low - below, high + 0.05 * (high - low + 0.1)]},
        "shapes": _breaks(worlds),
    }  # fmt: skip
    panels = [("2", "curve")] * any(w.by_curve for w in worlds) + [("3", "equations")] * both
    for place, (axis, name) in enumerate(panels):
        domain = [0, 1] if len(panels) == 1 else [[0.55, 1], [0, 0.45]][place]
        layout[f"xaxis{axis}"] = sizes | {"domain": [0.6, 1], "anchor": f"y{axis}"}
        layout[f"yaxis{axis}"] = percent_axis(data, axis, f"residual of {name}, %") | {"domain": domain}
        if len(panels) == 2 and place == 0:
            layout[f"xaxis{axis}"] |= {"title": {"text": ""}, "showticklabels": False}
    return layout
