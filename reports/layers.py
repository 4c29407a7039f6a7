"""Layers on the page: what a step computes, what its communication adds to that, and what of it hides."""

import statistics

from commbench.reports.gantt import measured_figure
from commbench.reports.looks import text
from commbench.reports.rows import figure, span
from commbench.results.layer_metrics import bubbles, dispatch_GBps, number, options_words, part_us, tflops
from commbench.results.metrics import exposed_us, overlap, time_us
from commbench.results.records import Sample
from commbench.results.store import Run
from commbench.units import format_size

COMPUTE, EXPOSED, ALONE = "#3d6f9e", "#e08a1e", "#7a2f0c"  # on every page of layers
_PARTS = ("#5b8fb9", "#e08a1e", "#3d6f9e", "#c2557f", "#8a8f2d", "#7a7a7a")
_MOST = 60  # bars of one figure
_MOST_GANTTS = 8


def layer_sections(run: Run) -> list[dict]:
    """A section for each layer that the run measured: `op`, `figure`, `parts`, `rows`, `bandwidths`, `left`."""
    found: dict[str, dict[str, list[Sample]]] = {}
    for sample in run.samples():
        if sample.point.kind == "layer" and sample.samples_us and sample.status in ("ok", "wrong"):
            found.setdefault(sample.point.op, {}).setdefault(sample.point.id, []).append(sample)
    return [_section(op, list(of_op.values())) for op, of_op in found.items()]


def _section(op: str, points: list[list[Sample]]) -> dict:
    labels = options_words([samples[0].point for samples in points])
    right = [(label, samples) for label, samples in zip(labels, points) if samples[0].status == "ok"]
    return {
        "op": op,
        "figure": _bars(right[:_MOST]) if right else None,
        "parts": _parts(right[:_MOST]),
        "rows": [_row(label, samples) for label, samples in zip(labels, points)],
        "bandwidths": [row for label, samples in right if (row := _bandwidths(label, samples))],
        "left": max(0, len(right) - _MOST),
        "facts": [row for label, samples in right if (row := _facts(label, samples[-1]))],
        "gantts": _gantts(right),
        "oversubscribed": any(sample.oversubscribed for samples in points for sample in samples),
    }


def _median(samples: list[Sample], value) -> float | None:
    """The median over launches."""
    known = [found for sample in samples if (found := value(sample)) is not None]
    return statistics.median(known) if known else None


def _bars(rows) -> dict:
    """Horizontal bars in milliseconds: computation, then what communication adds; a mark where it would end alone."""
    names = [text(label, 90) or "all" for label, _ in rows]
    whole = [_median(samples, time_us) / 1e3 for _, samples in rows]
    compute = [(_median(s, lambda x: part_us(x, "compute")) or w * 1e3) / 1e3 for (_, s), w in zip(rows, whole)]
    alone = [_median(samples, lambda x: part_us(x, "comm")) for _, samples in rows]
    exposed = [max(0.0, w - c) for w, c in zip(whole, compute)]
    place = {"y": list(range(len(rows))), "orientation": "h", "hoverinfo": "text"}
    bubble = any(bubbles(samples[-1]) for _, samples in rows)
    added = "what communication and waiting for other stages add" if bubble else "what communication adds"
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
    return {"data": bars, "layout": _layout(names, "stack")}


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


def _parts(rows) -> dict | None:
    """Stacked bars of the further parts, each timed apart; None where there are none."""
    names = [n for n in dict.fromkeys(n for _, s in rows for n in s[0].parts_us) if n not in ("compute", "comm")]
    kept = [(label, samples) for label, samples in rows if any(part_us(samples[0], name) for name in names)]
    if not kept:
        return None
    labels = [text(label, 90) or "all" for label, _ in kept]
    bars = []
    for i, name in enumerate(names):
        values = [_median(samples, lambda s, name=name: part_us(s, name)) for _, samples in kept]
        bars.append({
            "type": "bar", "orientation": "h", "name": text(name), "y": list(range(len(kept))), "hoverinfo": "text",
            "x": [None if v is None else v / 1e3 for v in values], "marker": {"color": _PARTS[i % len(_PARTS)]},
            "hovertext": [f"{n}: {text(name)} {figure(v / 1e3)} ms" if v else "" for n, v in zip(labels, values)],
        })  # fmt: skip
    return {"data": bars, "layout": _layout(labels, "stack")}


def _row(label: str, samples: list[Sample]) -> dict:
    last = samples[-1]
    hidden = [found for sample in samples if (found := overlap(sample))]
    interval = hidden[0][1] if len(hidden) == 1 else None
    calls = "; ".join(f"{count} {op}, {format_size(size)}" for op, (count, size) in last.counted.items())
    return {
        "label": label,
        "status": "wrong" if any(sample.status == "wrong" for sample in samples) else "ok",
        "whole": figure(_median(samples, time_us)),
        "compute": figure(_median(samples, lambda s: part_us(s, "compute"))),
        "comm": figure(_median(samples, lambda s: part_us(s, "comm"))),
        "exposed": "–" if (added := _median(samples, exposed_us)) is None else number(added),
        "overlap": f"{statistics.median(value for value, _ in hidden):.2f}" if hidden else "–",
        "interval": span(interval) if interval is None else f"{interval[0]:.2f} – {interval[1]:.2f}",
        "calls": calls or "none",
        "tflops": figure(_median(samples, tflops)),
        "error": "–" if last.error_max is None else f"{last.error_max:.1e}",
    }


def _bandwidths(label: str, samples: list[Sample]) -> dict | None:
    rates = dispatch_GBps(samples[-1])
    return rates and {"label": label, "rates": [(name, figure(rate)) for name, rate in rates.items()]}


def _gantts(rows) -> list[dict]:
    """What each rank of a pipeline did in one step, as measured."""
    drawn = [(label, samples[-1], measured_figure(samples[-1])) for label, samples in rows]
    return [
        {"label": label, "figure": drawing, "bubbles": [(said, figure(us)) for said, us in bubbles(sample)]}
        for label, sample, drawing in drawn
        if drawing is not None
    ][:_MOST_GANTTS]


def _facts(label: str, sample: Sample) -> dict | None:
    """What else a row says of its ranks: one value where all are alike, else the least and the most."""
    told = []
    for name, values in sample.rank_facts.items():
        known = [value for value in values if isinstance(value, int | float)]
        if known:
            low, high = min(known), max(known)
            told.append((name, figure(low) if low == high else f"{figure(low)} to {figure(high)}"))
    return {"label": label, "told": told} if told else None
