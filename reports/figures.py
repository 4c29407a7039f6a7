"""The plotly figures, as plain dicts: {"data", "layout"}. Colours of ink and grid come from the page (light or dark).

Names from the run are escaped, since plotly reads a subset of HTML in every text.
"""

import html
import math

from commbench.reports.rows import Row, figure, span
from commbench.reports.series import Panel, Series, Spot
from commbench.units import format_size

COLOURS = {"gloo": "#3d85c6", "nccl": "#2e9e6b", "mpi": "#e08a1e"}
_OTHER_COLOURS = ("#9a6fc4", "#c2557f", "#8a8f2d", "#7a7a7a")
WRONG_COLOUR = "#e0312d"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagon")


def colours(backends: list[str]) -> dict[str, str]:
    """One colour a backend, the same in every figure and on every page."""
    others = [backend for backend in backends if backend not in COLOURS]
    return COLOURS | {backend: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, backend in enumerate(others)}


def text(value, limit: int = 60) -> str:
    """`value` for a text in a figure: cut to `limit` characters, with nothing in it that plotly reads as HTML."""
    words = str(value)
    return html.escape(words if len(words) <= limit else words[: limit - 1] + "…", quote=False)


def size_ticks(sizes: list[int]) -> tuple[list[int], list[str]]:
    """At most nine powers of two that span `sizes`, and their names."""
    first, last = math.floor(math.log2(sizes[0])), math.ceil(math.log2(sizes[-1]))
    step = next(step for step in (1, 2, 3, 4, 5, 8, 10, 20) if (last - first) / step <= 8)
    values = [2**k for k in range(first, last + 1, step)]
    return values, [format_size(value) for value in values]


