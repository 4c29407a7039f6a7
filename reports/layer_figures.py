"""Figures of layers as plain data: bars of a step, bars of its parts, the load of each rank."""

import statistics

from commbench.reports.looks import text
from commbench.reports.rows import figure
from commbench.results.layer_metrics import bubbles, part_us
from commbench.results.metrics import time_us
from commbench.results.records import Sample

COMPUTE, EXPOSED, ALONE = "#3d6f9e", "#e08a1e", "#7a2f0c"  # on every page of layers
_PARTS = ("#5b8fb9", "#e08a1e", "#3d6f9e", "#c2557f", "#8a8f2d", "#7a7a7a")


def median(samples: list[Sample], value) -> float | None:
    """The median over launches of what `value` makes of each; None where none has it."""
    known = [found for sample in samples if (found := value(sample)) is not None]
    return statistics.median(known) if known else None


def step_figure(rows) -> dict:
    """Horizontal bars in milliseconds: computation, then what communication adds; a mark where it would end alone."""
    names = [text(label, 90) or "all" for label, _ in rows]
    whole = [median(samples, time_us) / 1e3 for _, samples in rows]
    compute = [_computation_us(samples) / 1e3 for _, samples in rows]
    alone = [median(samples, lambda x: part_us(x, "comm")) for _, samples in rows]
    exposed = [max(0.0, w - c) for w, c in zip(whole, compute)]
    place = {"y": list(range(len(rows))), "orientation": "h", "hoverinfo": "text"}
    bubble = any(bubbles(samples[-1]) for _, samples in rows)
    added = "what communication and waiting for other stages add" if bubble else "what communication adds"
    apart = any(samples[-1].counted or part_us(samples[-1], "compute") for _, samples in rows)
    if not apart:  # a step without calls is drawn as it is
        return {"data": [_whole(names, whole, place)], "layout": _layout(names, "stack")}
    bars = [
        {"type": "bar", "name": "computation (calls left out)", "x": compute, "marker": {"color": COMPUTE},
         "hovertext": [f"{n}: computation {figure(c)} ms" for n, c in zip(names, compute)]} | place,
        {"type": "bar", "name": added, "x": exposed, "marker": {"color": EXPOSED},
         "hovertext": [f"{n}: exposed {figure(e)} ms, whole {figure(w)} ms" for n, e, w in zip(names, exposed, whole)]}
        | place,
        {"type": "scatter", "mode": "markers", "name": "communication alone",
         "x": [None if a is None else a / 1e3 for a in alone], "y": list(range(len(rows))), "hoverinfo": "text",
         "marker": {"color": ALONE, "symbol": "line-ns-open", "size": 14, "line": {"width": 2}},
         "hovertext": [f"{n}: communication alone {figure(a / 1e3)} ms" if a else "" for n, a in zip(names, alone)]},
    ]  # fmt: skip
    if shorter := [i for i, (w, c) in enumerate(zip(whole, compute)) if w < c]:  # the bar would end too late
        bars.append({
            "type": "scatter", "mode": "markers", "name": "whole step, where shorter than its computation",
            "x": [whole[i] for i in shorter], "y": shorter, "hoverinfo": "text",
            "marker": {"color": "#1c2733", "symbol": "diamond-open", "size": 9, "line": {"width": 2}},
            "hovertext": [f"{names[i]}: whole {figure(whole[i])} ms" for i in shorter],
        })  # fmt: skip
    return {"data": bars, "layout": _layout(names, "stack")}


def _whole(names: list[str], whole: list[float], place: dict) -> dict:
    hover = [f"{n}: {figure(w)} ms" for n, w in zip(names, whole)]
    return {"type": "bar", "name": "whole step", "x": whole, "hovertext": hover, "showlegend": True,
            "marker": {"color": _PARTS[5]}} | place  # fmt: skip


def _computation_us(samples: list[Sample]) -> float:
    """Of a layer without such a part: the whole where it makes no calls, nothing where it is its calls alone."""
    apart = median(samples, lambda sample: part_us(sample, "compute"))
    return apart if apart is not None else 0.0 if samples[-1].counted else median(samples, time_us)


def _layout(names: list[str], mode: str) -> dict:
    return {
        "height": 96 + 30 * len(names) + 30,
        "barmode": mode,
        "bargap": 0.35,
        "margin": {"l": 8, "r": 14, "t": 34, "b": 46},
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {"title": {"text": "time of a step, ms"}, "rangemode": "tozero"},
        "yaxis": {
            "tickvals": list(range(len(names))), "ticktext": names, "automargin": True, "zeroline": False,
            "showgrid": False, "autorange": "reversed",
        },
    }  # fmt: skip


def parts_figure(rows) -> dict | None:
    """Stacked bars of the further parts, each timed apart; None where there are none."""
    names = [n for n in dict.fromkeys(n for _, s in rows for n in s[0].parts_us) if n not in ("compute", "comm")]
    kept = [(label, samples) for label, samples in rows if any(part_us(samples[0], name) for name in names)]
    if not kept:
        return None
    labels = [text(label, 90) or "all" for label, _ in kept]
    bars = []
    for i, name in enumerate(names):
        values = [median(samples, lambda s, name=name: part_us(s, name)) for _, samples in kept]
        bars.append({
            "type": "bar", "orientation": "h", "name": text(name), "y": list(range(len(kept))), "hoverinfo": "text",
            "showlegend": True,
            "x": [None if v is None else v / 1e3 for v in values], "marker": {"color": _PARTS[i % len(_PARTS)]},
            "hovertext": [f"{n}: {text(name)} {figure(v / 1e3)} ms" if v else "" for n, v in zip(labels, values)],
        })  # fmt: skip
    return {"data": bars, "layout": _layout(labels, "stack")}


def load_figure(sample: Sample) -> dict | None:
    """Query-key pairs that each rank of a context-parallel layer computes, with its chunks paired first and last, and
    in one piece; None for rows without them."""
    cuts = {"first and last chunk paired": "pairs_balanced", "in one piece": "pairs_unbalanced"}
    known = {name: sample.rank_facts[fact] for name, fact in cuts.items() if fact in sample.rank_facts}
    if len(known) < 2 or len(sample.rank_facts["pairs_balanced"]) < 2:
        return None
    bars = [
        {
            "type": "bar", "name": name, "x": list(range(len(values))), "y": values, "hoverinfo": "text",
            "marker": {"color": colour},
            "hovertext": [f"rank {rank}: {value:,} pairs" for rank, value in enumerate(values)],
        }
        for (name, values), colour in zip(known.items(), (COMPUTE, _PARTS[3]))
    ]  # fmt: skip
    return {
        "data": bars,
        "layout": {
            "height": 250, "barmode": "group", "margin": {"l": 64, "r": 14, "t": 34, "b": 46},
            "legend": {"orientation": "h", "y": 1, "yanchor": "bottom"},
            "xaxis": {"title": {"text": "rank"}, "dtick": max(1, len(bars[0]["x"]) // 16), "zeroline": False},
            "yaxis": {"title": {"text": "query-key pairs"}, "rangemode": "tozero"},
        },
    }  # fmt: skip
