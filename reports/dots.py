"""Dots in rows, bus bandwidth on the left and time on the right: the overview, and what has no line over sizes."""

from dataclasses import dataclass

from commbench.reports.looks import WRONG_COLOUR, hover, hover_wrong, text, time_axis
from commbench.reports.rows import Row
from commbench.reports.series import Panel, Series, Spot, apart
from commbench.units import format_size


@dataclass(frozen=True)
class _Mark:
    """One dot, or the cross of a row with wrong data. `row` counts from the top, `side` is "busbw" or "time"."""

    row: int
    side: str
    series: Series
    value: float | None
    band: tuple[float, float] | None
    hover: str
    note: str = ""
    wrong: bool = False


def overview_figure(panels: list[Panel], colour: dict[str, str]) -> dict | None:
    """A row for each panel, or for each algorithm of one that compares them: the bus bandwidth of each line at its
    largest size, its time at its smallest. None when no row is ok.
    """
    marks, names = [], []
    for panel in panels:
        shown = [series for series in panel.lines or panel.variants if series.spots]
        sizes = [spot.size_bytes for series in shown for spot in series.sized]
        rows = dict.fromkeys(series.algorithm if panel.by_algorithm else "" for series in shown)
        rows = {algorithm: len(names) + i for i, algorithm in enumerate(rows)}
        names += [text(panel.op) + _place(panel, panels, algorithm) for algorithm in rows]
        for series in shown:
            row, drawn = rows[series.algorithm if panel.by_algorithm else ""], series.sized or series.spots
            marks.append(_busbw(row, series, drawn[-1], max(sizes, default=0)))
            marks.append(_time(row, series, drawn[0], min(sizes, default=0)))
    titles = ("busbw at the largest size, GB/s", "time at the smallest size, µs")
    return _figure(marks, names, colour, titles, spacing=30) if marks else None


def variants_figure(panel: Panel, colour: dict[str, str]) -> dict:
    """A row for each size and way of measuring of the series that have no line; wrong data is a red cross."""
    rows, marks = {}, []
    told = zip(panel.variants, apart(panel.variants), strict=True)
    found = [(one, series, words) for series, words in told for one in (*series.spots, *series.wrong)]
    for one, series, words in sorted(found, key=lambda item: item[0].point.size_bytes):
        size = [format_size(one.point.size_bytes)] if one.point.size_bytes else []
        group = [series.group] if panel.shows_group else []
        row = rows.setdefault(text(" · ".join([*size, *group, *words]) or panel.op, 90), len(rows))
        if isinstance(one, Row):
            marks += _crosses(row, series, one)
        else:
            marks += [_busbw(row, series, one), _time(row, series, one)]
    return _figure(marks, list(rows), colour, ("busbw, GB/s", "time, µs"), spacing=20)


def _busbw(row: int, series: Series, spot: Spot, wanted: int | None = None) -> _Mark:
    return _Mark(row, "busbw", series, spot.busbw_GBps, spot.busbw_band_GBps, hover(series, spot), _note(spot, wanted))


def _time(row: int, series: Series, spot: Spot, wanted: int | None = None) -> _Mark:
    return _Mark(row, "time", series, spot.time_us, spot.band_us, hover(series, spot), _note(spot, wanted))


def _note(spot: Spot, wanted: int | None) -> str:
    """The size, where it is not the one that the figure speaks of."""
    return "" if wanted is None or spot.size_bytes == wanted else f"at {format_size(spot.size_bytes)}"


def _crosses(row: int, series: Series, wrong: Row) -> list[_Mark]:
    values = {"busbw": wrong.busbw_GBps, "time": wrong.time_us}
    return [_Mark(row, side, series, v, None, hover_wrong(series, wrong), wrong=True) for side, v in values.items()]


def _place(panel: Panel, panels: list[Panel], algorithm: str) -> str:
    """What tells this panel from the others of its operation, and the algorithm where it compares several."""
    others = [one.first for one in panels if one.op == panel.op and one is not panel]
    point, words = panel.first, []
    if panel.by_algorithm:
        words += [text(point.backend, 30), text(algorithm, 30)]
    if any(other.ranks != point.ranks for other in others):
        words.append(f"{point.ranks} ranks")
    if any(other.ranks == point.ranks and not panel.by_algorithm for other in others):
        words += [text(point.group.rpartition(" #")[0] or point.group, 30), point.scope]
    if panel.oversubscribed:
        words.append("oversubscribed")
    return f" ({', '.join(words)})" if words else ""


def _figure(marks: list[_Mark], names: list[str], colour: dict[str, str], titles, spacing: int) -> dict:
    """`titles`: of the two axes. `spacing`: pixels for a row."""
    marks = [mark for mark in marks if mark.value is not None]
    backends = list(dict.fromkeys(mark.series.backend for mark in marks))
    two = any(mark.side == "busbw" for mark in marks)
    axes = {"busbw": "x", "time": "x2" if two else "x"}
    data, named = [], set()
    for mark in marks:
        lane = (backends.index(mark.series.backend) - (len(backends) - 1) / 2) * min(0.22, 0.66 / len(backends))
        trace = _trace(mark, colour[mark.series.backend]) | {"y": [mark.row + lane], "xaxis": axes[mark.side]}
        data.append(trace | {"showlegend": trace["name"] not in named})
        named.add(trace["name"])
    widest = max((max(mark.band or (mark.value,)) for mark in marks if mark.side == "busbw"), default=0)
    bandwidth = {"title": {"text": titles[0]}, "range": [-0.02 * widest, 1.06 * widest], "domain": [0, 0.48]}
    times = [time for mark in marks if mark.side == "time" for time in (mark.value, *(mark.band or ()))]
    time = {"title": {"text": titles[1]}, "domain": [0.52, 1] if two else [0, 1]} | time_axis(times)
    layout = {
        "height": 100 + spacing * len(names),
        "margin": {"l": 24 + 7 * max(len(name) for name in names), "r": 14, "t": 34, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        **({"xaxis": bandwidth, "xaxis2": time} if two else {"xaxis": time}),
        "yaxis": {
            "tickvals": list(range(len(names))), "ticktext": names, "zeroline": False,
            "range": [len(names) - 0.5, -0.5],
        },
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _trace(mark: _Mark, colour: str) -> dict:
    name = "wrong data" if mark.wrong else text(mark.series.backend) + (" in place" if mark.series.in_place else "")
    low, high = mark.band or (mark.value, mark.value)
    dot = {
        "color": colour, "size": 8, "symbol": "circle-open" if mark.series.in_place else "circle",
        "line": {"color": colour, "width": 1.6},
    }  # fmt: skip
    return {
        "type": "scatter", "mode": "markers+text" if mark.note else "markers", "x": [mark.value],
        "name": name, "legendgroup": name, "opacity": 0.85,
        "marker": {"color": WRONG_COLOUR, "size": 11, "symbol": "x"} if mark.wrong else dot,
        "error_x": {
            "type": "data", "symmetric": False, "array": [high - mark.value], "arrayminus": [mark.value - low],
            "color": colour, "thickness": 1, "width": 0,
        },
        "text": [mark.note], "textposition": "middle right", "textfont": {"size": 10},
        "hoverinfo": "text", "hovertext": [mark.hover],
    }  # fmt: skip