def size_figure(panel: Panel, colour: dict[str, str]) -> dict:
    """Bus bandwidth and time of one operation against the size, side by side under one legend."""
    symbols = _symbols(panel)
    data, named = [], set()
    for series in panel.series:
        style = _style(series, panel, colour, symbols)
        name = text(series.name(with_group=len(panel.groups) > 1 and not panel.many_groups))
        entry = {"name": name, "legendgroup": name}
        if not panel.many_groups:
            data += _bands(series, style["line"]["color"], entry)
        data += _lines(series, style, entry | {"showlegend": name not in named})
        named.add(name)
    data += _wrong(panel)
    values, names = size_ticks(panel.sizes)
    low, high = math.log10(panel.sizes[0]), math.log10(panel.sizes[-1])
    size_axis = {
        "type": "log", "title": {"text": "size, bytes"}, "tickvals": values, "ticktext": names,
        "range": [low - 0.12, high + 0.12],
    }  # fmt: skip
    legend_rows = math.ceil(len(named) / 3)
    layout = {
        "height": 330 + 19 * legend_rows,
        "margin": {"l": 62, "r": 14, "t": 14 + 19 * legend_rows, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
        "xaxis": size_axis | {"domain": [0, 0.46]},
        "xaxis2": size_axis | {"domain": [0.54, 1], "anchor": "y2"},
        "yaxis": {"title": {"text": "busbw, GB/s"}, "rangemode": "tozero"},
        "yaxis2": {"title": {"text": "time, µs"}, "type": "log", "anchor": "x2"} | _log_ticks(panel),
    }
    if panel.ranks < 2:
        layout["annotations"] = [_note("busbw does not apply to one rank")]
        layout["yaxis"] |= {"showticklabels": False, "range": [0, 1]}
    return {"data": data, "layout": layout}


def unsized_figure(panel: Panel, colour: dict[str, str]) -> dict:
    """The time of an operation without a size: one dot a series, with its band."""
    data, labels = [], []
    for series in panel.series:
        for spot in series.spots:
            label = text(series.name(with_group=len(panel.groups) > 1))
            low, high = spot.band_us or (spot.time_us, spot.time_us)
            labels.append(label)
            data.append({
                "type": "scatter", "mode": "markers", "showlegend": False, "x": [spot.time_us], "y": [label],
                "marker": {"color": colour[series.backend], "size": 10},
                "error_x": {"type": "data", "symmetric": False, "array": [high - spot.time_us],
                            "arrayminus": [spot.time_us - low], "color": colour[series.backend]},
                "hoverinfo": "text", "hovertext": [_hover(series, spot)],
            })  # fmt: skip
    layout = {
        "height": 90 + 24 * len(labels),
        "margin": {"l": 20, "r": 14, "t": 10, "b": 46},
        "hovermode": "closest",
        "xaxis": {"title": {"text": "time, µs"}, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "autorange": "reversed", "type": "category"},
    }
    return {"data": data, "layout": layout}


def overview_figure(panels: list[Panel], colour: dict[str, str], backends: list[str]) -> dict:
    """A row for each panel: the bus bandwidth of each series at its largest size, its time at its smallest."""
    several = len({panel.ranks for panel in panels}) > 1
    data, named = [], set()
    for place, panel in enumerate(panels):
        largest, smallest = max(panel.sizes, default=0), min(panel.sizes, default=0)
        for series in (s for s in panel.series if s.spots):
            name = text(series.backend) + (" in place" if series.in_place else "")
            row = place + (backends.index(series.backend) - (len(backends) - 1) / 2) * min(0.22, 0.66 / len(backends))
            symbol = "circle-open" if series.in_place else "circle"
            drawn = [spot for spot in series.spots if spot.point.size_bytes > 0] or series.spots
            for spot, value, reference, axis in (
                (drawn[-1], drawn[-1].busbw_GBps, largest, ""), (drawn[0], drawn[0].time_us, smallest, "2"),
            ):  # fmt: skip
                if value is None:
                    continue
                elsewhere = spot.point.size_bytes != reference
                data.append({
                    "type": "scatter", "mode": "markers+text" if elsewhere else "markers", "x": [value], "y": [row],
                    "xaxis": f"x{axis}", "yaxis": "y", "name": name, "legendgroup": name,
                    "showlegend": name not in named, "opacity": 0.85,
                    "marker": {"color": colour[series.backend], "symbol": symbol, "size": 8, "line": {"width": 1.6}},
                    "text": [f"at {format_size(spot.point.size_bytes)}" if elsewhere else ""],
                    "textposition": "middle right", "textfont": {"size": 10},
                    "hoverinfo": "text", "hovertext": [_hover(series, spot)],
                })  # fmt: skip
                named.add(name)
    names = [text(panel.op) + (f" ({panel.ranks} ranks)" if several else "") for panel in panels]
    layout = {
        "height": 110 + 30 * len(panels),
        "margin": {"l": 20, "r": 14, "t": 34, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "xaxis": {"title": {"text": "busbw at the largest size, GB/s"}, "rangemode": "tozero", "domain": [0, 0.48]},
        "xaxis2": {"title": {"text": "time at the smallest size, µs"}, "type": "log", "domain": [0.52, 1]},
        "yaxis": {"tickvals": list(range(len(panels))), "ticktext": names, "automargin": True, "zeroline": False,
                  "range": [len(panels) - 0.5, -0.5]},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _symbols(panel: Panel) -> dict[tuple, str]:
    """A marker for each way of measuring; in place and out of place share theirs, open and filled."""
    looks = dict.fromkeys(_look(series, panel) for series in panel.series)
    return {look: _SYMBOLS[i % len(_SYMBOLS)] for i, look in enumerate(looks)}


def _look(series: Series, panel: Panel) -> tuple:
    traits = tuple(trait for trait in series.traits if trait not in ("in place", "out of place"))
    return traits if panel.many_groups else (series.group, *traits)


def _style(series: Series, panel: Panel, colour: dict[str, str], symbols: dict[tuple, str]) -> dict:
    symbol = symbols[_look(series, panel)] + ("-open" if series.in_place else "")
    return {
        "line": {
            "color": colour[series.backend],
            "width": 1 if panel.many_groups else 1.8,
            "dash": "dot" if series.in_place else "solid",
        },
        "marker": {"symbol": symbol, "size": 4 if panel.many_groups else 6},
    }


def _lines(series: Series, style: dict, entry: dict) -> list[dict]:
    runs = _runs(series)
    # None between two runs breaks the line where a size was measured without a good result.
    spots = [spot for run in runs for spot in (*run, None)][:-1]
    common = {
        "type": "scatter", "mode": "lines+markers", "hoverinfo": "text", **style,
        "x": [spot and spot.point.size_bytes for spot in spots],
        "hovertext": [spot and _hover(series, spot) for spot in spots],
    }  # fmt: skip
    time = common | entry | {"y": [spot and spot.time_us for spot in spots], "xaxis": "x2", "yaxis": "y2"}
    if not any(run[0].busbw_GBps for run in runs):
        return [time] if runs else []
    busbw = common | entry | {"y": [spot and spot.busbw_GBps for spot in spots], "xaxis": "x", "yaxis": "y"}
    return [busbw, time | {"showlegend": False}]


def _bands(series: Series, colour: str, entry: dict) -> list[dict]:
    made = []
    for axis, band_of in (("", lambda spot: spot.busbw_band_GBps), ("2", lambda spot: spot.band_us)):
        x, y = [], []
        for run in _runs(series):
            known = [(spot.point.size_bytes, band_of(spot)) for spot in run if band_of(spot)]
            x += [size for size, _ in known] + [size for size, _ in reversed(known)] + [None]
            y += [band[0] for _, band in known] + [band[1] for _, band in reversed(known)] + [None]
        made.append(entry | {
            "type": "scatter", "mode": "lines", "x": x[:-1], "y": y[:-1], "fill": "toself", "fillcolor": colour + "2e",
            "line": {"width": 0, "color": colour}, "hoverinfo": "skip", "showlegend": False,
            "xaxis": f"x{axis}", "yaxis": f"y{axis}",
        })  # fmt: skip
    return [band for band in made if any(band["x"])]


def _runs(series: Series) -> list[list[Spot]]:
    """The spots with a size, cut where a gap lies between two of them."""
    runs, last = [], None
    for spot in (spot for spot in series.spots if spot.point.size_bytes > 0):
        size = spot.point.size_bytes
        if last is None or any(last < gap < size for gap in series.gaps):
            runs.append([])
        runs[-1].append(spot)
        last = size
    return runs


def _wrong(panel: Panel) -> list[dict]:
    rows = [(series, row) for series in panel.series for row in series.wrong if row.point.size_bytes > 0]
    made = []
    for axis, value_of in (("", lambda row: row.busbw_GBps), ("2", lambda row: row.time_us)):
        drawn = [(series, row) for series, row in rows if value_of(row) is not None]
        if drawn:
            made.append({
                "type": "scatter", "mode": "markers", "name": "wrong data", "legendgroup": "wrong data",
                "showlegend": not made, "xaxis": f"x{axis}", "yaxis": f"y{axis}",
                "x": [row.point.size_bytes for _, row in drawn], "y": [value_of(row) for _, row in drawn],
                "marker": {"symbol": "x", "size": 11, "color": WRONG_COLOUR},
                "hoverinfo": "text", "hovertext": [_hover_wrong(series, row) for series, row in drawn],
            })  # fmt: skip
    return made


def _log_ticks(panel: Panel) -> dict:
    """Whole decades once there are two of them; plotly's own choice for less."""
    times = [spot.time_us for series in panel.series for spot in series.spots]
    return {"dtick": 1} if times and max(times) / min(times) > 100 else {}


def _note(words: str) -> dict:
    return {"text": words, "showarrow": False, "xref": "x domain", "yref": "y domain", "x": 0.5, "y": 0.5}


def _hover(series: Series, spot: Spot) -> str:
    row, launches = spot.rows[-1], len(spot.rows)
    band = "95 % interval, within one launch" if launches == 1 else f"lowest to highest of {launches} launches"
    samples = sum(len(r.sample.samples_us) for r in spot.rows)
    stopped = ", ".join(dict.fromkeys(r.sample.stop_reason for r in spot.rows if r.sample.stop_reason))
    return "<br>".join([
        *_what(series, row),
        f"time {figure(spot.time_us)} µs ({span(spot.band_us)}: {band})",
        *([f"busbw {figure(spot.busbw_GBps)} GB/s ({span(spot.busbw_band_GBps)})"] if spot.busbw_GBps else []),
        "data not checked" if row.sample.wrong is None else f"#wrong {row.sample.wrong}",
        f"{samples} samples" + (f", stopped: {text(stopped)}" if stopped else ""),
        f"algorithm seen: {text(row.sample.algorithm_seen)}",
        *(["oversubscribed: more ranks than cores"] if row.sample.oversubscribed else []),
    ])  # fmt: skip


def _hover_wrong(series: Series, row: Row) -> str:
    wrong = f"<b>WRONG DATA: {row.sample.wrong} elements</b>, launch {row.sample.launch}"
    return "<br>".join([*_what(series, row), wrong, text(row.sample.reason, 90)])


def _what(series: Series, row: Row) -> list[str]:
    point = row.point
    size = f"{format_size(point.size_bytes)} ({point.size_bytes:,} bytes), " if point.size_bytes else ""
    return [
        f"<b>{text(point.op)} · {text(series.name(with_group=False))}</b>",
        f"{size}group {text(point.group)}, {point.ranks} ranks",
    ]
