"""Algorithms against each other: who is the fastest over size and ranks, and their bandwidth and time on one world."""

import math
from collections.abc import Sequence

import numpy as np

from commbench.models.answer import busbw_GBps
from commbench.models.crossover import Crossing
from commbench.reports.looks import text, time_axis
from commbench.reports.model_marks import GREY, band, line, short, size_axis, size_grid
from commbench.reports.model_rivals import BEYOND, MEASURED, UNDECIDED, Stretch
from commbench.reports.model_worlds import World
from commbench.reports.rows import figure
from commbench.units import format_size

_KEY = {UNDECIDED: "pale: within the error", BEYOND: "hatched: beyond what was measured"}
_ROW, _ROW_OF_MANY, _MANY = 24, 17, 12  # pixels, and how many rows are many


def map_figure(stretches: Sequence[Stretch], crossings: Sequence[tuple[str, Crossing]], colour: dict[str, str]) -> dict:
    """A row for each world size: full colour where it is decided, pale where it is not, hatched beyond the measured."""
    rows = list(dict.fromkeys(s.row for s in stretches))
    data, named = [], set()
    for who in dict.fromkeys(s.who for s in stretches):
        for kind in (MEASURED, UNDECIDED, BEYOND):
            own = [s for s in stretches if (s.who, s.kind) == (who, kind)]
            if own:
                data.append(_bars(own, colour[who], kind) | {"showlegend": who not in named})
                named.add(who)
    kinds = {s.kind for s in stretches}
    data += [
        _bars([], GREY, kind) | {"name": words, "legendgroup": words} for kind, words in _KEY.items() if kind in kinds
    ]
    sizes = size_axis(edge for s in stretches for edge in (s.low, s.high))
    height = _ROW if len(rows) <= _MANY else _ROW_OF_MANY
    layout = {
        "height": 106 + height * max(len(rows), 2), "margin": {"l": 110, "r": 14, "t": 54, "b": 46},
        "barmode": "overlay", "bargap": 0.08, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, "xaxis": sizes,
        "yaxis": {"title": {"text": "ranks × nodes" if len(rows) > 4 else "", "standoff": 8}, "type": "category",
                  "categoryorder": "array", "categoryarray": rows},
    }  # fmt: skip
    return {"data": data + _marks(crossings), "layout": layout}


def curves_figure(op: str, worlds: dict[str, World], colour: dict[str, str]) -> dict:
    """The rivals on one world size: bus bandwidth on the left where the operation has one, time on the right."""
    data, times = [], []
    for name, world in worlds.items():
        entry = {"legendgroup": text(name), "name": text(name), "showlegend": False}
        sizes = world.rows.size_bytes
        grid = size_grid(sizes[0], sizes[-1], *sizes)
        told = world.told(grid)
        views = [("", lambda s, t: t)]
        if busbw_GBps(op, world.ranks, 1.0, 1.0):
            views.append(("2", lambda s, t, n=world.ranks: np.array([busbw_GBps(op, n, *pair) for pair in zip(s, t)])))
        for axis, shown in views:
            at = entry | {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
            middle, low, high = (shown(grid, values) for values in told)
            data += [band(grid, low, high, colour[name], **at),
                     line(grid, middle, colour[name], **at, hoverinfo="skip"),
                     at | _dots(world, shown, name, colour[name]) | {"showlegend": axis == ""}]  # fmt: skip
        times += [*told[1], *told[2], *world.rows.time_us]
    return {"data": data, "layout": _layout(worlds, data, times)}


def _bars(stretches: Sequence[Stretch], colour: str, kind: str) -> dict:
    marker = {"color": colour, "line": {"width": 0}}
    if kind == UNDECIDED:
        marker |= {"opacity": 0.35}
    if kind == BEYOND:
        marker |= {
            "pattern": {"shape": "/", "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)", "size": 7, "solidity": 0.35}
        }
    return {
        "type": "bar", "orientation": "h", "marker": marker, "hoverinfo": "text",
        "name": text(stretches[0].who) if stretches else "", "legendgroup": text(stretches[0].who) if stretches else "",
        "y": [s.row for s in stretches] or [None], "base": short(s.low for s in stretches) or [None],
        "x": short(s.high - s.low for s in stretches) or [None],
        "hovertext": [f"<b>{text(s.who)}</b> on {s.row}: {_size(s.low)} to {_size(s.high)}<br>{kind}"
                      for s in stretches],
    }  # fmt: skip


def _marks(crossings: Sequence[tuple[str, Crossing]]) -> list[dict]:
    if not crossings:
        return []
    sizes = [(c.size_bytes, c.low_bytes or c.size_bytes, c.high_bytes or c.size_bytes) for _, c in crossings]
    return [{
        "type": "scatter", "mode": "markers", "name": "crossover with its 95 % interval",
        "marker": {"symbol": "diamond", "size": 9, "color": "#ffffff", "line": {"color": "#222222", "width": 1.2}},
        "x": short(at for at, *_ in sizes), "y": [row for row, _ in crossings], "hoverinfo": "text",
        "error_x": {"type": "data", "symmetric": False, "array": short(high - at for at, _, high in sizes),
                    "arrayminus": short(at - low for at, low, _ in sizes), "color": GREY, "thickness": 2},
        "hovertext": [f"<b>{row}</b>: {text(c.below)} up to {_size(c.size_bytes)}, {text(c.above)} from there on"
                      for row, c in crossings],
    }]  # fmt: skip


def _dots(world: World, shown, name: str, colour: str) -> dict:
    sizes, times = world.rows.size_bytes, world.rows.time_us
    return {
        "type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 6}, "hoverinfo": "text",
        "x": sizes.tolist(), "y": short(shown(sizes, times)),
        "hovertext": [f"<b>{text(name)}</b> on {world.name}, {format_size(int(s))}: measured {figure(t)} µs"
                      for s, t in zip(sizes, times)],
    }  # fmt: skip


def _layout(worlds: dict[str, World], data: list[dict], times: list[float]) -> dict:
    sizes = size_axis(size for world in worlds.values() for size in world.rows.size_bytes)
    beside = any(trace["xaxis"] == "x2" for trace in data)
    legend = 20 * math.ceil(len(worlds) / 6)
    layout = {
        "height": 354 + legend, "margin": {"l": 68, "r": 14, "t": 28 + legend, "b": 46}, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
        "xaxis": sizes | {"domain": [0.55, 1] if beside else [0, 1]},
        "yaxis": {"title": {"text": "time, µs", "standoff": 10}} | time_axis(times),
    }  # fmt: skip
    if beside:
        layout["xaxis2"] = sizes | {"domain": [0, 0.45], "anchor": "y2"}
        layout["yaxis2"] = {"title": {"text": "busbw, GB/s", "standoff": 10}, "rangemode": "tozero", "anchor": "x2"}
    return layout


def _size(size_bytes: float) -> str:
    return format_size(round(size_bytes))
