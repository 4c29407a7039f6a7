"""Figures of a layer's row, and which of its options tell it from others."""

from collections import Counter

import numpy as np

from commbench.results.layer_facts import facts_words
from commbench.results.metrics import exposed_us, overlap, time_us
from commbench.results.records import Point, Sample

_FOUR = ("selections", "unique_rank", "unique_node", "wire")


def part_us(sample: Sample, name: str) -> float | None:
    """The median of a part; None where the row has none of that name."""
    return float(np.median(sample.parts_us[name])) if sample.parts_us.get(name) else None


def options_words(points: list[Point]) -> list[str]:
    """For each point what tells it from the others, "path two_hop, tokens 128". What follows from the rest is left
    out, numbers before words, but where a point is unlike most in it, and no other option alone says so."""
    shown = [_options(point) for point in points]
    names = dict.fromkeys(name for options in shown for name in options)
    kept = [name for name in names if len({str(options.get(name)) for options in shown}) > 1]
    varied = kept
    for name in sorted(kept, key=lambda name: any(isinstance(options.get(name), str) for options in shown)):
        rest = [other for other in kept if other != name]
        if _different(shown, rest) == _different(shown, kept):
            kept = rest
    usual = {
        name: Counter(str(options.get(name)) for options in shown).most_common(1)[0][0]
        for name in varied
        if name not in kept and not any(_follows(shown, name, other) for other in varied if other != name)
    }

    def said(name: str, value) -> bool:
        return name in kept or (name in usual and usual[name] != str(value))

    return [", ".join(f"{n} {options[n]}" for n in varied if n in options and said(n, options[n])) for options in shown]


def _follows(shown: list[dict], name: str, other: str) -> bool:
    """Whether an option has one value for each value of another."""
    return _different(shown, [other]) == _different(shown, [other, name])


def _different(shown: list[dict], names: list[str]) -> int:
    return len({tuple(str(options.get(name)) for name in names) for options in shown})


def _options(point: Point) -> dict:
    place = {"backend": point.backend, "ranks": point.ranks, "group": point.group, "nodes": point.nodes}
    return place | {name: value for name, value in point.params.items()}


def layer_words(sample: Sample) -> str:
    """A layer's parts in words: "compute 812 us, comm 240 us, exposed 95 us, overlap 0.6 [0.4, 0.7]"."""
    told = [f"{name} {number(part_us(sample, name))} us" for name in sample.parts_us]
    exposed, hidden = exposed_us(sample), overlap(sample)
    if exposed is not None:
        told.append(f"exposed {number(exposed)} us")
    if "bubble_us" in sample.rank_facts:
        told.append(", ".join(f"{said} {number(found)} us" for said, found in bubbles(sample)))
    if hidden is not None:
        value, interval = hidden
        told.append(f"overlap {value:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""))
    return ", ".join(told + facts_words(sample))


def bubbles(sample: Sample) -> list[tuple[str, float]]:
    """The bubble of a pipeline, the mean over ranks: as measured, as simulated with the measured times of the stages,
    and as its published formula has it."""
    names = {"bubble": "bubble_us", "simulated": "simulated_bubble_us", "by formula": "formula_bubble_us"}
    return [
        (said, float(np.mean(sample.rank_facts[name]))) for said, name in names.items() if name in sample.rank_facts
    ]


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def tflops(sample: Sample) -> float | None:
    """TFLOP/s of the rank with most work over the time of the whole; None where no work was counted."""
    taken = time_us(sample)
    return sample.flops / taken / 1e6 if sample.flops and taken else None


def dispatch_GBps(sample: Sample) -> dict[str, float] | None:
    """The four bandwidths of an expert-parallel dispatch, GB/s of a rank on average, none of them "the" bandwidth.

    per_selection, per_unique_rank, per_unique_node (the local node counted, DeepEP V1's RDMA column) and wire (remote
    nodes only): tokens of that count times the bytes of a dispatched row, over the time of the part "dispatch".
    None for other layers.
    """
    taken, facts, row_bytes = part_us(sample, "dispatch"), sample.rank_facts, sample.rank_facts.get("row_bytes")
    if not taken or not row_bytes or not all(facts.get(name) for name in _FOUR):
        return None
    names = ("per_selection", "per_unique_rank", "per_unique_node", "wire")
    return {
        name: float(np.mean(facts[count])) * row_bytes[0] / taken / 1e3
        for name, count in zip(names, _FOUR, strict=True)
    }
