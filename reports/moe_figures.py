"""The figures of the MoE page, as plain data for plotly."""

from itertools import product

import numpy as np

from commbench.reports.looks import text, time_axis
from commbench.reports.rows import figure
from commbench.units import format_size

_PLAIN, _PADDED, _BEFORE, _AFTER = "#3d85c6", "#c2557f", "#b42318", "#2e9e6b"
_SIZES = ("#9ec5e8", "#3d85c6", "#1d4e89", "#0b2545")
_DASH = {"all_to_all_v": "solid", "all_to_all_padded": "dot"}
_SPOT = {
    "selection": "diamond-open", "rank": "circle-open", "first_hop": "triangle-up-open",
    "second_hop": "triangle-down-open",
}  # fmt: skip


def copies_of(one) -> str:
    """What an exchange moves, a key of routing/recipe.py's COPIES."""
    return str(one.sample.point.params.get("copies", "selection"))


def moved_bytes(one) -> int:
    """What a rank sends on average: what was asked for, less where fewer copies than all selections move."""
    return one.asked_bytes if copies_of(one) == "selection" else round(one.sample.point.send_bytes / one.sent)


def skew_figure(found) -> dict:
    """Time, and the rate of the busiest rank, against what it receives over the mean.

    Lines are sweeps of a set ratio, one for each size (what a rank sends on average); diamonds are routers. What moves
    fewer copies of the same tokens stands apart.
    """
    sizes = sorted({one.asked_bytes for one in found})
    colour = {size: _SIZES[min(i, len(_SIZES) - 1)] for i, size in enumerate(sizes[-len(_SIZES) :])}
    shown = [one for one in found if one.asked_bytes in colour]
    data = []
    for op, size, copies in product(_DASH, colour, dict.fromkeys(map(copies_of, shown))):
        alike = [o for o in shown if (o.sample.point.op, o.asked_bytes, copies_of(o)) == (op, size, copies)]
        swept = sorted((o for o in alike if o.flow.startswith("ratio:")), key=lambda o: o.received)
        routers = [o for o in alike if not o.flow.startswith("ratio:")]
        name = format_size(size) + (", padded" if op == "all_to_all_padded" else "")
        fewer = "" if copies == "selection" else f", copies {copies}"
        symbol = _SPOT.get(copies, "x")
        data += _line(swept, name + fewer, colour[size], _DASH[op], "circle" if copies == "selection" else symbol)
        data += _spots(routers, f"{name}, routers{fewer}", colour[size], symbol)
    skews, times = [one.received for one in shown], [one.time_us for one in shown]
    axis = {"title": {"text": "busiest receiver / mean"}, "range": [0.9, max(1.1, 1.05 * max(skews))]}
    return {
        "data": data,
        "layout": {
            "height": 400,
            "margin": {"l": 64, "r": 14, "t": 60, "b": 46},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis | {"domain": [0, 0.45]},
            "xaxis2": axis | {"domain": [0.55, 1], "anchor": "y2"},
            "yaxis": {"title": {"text": "time, µs", "standoff": 10}} | time_axis(times),
            "yaxis2": {
                "title": {"text": "busiest rank, GB/s", "standoff": 10}, "anchor": "x2", "rangemode": "tozero"
            },
        },
    }  # fmt: skip


def _line(found, name: str, colour: str, dash: str, symbol: str) -> list[dict]:
    marker = {"size": 6 if symbol == "circle" else 9, "symbol": symbol}
    line = {"color": colour, "width": 1.8, "dash": dash}
    return _both(found, name, {"mode": "lines+markers", "line": line, "marker": marker})


def _spots(found, name: str, colour: str, symbol: str) -> list[dict]:
    return _both(found, name, {"mode": "markers", "marker": {"color": colour, "size": 9, "symbol": symbol}})


def _both(found, name: str, style: dict) -> list[dict]:
    """Time on the left, rate on the right, under one entry of the legend."""
    if not found:
        return []
    entry = {"type": "scatter", "name": name, "legendgroup": name, "hoverinfo": "text"} | style
    entry |= {"x": [round(one.received, 4) for one in found], "hovertext": [_hover(one) for one in found]}
    rates = [one.sample.point.size_bytes / one.time_us / 1e3 for one in found]
    return [
        entry | {"y": [one.time_us for one in found]},
        entry | {"y": rates, "xaxis": "x2", "yaxis": "y2", "showlegend": False},
    ]


