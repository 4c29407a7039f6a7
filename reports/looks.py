"""What all figures share: a colour for each backend, markers, and the texts that hovering shows.

Names from the run are escaped, since plotly reads a subset of HTML in every text.
"""

import html
import math
from collections.abc import Callable, Sequence

from commbench.reports.rows import Row, figure, span
from commbench.reports.series import Panel, Series, Spot, apart
from commbench.units import format_size

_COLOURS = {"gloo": "#3d85c6", "nccl": "#2e9e6b", "mpi": "#e08a1e"}
_OTHER_COLOURS = ("#9a6fc4", "#c2557f", "#8a8f2d", "#7a7a7a")
# Where algorithms are compared, each has a colour of its own instead; the library's choice keeps its backend's.
_ALGORITHM_COLOURS = (
    "#c2557f", "#7a5bb5", "#8c564b", "#12a3a8", "#a39a1f", "#5f6c7b", "#b04a8f", "#4f5bd5", "#7f9f3f",
)  # fmt: skip
WRONG_COLOUR = "#e0312d"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagon")


def colours(backends: list[str]) -> dict[str, str]:
    """One colour a backend; the well-known ones have theirs on every page."""
    others = [backend for backend in backends if backend not in _COLOURS]
    return _COLOURS | {backend: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, backend in enumerate(others)}


def algorithm_colours(names: Sequence[str]) -> dict[str, str]:
    """One colour an algorithm, where several are compared."""
    return {name: _ALGORITHM_COLOURS[i % len(_ALGORITHM_COLOURS)] for i, name in enumerate(names)}


def painter(panels: Sequence[Panel], colour: dict[str, str]) -> Callable[[Panel, Series], str]:
    """The colour of a series in a panel: of its algorithm where the panel compares them, else of its backend."""
    compared = [one.algorithm for panel in panels if panel.by_algorithm for one in panel.lines + panel.variants]
    known = [name for name in dict.fromkeys(compared) if name != "library"]
    own = algorithm_colours(known)

    def paint(panel: Panel, series: Series) -> str:
        return own.get(series.algorithm, colour[series.backend]) if panel.by_algorithm else colour[series.backend]

    return paint


def text(value, limit: int = 60) -> str:
    """`value` for a text in a figure: cut to `limit` characters, with nothing in it that plotly reads as HTML."""
    words = str(value)
    return html.escape(words if len(words) <= limit else words[: limit - 1] + "…", quote=False)


def time_axis(times_us: list[float]) -> dict:
    """A logarithmic axis of microseconds, with ticks at 1, 2 and 5 or at whole decades where there are many."""
    low, high = math.floor(math.log10(min(times_us))), math.ceil(math.log10(max(times_us)))
    for mantissas in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [m * 10.0**k for k in range(low, high + 1) for m in mantissas]
        if sum(min(times_us) <= tick <= max(times_us) for tick in ticks) >= 3:
            return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}
    return {"type": "log"}  # less than a third of a decade: plotly's own ticks


def names(panel: Panel, series: Sequence[Series]) -> list[str]:
    """The name of each of `series` in a legend; groups that share a look share a name."""
    parts = [
        (one.backend, *([one.group] if panel.shows_group else []), *words)
        for one, words in zip(series, apart(series), strict=True)
    ]
    return [text(" · ".join(part), 90) for part in parts]


def symbols(panel: Panel) -> list[str]:
    """A marker for each line of the panel; in place and out of place share theirs, open and filled."""
    looks = [
        (one.group if panel.shows_group else "", *(w for w in told if w not in ("in place", "out of place")))
        for one, told in zip(panel.lines, apart(panel.lines), strict=True)
    ]
    known = list(dict.fromkeys(looks))
    return [
        _SYMBOLS[known.index(look) % len(_SYMBOLS)] + ("-open" if one.in_place else "")
        for look, one in zip(looks, panel.lines, strict=True)
    ]


def hover(series: Series, spot: Spot) -> str:
    """All there is to say of one spot."""
    sample, launches = spot.rows[-1].sample, len(spot.rows)
    band = "95 % interval within one launch" if launches == 1 else f"lowest to highest of {launches} launches"
    taken = sum(len(row.sample.samples_us) for row in spot.rows)
    stopped = ", ".join(dict.fromkeys(row.sample.stop_reason for row in spot.rows if row.sample.stop_reason))
    return "<br>".join([
        *_what(series, spot.rows[-1]),
        f"time {figure(spot.time_us)} µs ({span(spot.band_us)}: {band})",
        *([f"busbw {figure(spot.busbw_GBps)} GB/s ({span(spot.busbw_band_GBps)})"] if spot.busbw_GBps else []),
        "data not checked" if sample.wrong is None else f"#wrong {sample.wrong}",
        f"{taken} samples" + (f", stopped: {text(stopped)}" if stopped else ""),
        f"algorithm seen: {text(sample.algorithm_seen)}",
        *(["oversubscribed: more ranks than cores"] if sample.oversubscribed else []),
    ])  # fmt: skip


def hover_wrong(series: Series, row: Row) -> str:
    wrong = f"<b>WRONG DATA: {row.sample.wrong} elements</b>, launch {row.sample.launch}"
    return "<br>".join([*_what(series, row), wrong])


def _what(series: Series, row: Row) -> list[str]:
    point = row.point
    size = f"{format_size(point.size_bytes)} ({point.size_bytes:,} bytes), " if point.size_bytes else ""
    traits = "".join(f" · {text(words)}" for _, words in series.traits if words)
    return [
        f"<b>{text(point.op)} · {text(point.backend)}</b>{traits}",
        f"{size}group {text(point.group)}, {point.ranks} ranks",
    ]
