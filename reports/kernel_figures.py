"""Figures of attention kernels as plotly data: rates and memory against the sequence, and the roofline."""

import math

from commbench.kernels.flops import (
    backward_bytes,
    executed_backward_flops,
    forward_bytes,
    forward_flops,
    score_bytes,
)
from commbench.reports.looks import text
from commbench.reports.rows import figure

_COLOURS = (
    "#7a7a7a", "#2e9e6b", "#c2557f", "#7a5bb5", "#a39a1f", "#3d85c6", "#12a3a8", "#5f6c7b", "#e08a1e", "#8c564b",
    "#4f5bd5", "#7f9f3f", "#b04a8f", "#d1495b",
)  # fmt: skip
_ROOF = "#9a9a9a"
_SIDES = {"forward": ("x", "y"), "backward": ("x2", "y2")}


def rate_figure(spots, methods: list[str], peak) -> dict:
    """TFLOP/s against the sequence: forward on the left, backward on the right."""
    data = []
    for method in methods:
        for which in _SIDES:
            line = sorted((s for s in spots if s.method == method and s.which == which), key=lambda s: s.seqlen)
            if line:
                data.append(_trace(line, which, methods, [s.tflops for s in line], data) | {
                    "error_y": {
                        "type": "data", "symmetric": False, "thickness": 1, "width": 0,
                        "array": [s.high - s.tflops for s in line], "arrayminus": [s.tflops - s.low for s in line],
                    },
                })  # fmt: skip
    layout = _two_sides(spots, "TFLOP/s", methods)
    for axis in ("yaxis", "yaxis2"):
        layout[axis] |= {"rangemode": "tozero"}
    if peak and peak.tflops < 4 * max(spot.tflops for spot in spots):
        layout["shapes"] = [
            {"type": "line", "xref": f"{x} domain", "x0": 0, "x1": 1, "yref": y, "y0": peak.tflops, "y1": peak.tflops,
             "line": {"color": _ROOF, "dash": "dash", "width": 1}} for x, y in _SIDES.values()
        ]  # fmt: skip
    return {"data": data, "layout": layout}


def memory_figure(spots, methods: list[str]) -> dict:
    """MiB beyond inputs and result against the sequence, and the score matrix as a line to compare with."""
    data = []
    for method in methods:
        for which in _SIDES:
            line = [s for s in spots if s.method == method and s.which == which and s.memory_bytes]
            line.sort(key=lambda s: s.seqlen)
            if line:
                data.append(_trace(line, which, methods, [s.memory_bytes / 2**20 for s in line], data))
    scores = {s.seqlen: score_bytes(s.case) / 2**20 for s in spots if s.case}
    for which, (x, y) in _SIDES.items():
        data.append({
            "type": "scatter", "mode": "lines", "name": "the score matrix in float32", "legendgroup": "scores",
            "showlegend": which == "forward", "x": sorted(scores), "y": [scores[n] for n in sorted(scores)],
            "xaxis": x, "yaxis": y, "line": {"color": _ROOF, "dash": "dash", "width": 1}, "hoverinfo": "skip",
        })  # fmt: skip
    layout = _two_sides(spots, "MiB", methods)
    values = [value for trace in data for value in trace["y"]]
    for axis in ("yaxis", "yaxis2"):
        layout[axis] |= _decades(values)
    return {"data": data, "layout": layout}


