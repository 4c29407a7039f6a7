"""Dots in rows, bus bandwidth on the left and time on the right: the overview, and what has no line over sizes."""

from dataclasses import dataclass

from commbench.reports.looks import hover, text, time_axis
from commbench.reports.series import Panel, Series, Spot, apart
from commbench.units import format_size


@dataclass(frozen=True)
class _Dot:
    """`row` counts from the top; `left` and `right` are the spots whose busbw and time are shown; `notes` stand beside."""

    row: int
    series: Series
    left: Spot
    right: Spot
    notes: tuple[str, str] = ("", "")


def overview_figure(panels: list[Panel], colour: dict[str, str]) -> dict:
    """A row for each panel: the bus bandwidth of each line at its largest size, its time at its smallest."""
    dots = []
    for row, panel in enumerate(panels):
        shown = [series for series in panel.lines or panel.variants if series.spots]
        sizes = [spot.size_bytes for series in shown for spot in series.sized]
        ends = (min(sizes, default=0), max(sizes, default=0))
        for series in shown:
            drawn = series.sized or series.spots
            notes = tuple(
                "" if spot.size_bytes == end else f"at {format_size(spot.size_bytes)}"
                for spot, end in ((drawn[-1], ends[1]), (drawn[0], ends[0]))
            )
            dots.append(_Dot(row, series, drawn[-1], drawn[0], notes))
    names = [text(panel.op) + _place(panel, panels) for panel in panels]
    return _figure(dots, names, colour, ("busbw at the largest size, GB/s", "time at the smallest size, µs"), spacing=30)


def variants_figure(panel: Panel, colour: dict[str, str]) -> dict:
    """A row for each size and way of measuring of the series that have no line."""
    rows, dots = {}, []
    told = zip(panel.variants, apart(panel.variants), strict=True)
    spots = [(spot, series, words) for series, words in told for spot in series.spots]
    for spot, series, words in sorted(spots, key=lambda found: found[0].size_bytes):
        size = [format_size(spot.size_bytes)] if spot.size_bytes else []
        group = [series.group] if panel.shows_group else []
        row = rows.setdefault(text(" · ".join([*size, *group, *words]) or panel.op, 90), len(rows))
        dots.append(_Dot(row, series, spot, spot))
    return _figure(dots, list(rows), colour, ("busbw, GB/s", "time, µs"), spacing=20)


def _place(panel: Panel, panels: list[Panel]) -> str:
    """What tells this panel from the others of its operation."""
    others = [one.first for one in panels if one.op == panel.op and one is not panel]
    point, words = panel.first, []
    if any(other.ranks != point.ranks for other in others):
        words.append(f"{point.ranks} ranks")
    if any(other.ranks == point.ranks for other in others):
        words += [text(point.group.rpartition(" #")[0] or point.group, 30), point.scope]
    return f" ({', '.join(words)})" if words else ""


def _figure(dots: list[_Dot], names: list[str], colour: dict[str, str], titles: tuple[str, str], spacing: int) -> dict:
    backends = list(dict.fromkeys(dot.series.backend for dot in dots))
    lanes = min(0.22, 0.66 / len(backends))
    data, named = [], set()
    has_busbw = any(dot.left.busbw_GBps for dot in dots)
    for dot in dots:
        y = dot.row + (backends.index(dot.series.backend) - (len(backends) - 1) / 2) * lanes
        name = text(dot.series.backend) + (" in place" if dot.series.in_place else "")
        for axis, spot, value, band, note in (
            ("x", dot.left, dot.left.busbw_GBps, dot.left.busbw_band_GBps, dot.notes[0]),
            ("x2" if has_busbw else "x", dot.right, dot.right.time_us, dot.right.band_us, dot.notes[1]),
        ):
            if value is None:
                continue
            low, high = band or (value, value)
            data.append({
                "type": "scatter", "mode": "markers+text" if note else "markers", "x": [value], "y": [y], "xaxis": axis,
                "name": name, "legendgroup": name, "showlegend": name not in named, "opacity": 0.85,
                "marker": {"color": colour[dot.series.backend], "size": 8,
                           "line": {"color": colour[dot.series.backend], "width": 1.6}, "symbol": "circle-open" if dot.series.in_place else "circle"},
                "error_x": {"type": "data", "symmetric": False, "array": [high - value], "arrayminus": [value - low],
                            "color": colour[dot.series.backend], "thickness": 1, "width": 0},
                "text": [note], "textposition": "middle right", "textfont": {"size": 10},
                "hoverinfo": "text", "hovertext": [hover(dot.series, spot)],
            })  # fmt: skip
            named.add(name)
    bandwidth = {"title": {"text": titles[0]}, "rangemode": "tozero", "domain": [0, 0.48]}
    times = [time for dot in dots for time in (dot.right.time_us, *(dot.right.band_us or ()))]
    time = {"title": {"text": titles[1]}, "domain": [0.52, 1] if has_busbw else [0, 1]} | time_axis(times)
    layout = {
        "height": 100 + spacing * len(names),
        "margin": {"l": 24 + 7 * max(len(name) for name in names), "r": 14, "t": 34, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        **({"xaxis": bandwidth, "xaxis2": time} if has_busbw else {"xaxis": time}),
        "yaxis": {"tickvals": list(range(len(names))), "ticktext": names, "zeroline": False,
                  "range": [len(names) - 0.5, -0.5]},
    }  # fmt: skip
    return {"data": data, "layout": layout}
