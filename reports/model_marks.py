"""What the figures of a fit are made of: axes, lines, bands, and colours in an order."""

import math

import numpy as np

from commbench.reports.figures import size_ticks

GREY = "#8a94a0"
_RAMP = ((79, 127, 214), (122, 104, 216), (168, 84, 200), (207, 79, 159), (224, 96, 95), (224, 138, 46), (190, 155, 20))


def size_axis(sizes) -> dict:
    """A logarithmic axis of sizes in bytes."""
    sizes = sorted(float(size) for size in sizes)
    values, words = size_ticks([sizes[0], sizes[-1]])
    return {
        "type": "log", "title": {"text": "size, bytes"}, "tickvals": values, "ticktext": words,
        "range": [math.log10(sizes[0]) - 0.12, math.log10(sizes[-1]) + 0.12],
    }  # fmt: skip


def percent_axis(data: list[dict], axis: str, title: str) -> dict:
    """An axis of residuals, alike to both sides of zero."""
    most = max([abs(y) for trace in data if trace.get("yaxis") == f"y{axis}" for y in trace["y"]], default=1.0)
    most = max(1.1 * most, 1.0)
    return {"title": {"text": title}, "anchor": f"x{axis}", "range": [-most, most], "zerolinecolor": GREY}


def band(sizes, low, high, colour: str, **entry) -> dict:
    """The area between low and high."""
    return entry | {
        "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": colour + "2e", "line": {"width": 0},
        "hoverinfo": "skip", "x": short([*sizes, *sizes[::-1]]), "y": short([*low, *high[::-1]]),
    }  # fmt: skip


def line(sizes, times, colour: str, dash: str = "solid", **entry) -> dict:
    style = {"color": colour, "width": 1.6, "dash": dash}
    return entry | {"type": "scatter", "mode": "lines", "line": style, "x": short(sizes), "y": short(times)}


def size_grid(low: float, high: float, *also: float) -> np.ndarray:
    """Sizes from low to high, four an octave, and `also` these: a line through them looks like the model."""
    count = max(2, int(4 * np.log2(high / low)) + 1)
    return np.unique(np.concatenate([np.geomspace(low, high, count), also]))


def ramp(count: int) -> list[str]:
    """`count` colours from blue to gold, all of middling lightness, to be seen on white and on black."""
    places = np.linspace(0, 1, count) if count > 1 else [0.0]
    stops = np.linspace(0, 1, len(_RAMP))
    return ["#" + "".join(f"{round(np.interp(p, stops, part)):02x}" for part in zip(*_RAMP)) for p in places]


def short(values) -> list[float]:
    """Five significant digits: what a figure can show."""
    return [float(f"{value:.5g}") for value in values]