def roofline_figure(spots, methods: list[str], roofs, peak) -> dict:
    """TFLOP/s against operations per byte of the least traffic, under the roofs that were measured and, where there is
    one, the peak's."""
    data, where = [], []
    for method in methods:
        for which, symbol in (("forward", "circle"), ("backward", "diamond")):
            mine = [s for s in spots if s.method == method and s.which == which]
            if mine:
                x = [_intensity(s) for s in mine]
                where += x
                data.append(_trace(mine, "forward", methods, [s.tflops for s in mine], data) | {
                    "x": x, "mode": "markers",
                    "marker": {"symbol": symbol, "size": 8, "color": _colour(method, methods)},
                    "name": text(f"{method} {which}"), "showlegend": True, "hovertext": [_hover(s) for s in mine],
                })  # fmt: skip
    ridges = [1e3 * roofs[1] / roofs[0]] if roofs else []
    ridges += [1e3 * peak.tflops / peak.memory_GBps] if peak and peak.memory_GBps else []
    low, high = min(where + ridges) / 4, max(where + ridges) * 4
    if roofs:
        data.append(_roof(*roofs, low, high, "measured: copy and matrix product", "dash"))
    if peak and peak.memory_GBps:
        data.append(_roof(peak.memory_GBps, peak.tflops, low, high, f"datasheet: {peak.name}", "solid"))
    rates = [value for trace in data for value in trace["y"]]
    layout = {
        "height": 430, "margin": {"l": 64, "r": 14, "t": 20, "b": 46}, "hovermode": "closest",
        "xaxis": {"title": {"text": "FLOP per byte of the least traffic"}, **_decades([low, high])},
        "yaxis": {"title": {"text": "TFLOP/s"}, **_decades(rates)},
        "legend": {"x": 1.01, "y": 1},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _roof(memory_GBps: float, tflops: float, low: float, high: float, name: str, dash: str) -> dict:
    ridge = 1e3 * tflops / memory_GBps
    x = [low, ridge, high] if low < ridge < high else [low, high]
    y = [min(tflops, at * memory_GBps / 1e3) for at in x]
    told = f"{figure(memory_GBps)} GB/s, {figure(tflops)} TFLOP/s, ridge at {figure(ridge)} FLOP/byte"
    return {
        "type": "scatter", "mode": "lines", "name": text(name), "x": x, "y": y, "hoverinfo": "text",
        "line": {"color": _ROOF, "width": 1.6, "dash": dash}, "hovertext": [told] * len(x),
    }  # fmt: skip


def _intensity(spot) -> float:
    if spot.which == "forward":
        return forward_flops(spot.case) / forward_bytes(spot.case)
    return executed_backward_flops(spot.case) / backward_bytes(spot.case)


def _trace(line, which: str, methods: list[str], y: list[float], before: list[dict]) -> dict:
    method = line[0].method
    colour, (x_axis, y_axis) = _colour(method, methods), _SIDES[which]
    return {
        "type": "scatter", "mode": "lines+markers", "name": text(method), "legendgroup": text(method),
        "showlegend": not any(trace.get("legendgroup") == text(method) for trace in before),
        "x": [s.seqlen for s in line], "y": y, "xaxis": x_axis, "yaxis": y_axis,
        "line": {"color": colour, "width": 1.8}, "marker": {"size": 6, "color": colour},
        "hoverinfo": "text", "hovertext": [_hover(s) for s in line],
    }  # fmt: skip


def _hover(spot) -> str:
    told = [f"<b>{text(spot.method)} · {spot.which}</b>", f"sequence {spot.seqlen:,}"]
    told += [f"batch {spot.case.batch}, head dim {spot.case.dim}, {text(spot.case.mask)}"] if spot.case else []
    told += [f"{figure(spot.tflops)} TFLOP/s ({figure(spot.low)} – {figure(spot.high)})"]
    told += [f"{figure(spot.time_us / 1e3)} ms"] if spot.time_us else []
    told += (
        [f"{figure(spot.memory_bytes / 2**20)} MiB beyond inputs and result"] if spot.memory_bytes is not None else []
    )
    return "<br>".join(told)


def _colour(method: str, methods: list[str]) -> str:
    return _COLOURS[methods.index(method) % len(_COLOURS)]


def _two_sides(spots, unit: str, methods: list[str]) -> dict:
    lengths = sorted({spot.seqlen for spot in spots})
    step = -(-len(lengths) // 9)
    axis = {
        "type": "log", "title": {"text": "tokens of a sequence"}, "tickvals": lengths[::step],
        "ticktext": [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths[::step]],
        "range": [math.log10(lengths[0]) - 0.06, math.log10(lengths[-1]) + 0.06],
    }  # fmt: skip
    legend = 19 * math.ceil((len(methods) + 1) / 5)
    return {
        "height": 320 + legend, "margin": {"l": 64, "r": 14, "t": 14 + legend, "b": 46}, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis | {"domain": [0, 0.45]}, "xaxis2": axis | {"domain": [0.55, 1], "anchor": "y2"},
        "yaxis": {"title": {"text": f"forward, {unit}", "standoff": 10}},
        "yaxis2": {"title": {"text": f"backward, {unit}", "standoff": 10}, "anchor": "x2"},
    }  # fmt: skip


def _decades(values: list[float]) -> dict:
    """A logarithmic axis over the values, with ticks at 1, 2, 5 or at whole decades where these are many."""
    low, high = math.log10(min(values)), math.log10(max(values))
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [m * 10.0**k for k in range(math.floor(low) - 1, math.ceil(high) + 1) for m in steps]
    return {
        "type": "log", "range": [low - 0.15, high + 0.15], "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" if tick >= 1e-4 else f"{tick:.0e}" for tick in ticks],
    }  # fmt: skip
