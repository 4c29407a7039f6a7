"""Bus bandwidth and time against the size, as a plotly figure in plain data: {"data", "layout"}.

The page adds the colours of ink and grid, which differ between light and dark.
"""

import math

from commbench.reports.looks import WRONG_COLOUR, hover, hover_wrong, names, symbols, time_axis
from commbench.reports.series import Panel, Series, Spot
from commbench.units import format_size

_LEGEND_COLUMNS, _LEGEND_ROW = 3, 19


def size_ticks(sizes: list[int]) -> tuple[list[int], list[str]]:
    """At most nine powers of two that span the rising `sizes`, and their names."""
    first, last = math.floor(math.log2(sizes[0])), math.ceil(math.log2(sizes[-1]))
    step = next(step for step in (1, 2, 3, 4, 5, 8, 10, 20) if (last - first) / step <= 8)
    values = [2**k for k in range(first, last + 1, step)]
    return values, [format_size(value) for value in values]


def line_figure(panel: Panel, paint) -> dict:
    """The lines of a panel: busbw on the left, time on the right, under one legend."""
    data, named = [], set()
    for series, name, symbol in zip(panel.lines, names(panel, panel.lines), symbols(panel), strict=True):
        entry = {"type": "scatter", "name": name, "legendgroup": name}
        if not panel.many_groups:
            data += _bands(series, paint(panel, series), entry)
        style = {
            "line": {
                "color": paint(panel, series),
                "width": 1 if panel.many_groups else 1.8,
                "dash": "dot" if series.in_place else "solid",
            },
            "marker": {"symbol": symbol, "size": 4 if panel.many_groups else 6},
        }
        data += _lines(series, entry | style | {"showlegend": name not in named})
        named.add(name)
    return {"data": data + _wrong(panel), "layout": _layout(panel, len(named))}


def _layout(panel: Panel, legend_entries: int) -> dict:
    sizes = sorted({x for one in panel.lines for x in (*one.gaps, *(s.size_bytes for s in one.spots)) if x > 0})
    values, words = size_ticks(sizes)
    size_axis = {
        "type": "log", "title": {"text": "size, bytes"}, "tickvals": values, "ticktext": words,
        "range": [math.log10(sizes[0]) - 0.12, math.log10(sizes[-1]) + 0.12],
    }  # fmt: skip
    times = [time for one in panel.lines for spot in one.spots for time in (spot.time_us, *(spot.band_us or ()))]
    times += [row.time_us for one in panel.lines for row in one.wrong]
    legend = _LEGEND_ROW * math.ceil(legend_entries / _LEGEND_COLUMNS)
    layout = {
        "height": 330 + legend,
        "margin": {"l": 64, "r": 14, "t": 14 + legend, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
        "xaxis": size_axis | {"domain": [0, 0.45]},
        "xaxis2": size_axis | {"domain": [0.55, 1], "anchor": "y2"},
        "yaxis": {"title": {"text": "busbw, GB/s", "standoff": 10}, "rangemode": "tozero"},
        "yaxis2": {"title": {"text": "time, µs", "standoff": 10}, "anchor": "x2"} | time_axis(times),
    }
    if panel.first.ranks < 2:
        layout["annotations"] = [{
            "text": "busbw does not apply to one rank", "showarrow": False,
            "xref": "paper", "yref": "paper", "x": 0.2, "y": 0.5,
        }]  # fmt: skip
    return layout


def _lines(series: Series, entry: dict) -> list[dict]:
    # None between two runs breaks the line where a size was measured without a good result.
    spots = [spot for run in _runs(series) for spot in (*run, None)][:-1]
    if not spots:
        return []
    common = entry | {
        "mode": "lines+markers", "hoverinfo": "text",
        "x": [spot and spot.size_bytes for spot in spots],
        "hovertext": [spot and hover(series, spot) for spot in spots],
    }  # fmt: skip
    time = common | {"y": [spot and spot.time_us for spot in spots], "xaxis": "x2", "yaxis": "y2"}
    if not spots[0].busbw_GBps:
        return [time]
    return [common | {"y": [spot and spot.busbw_GBps for spot in spots]}, time | {"showlegend": False}]


def _bands(series: Series, colour: str, entry: dict) -> list[dict]:
    made = []
    for axis, band_of in (("", lambda spot: spot.busbw_band_GBps), ("2", lambda spot: spot.band_us)):
        x, y = [], []
        for run in _runs(series):
            known = [(spot.size_bytes, band_of(spot)) for spot in run if band_of(spot)]
            x += [size for size, _ in known] + [size for size, _ in reversed(known)] + [None]
            y += [band[0] for _, band in known] + [band[1] for _, band in reversed(known)] + [None]
        made.append(entry | {
            "mode": "lines", "x": x[:-1], "y": y[:-1], "xaxis": f"x{axis}", "yaxis": f"y{axis}",
            "fill": "toself", "fillcolor": colour + "2e", "line": {"width": 0, "color": colour},
            "hoverinfo": "skip", "showlegend": False,
        })  # fmt: skip
    return [band for band in made if any(band["x"])]


def _runs(series: Series) -> list[list[Spot]]:
    """The spots with a size, cut where a gap lies between two of them."""
    runs, last = [], None
    for spot in series.sized:
        if last is None or any(last < gap < spot.size_bytes for gap in series.gaps):
            runs.append([])
        runs[-1].append(spot)
        last = spot.size_bytes
    return runs


def _wrong(panel: Panel) -> list[dict]:
    rows = [(series, row) for series in panel.lines for row in series.wrong if row.point.size_bytes > 0]
    made = []
    for axis, value_of in (("", lambda row: row.busbw_GBps), ("2", lambda row: row.time_us)):
        drawn = [(series, row) for series, row in rows if value_of(row) is not None]
        if drawn:
            made.append({
                "type": "scatter", "mode": "markers", "name": "wrong data", "legendgroup": "wrong data",
                "showlegend": not made, "xaxis": f"x{axis}", "yaxis": f"y{axis}",
                "x": [row.point.size_bytes for _, row in drawn], "y": [value_of(row) for _, row in drawn],
                "marker": {"symbol": "x", "size": 11, "color": WRONG_COLOUR},
                "hoverinfo": "text", "hovertext": [hover_wrong(series, row) for series, row in drawn],
            })  # fmt: skip
    return made