def _hover(one) -> str:
    predicted = f"predicted {figure(one.predicted.time_us)} µs: {text(one.predicted.busiest)}" if one.predicted else ""
    told = [
        f"<b>{text(one.sample.point.op)}</b>, {text(one.flow)}",
        f"{format_size(moved_bytes(one))} a rank, sends {one.sent:.3g} x, receives {one.received:.3g} x the mean",
        f"time {figure(one.time_us)} µs, rank {one.busiest} busiest",
        predicted,
        f"padded: {one.padding:.2f} times as long" if one.padding else "",
    ]
    return "<br>".join(filter(None, told))


def traffic_figure(named: list[tuple[str, np.ndarray]]) -> dict:
    """Matrices of bytes from each rank to each, side by side: each cell over the mean of its matrix."""
    shares = [matrix / max(matrix.mean(), 1e-12) for _, matrix in named]
    top, wide = max(2.0, *(float(share.max()) for share in shares)), 1 / len(named)
    data, layout = [], {"height": 330, "margin": {"l": 50, "r": 14, "t": 34, "b": 46}, "annotations": []}
    for i, ((name, matrix), share) in enumerate(zip(named, shares)):
        n, end = len(matrix), "" if i == 0 else str(i + 1)
        hover = [
            [f"{src} to {dst}: {format_size(int(v))}" for dst, v in enumerate(row)] for src, row in enumerate(matrix)
        ]
        ticks = {"tickvals": list(range(0, n, max(1, n // 8))), "zeroline": False, "showgrid": False}
        data.append({
            "type": "heatmap", "z": np.round(share, 4).tolist(), "zmin": 0, "zmax": top, "xaxis": f"x{end}",
            "yaxis": f"y{end}", "colorscale": [[0, "#f4f7fb"], [0.5, "#6fa8dc"], [1, "#0b2545"]], "hoverinfo": "text",
            "hovertext": hover, "xgap": 1 if n <= 32 else 0, "ygap": 1 if n <= 32 else 0, "showscale": i == 0,
            "colorbar": {"title": {"text": "over<br>the mean"}, "thickness": 12},
        })  # fmt: skip
        domain = [i * wide, i * wide + wide - 0.05]
        layout[f"xaxis{end}"] = {"title": {"text": "to rank"}, "domain": domain, "anchor": f"y{end}"} | ticks
        layout[f"yaxis{end}"] = {"autorange": "reversed", "anchor": f"x{end}"} | ticks
        layout["annotations"].append({
            "text": text(name), "showarrow": False, "xref": "paper", "yref": "paper", "x": sum(domain) / 2, "y": 1,
            "xanchor": "center", "yanchor": "bottom",
        })  # fmt: skip
    layout["yaxis"]["title"] = {"text": "from rank"}
    return {"data": data, "layout": layout}


def load_figure(experts: np.ndarray, copies: np.ndarray, ranks_before: np.ndarray, ranks_after: np.ndarray) -> dict:
    """Left: selections of each expert, and of each copy after balancing, the busiest first. Right: of each rank."""
    data = []
    for name, colour, load in (("before", _BEFORE, experts), ("after", _AFTER, copies)):
        falling = np.sort(load)[::-1].tolist()
        data.append({
            "type": "scatter", "mode": "lines", "name": name, "legendgroup": name,
            "line": {"color": colour, "width": 1.8, "shape": "hv"}, "x": list(range(1, len(falling) + 1)), "y": falling,
            "hoverinfo": "text", "hovertext": [f"{name}: place {i}, {v} selections" for i, v in enumerate(falling, 1)],
        })  # fmt: skip
    for name, colour, load in (("before", _BEFORE, ranks_before), ("after", _AFTER, ranks_after)):
        data.append({
            "type": "bar", "name": name, "legendgroup": name, "showlegend": False, "xaxis": "x2", "yaxis": "y2",
            "marker": {"color": colour}, "x": list(range(len(load))), "y": load.tolist(), "hoverinfo": "text",
            "hovertext": [f"{name}: rank {i}, {v} selections" for i, v in enumerate(load.tolist())],
        })  # fmt: skip
    return {
        "data": data,
        "layout": {
            "height": 320,
            "margin": {"l": 64, "r": 14, "t": 34, "b": 46},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
            "xaxis": {"title": {"text": "experts and copies, busiest first"}, "domain": [0, 0.45]},
            "yaxis": {"title": {"text": "selections", "standoff": 10}, "rangemode": "tozero"},
            "xaxis2": {"title": {"text": "rank"}, "domain": [0.55, 1], "anchor": "y2"},
            "yaxis2": {"title": {"text": "selections received", "standoff": 10}, "anchor": "x2", "rangemode": "tozero"},
        },
    }  # fmt: skip
