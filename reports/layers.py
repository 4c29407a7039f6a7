"""Layers on the page: what a step computes, what its communication adds to that, and what of it hides."""

import statistics

from commbench.models.gather_knee import FOLK_ELEMENTS, gather_knees, step_knees
from commbench.models.layer_time import collective_curves, predicted_comm_us
from commbench.reports.gantt import measured_figure
from commbench.reports.layer_figures import load_figure, median, parts_figure, step_figure
from commbench.reports.rows import figure, span
from commbench.results.layer_facts import facts_words
from commbench.results.layer_metrics import bubbles, dispatch_GBps, number, options_words, part_us, tflops
from commbench.results.metrics import exposed_us, overlap, time_us
from commbench.results.records import Point, Sample
from commbench.results.store import Run
from commbench.units import format_size

_MOST = 60  # bars of one figure
_MOST_GANTTS = 8


def layer_sections(run: Run) -> list[dict]:
    """A section for each layer that the run measured: `op`, `figure`, `parts`, `rows`, `bandwidths`, `left`."""
    found: dict[str, dict[str, list[Sample]]] = {}
    for sample in run.samples():
        if sample.point.kind == "layer" and sample.samples_us and sample.status in ("ok", "wrong"):
            found.setdefault(sample.point.op, {}).setdefault(sample.point.id, []).append(sample)
    curves = collective_curves(run.samples()) if found else {}
    sections = [_section(op, list(of_op.values()), curves) for op, of_op in found.items()]
    for section in sections:
        section["notes"] = _knees(run) if section["op"] == "data_parallel" else []
    return sections


def _knees(run: Run) -> list[str]:
    """From which bucket on gathering the same volume costs no more; FSDP's folk figure is of another fabric."""
    samples, told = run.samples(), []
    gathers, steps = gather_knees(samples), step_knees(samples)
    alike = set.intersection(*(set(others) for *_, others in steps)) if steps else set()
    where = {
        "all_gathers": [f"{backend}, group {group}, {ranks} ranks, {dtype}, {timing}"
                        for backend, group, ranks, dtype, timing in gathers],
        "whole steps": [", ".join([backend, f"group {group}", *(f"{k} {v}" for k, v in others if (k, v) not in alike)])
                        for backend, group, others in steps],
    }  # fmt: skip
    for (what, places), knees in zip(where.items(), (gathers, steps), strict=True):
        for place, knee in zip(places, knees.values(), strict=True):
            found = f"{knee.elements:,} elements" if knee.elements else knee.reason
            told.append(f"Knee of {what} over the bucket ({place}): {found}; the folk figure is {FOLK_ELEMENTS:,}")
    return told


def _section(op: str, points: list[list[Sample]], curves: dict) -> dict:
    labels = _labels([samples[0].point for samples in points])
    right = [(label, samples) for label, samples in zip(labels, points) if samples[0].status == "ok"]
    return {
        "op": op,
        "figure": step_figure(right[:_MOST]) if right else None,
        "parts": parts_figure(right[:_MOST]),
        "rows": [_row(label, samples, curves) for label, samples in zip(labels, points)],
        "bandwidths": [row for label, samples in right if (row := _bandwidths(label, samples))],
        "left": max(0, len(right) - _MOST),
        "facts": [row for label, samples in right if (row := _facts(label, samples[-1]))],
        "gantts": _gantts(right),
        "load": next((drawn for _, samples in right if (drawn := load_figure(samples[-1]))), None),
        "oversubscribed": any(sample.oversubscribed for samples in points for sample in samples),
    }


def _labels(points: list[Point]) -> list[str]:
    """What tells each row from the others, its model too where a run has several: those are not to be compared."""
    labels, models = options_words(points), [point.params.get("model") for point in points]
    if len(set(map(str, models))) < 2:
        return labels
    return [
        label if f"model {model}" in label.split(", ") else ", ".join(filter(None, [f"model {model}", label]))
        for label, model in zip(labels, models)
    ]


def _row(label: str, samples: list[Sample], curves: dict) -> dict:
    last = samples[-1]
    hidden = [found for sample in samples if (found := overlap(sample))]
    interval = hidden[0][1] if len(hidden) == 1 else None
    calls = "; ".join(f"{count} {op}, {format_size(size)}" for op, (count, size) in last.counted.items())
    return {
        "label": label,
        "status": "wrong" if any(sample.status == "wrong" for sample in samples) else "ok",
        "whole": figure(median(samples, time_us)),
        "compute": figure(median(samples, lambda s: part_us(s, "compute"))),
        "comm": figure(median(samples, lambda s: part_us(s, "comm"))),
        "predicted": figure(predicted_comm_us(last, curves)),
        "exposed": "–" if (added := median(samples, exposed_us)) is None else number(added),
        "overlap": f"{statistics.median(value for value, _ in hidden):.2f}" if hidden else "–",
        "interval": span(interval) if interval is None else f"{interval[0]:.2f} – {interval[1]:.2f}",
        "calls": calls or "none",
        "tflops": figure(median(samples, tflops)),
        "told": "; ".join(facts_words(last)),
        "error": "–" if last.error_max is None else f"{last.error_max:.1e}",
    }


def _bandwidths(label: str, samples: list[Sample]) -> dict | None:
    rates = dispatch_GBps(samples[-1])
    return rates and {"label": label, "rates": [(name, figure(rate or None)) for name, rate in rates.items()]}


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
