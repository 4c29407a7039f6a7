"""What each rank of a pipeline does when, simulated or measured, as a plotly figure in plain data."""

import numpy as np

from commbench.reports.rows import figure
from commbench.results.records import Sample
from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, StageSchedule
from commbench.schedules.stages_catalogue import build
from commbench.schedules.stages_simulate import Timeline

MOST_BARS = 20_000
_COLOURS = {FORWARD: (61, 133, 198), INPUT: (224, 138, 30), WEIGHT: (46, 158, 107), BACKWARD: (194, 85, 127)}
_NAMES = {
    FORWARD: "F: forward", INPUT: "B: gradient of the input", WEIGHT: "W: gradient of the weights",
    BACKWARD: "BW: both gradients",
}  # fmt: skip
_HEIGHT = 0.84  # of a rank's bar, ranks being 1 apart


def simulated_figure(timeline: Timeline, unit: str) -> dict | None:
    """The cells of a simulated schedule; None where there are too many to draw. `unit`: of its times."""
    times = [np.stack(pair, axis=1) for pair in zip(timeline.starts, timeline.ends)]
    return gantt_figure(timeline.schedule, times, f"time, {unit}")


def measured_figure(sample: Sample) -> dict | None:
    """The cells of the last step of a measured pipeline, in ms; None for what is none, or has too many to draw."""
    params = sample.point.params
    try:
        times = [np.array(line, float).reshape(-1, 2) / 1e3 for line in sample.rank_facts["timeline_us"]]
        schedule = build(params["schedule"], sample.point.ranks, params["micro_batches"], params["chunks"])
    except (KeyError, TypeError, ValueError):  # a row of another layer, or a journal that holds something else
        return None
    if [len(of_rank) for of_rank in times] != [len(row) for row in schedule.rows]:
        return None
    return gantt_figure(schedule, times, "time, ms")


def gantt_figure(schedule: StageSchedule, times: list[np.ndarray], axis: str) -> dict | None:
    """times[rank]: (cells, 2), begin and end. A bar for each action with its micro-batch, a colour for each kind, paler
    for later stages of a rank; an F and a BW of one cell stand above one another. The result: {"data", "layout"}."""
    if sum(len(cell) for row in schedule.rows for cell in row) > MOST_BARS:
        return None
    bars = {}
    for rank, (row, spans) in enumerate(zip(schedule.rows, times, strict=True)):
        stages = schedule.stages_of(rank)
        for cell, (begin, end) in zip(row, spans.tolist()):
            height = _HEIGHT / len(cell)
            for which, (kind, micro_batch, stage) in enumerate(cell):
                at = rank - _HEIGHT / 2 + height * (which + 0.5)
                told = f"rank {rank}, stage {stage}, micro-batch {micro_batch}<br>{_NAMES[kind]}"
                bars.setdefault(kind, []).append((
                    stages.index(stage), at, height, begin, end - begin, str(micro_batch),
                    _shade(kind, stages.index(stage), len(stages)), f"{told}<br>{figure(begin)} to {figure(end)}",
                ))  # fmt: skip
    layout = {
        "height": 130 + 38 * schedule.ranks,
        "margin": {"l": 56, "r": 14, "t": 34, "b": 46},
        "barmode": "overlay", "bargap": 0, "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 7},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"title": {"text": axis}, "zeroline": False, "rangemode": "tozero"},
        "yaxis": {
            "title": {"text": "rank", "standoff": 8}, "range": [schedule.ranks - 0.5, -0.5], "zeroline": False,
            "showgrid": False, "dtick": 1 if schedule.ranks <= 32 else 8,
        },
    }  # fmt: skip
    return {"data": [_trace(kind, bars[kind]) for kind in _COLOURS if kind in bars], "layout": layout}


def _trace(kind: str, bars: list) -> dict:
    # The legend takes the colour of the first bar.
    _, y, width, base, x, text, colour, hover = map(list, zip(*sorted(bars)))
    return {
        "type": "bar", "orientation": "h", "name": _NAMES[kind], "y": y, "width": width, "base": base, "x": x,
        "text": text, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0,
        "hovertext": hover, "hoverinfo": "text", "marker": {"color": colour, "line": {"width": 0.5, "color": "#fff"}},
    }  # fmt: skip


def _shade(kind: str, which: int, of: int) -> str:
    paler = 0.5 * which / max(of - 1, 1)
    return "rgb({}, {}, {})".format(*(round(part + (255 - part) * paler) for part in _COLOURS[kind]))
