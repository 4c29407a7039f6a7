"""commbench's own schedules drawn: who sends to whom in which step, and how much goes over each link."""

import numpy as np

from commbench.results.records import Point
from commbench.schedules.catalogue import build
from commbench.schedules.counting import count
from commbench.schedules.schedule import Schedule
from commbench.units import format_bytes
from commbench.world.dtypes import DTYPES

MOST_RANKS, MOST_STEPS = 64, 48
_KEPT, _ADDED = "#3d85c6", "#d1495b"


def schedule_sections(points: list[Point]) -> list[dict]:
    """{"title", "caption", "figure"} for each schedule of commbench's own among `points`, at its largest size.

    "figure" is None where there are too many ranks to draw.
    """
    largest = {}
    for point in points:
        if point.algorithm.startswith("own:") and point.status == "ok":
            key = (point.op, point.algorithm, point.ranks)
            if key not in largest or point.size_bytes > largest[key].size_bytes:
                largest[key] = point
    return [_section(point) for point in largest.values()]


def _section(point: Point) -> dict:
    per_node = point.params.get("per_node", 1)
    schedule = build(
        point.op, point.algorithm.removeprefix("own:"), point.ranks, per_node, point.params.get("pieces", 1)
    )
    pieces = f", {point.params['pieces']} pieces" if "pieces" in point.params else ""
    title = f"{point.op} by {point.algorithm} on {point.ranks} ranks: {schedule.n_steps} steps{pieces}"
    if point.ranks > MOST_RANKS:
        return {"title": title, "caption": f"Not drawn: more than {MOST_RANKS} ranks.", "figure": None}
    counted = count(schedule, point.count)
    itemsize = DTYPES[point.dtype].itemsize
    sent, received = counted.sent * itemsize, counted.received * itemsize
    caption = (
        f"{format_bytes(int(sent.sum()))} in all for a size of {format_bytes(point.size_bytes)}; a rank sends "
        f"{format_bytes(int(sent.min()))} to {format_bytes(int(sent.max()))} and receives "
        f"{format_bytes(int(received.min()))} to {format_bytes(int(received.max()))}."
    )
    return {"title": title, "caption": caption, "figure": _figure(schedule, counted.links * itemsize)}


def _figure(schedule: Schedule, link_bytes: np.ndarray) -> dict:
    n = schedule.n_ranks
    height = 190 + 14 * max(n, 6)
    ranks = {"title": {"text": "rank", "standoff": 8}, "autorange": "reversed", "zeroline": False}
    ticks = {"tickvals": list(range(0, n, 1 if n <= 16 else 4 if n <= 32 else 8))}
    shown = min(schedule.n_steps, MOST_STEPS)
    cut = f" (the first {shown} of {schedule.n_steps})" if shown < schedule.n_steps else ""
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 14, "t": 34, "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"title": {"text": f"step{cut}"}, "domain": [0, 0.6], "zeroline": False, "range": [-0.3, shown + 0.3]},
        "yaxis": ranks | ticks,
        "xaxis2": {"title": {"text": "to rank"}, "domain": [0.68, 1], "anchor": "y2", "zeroline": False} | ticks,
        "yaxis2": ranks | ticks | {"title": {"text": "from rank", "standoff": 8}, "anchor": "x2"},
    }
    return {"data": [*_messages(schedule, shown), _links(link_bytes)], "layout": layout}


def _messages(schedule: Schedule, shown: int) -> list[dict]:
    """Lines from the sender at the beginning of a step to the receiver at its end."""
    lines = {False: ([], [], []), True: ([], [], [])}
    for number, one in zip(range(shown), schedule.steps()):
        pairs = {}
        for src, dst, chunks, added in zip(one.src.tolist(), one.dst.tolist(), one.count.tolist(), one.reduce.tolist()):
            before, _ = pairs.get((src, dst), (0, added))
            pairs[src, dst] = before + chunks, added
        for (src, dst), (chunks, added) in pairs.items():
            x, y, hover = lines[added]
            x += [number, number + 1, None]
            y += [src, dst, None]
            share = f"{chunks} of {schedule.n_chunks} chunks, {'added' if added else 'kept'}"
            hover += [f"step {number}: {src} to {dst}, {share}"] * 2 + [None]
    return [
        {
            "type": "scatter", "mode": "lines+markers", "name": "added to the own" if added else "kept as it is",
            "x": x, "y": y, "hovertext": hover, "hoverinfo": "text",
            "line": {"width": 1.4, "color": colour}, "marker": {"size": 4, "color": colour},
        }
        for added, colour in ((True, _ADDED), (False, _KEPT))
        for x, y, hover in [lines[added]]
        if x
    ]  # fmt: skip


def _links(link_bytes: np.ndarray) -> dict:
    hover = [
        [f"{src} to {dst}: {format_bytes(int(value))}" if value else "" for dst, value in enumerate(row)]
        for src, row in enumerate(link_bytes)
    ]
    return {
        "type": "heatmap", "xaxis": "x2", "yaxis": "y2", "hoverinfo": "text", "hovertext": hover,
        "z": [[float(value) if value else None for value in row] for row in link_bytes / 2**20], "zmin": 0,
        "zmax": float(link_bytes.max() / 2**20) or 1.0,
        "colorscale": [[0, "#dbe9f6"], [1, "#1d4e89"]], "xgap": 1, "ygap": 1,
        "colorbar": {"title": {"text": "MiB<br>per link"}, "thickness": 12, "len": 0.95},
    }  # fmt: skip
