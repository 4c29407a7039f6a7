"""Attention kernels on the page: rates and memory against the sequence, and the roofline that they stand under."""

import statistics
from collections import defaultdict
from dataclasses import dataclass

from commbench.errors import MeasureError
from commbench.kernels.flops import Attention, score_bytes
from commbench.kernels.params import from_params
from commbench.kernels.peaks import Peak
from commbench.kernels.utilisation import percent, rates
from commbench.reports.kernel_figures import memory_figure, rate_figure, roofline_figure
from commbench.reports.rows import figure
from commbench.results.metrics import interval_us, time_us
from commbench.results.records import Sample
from commbench.results.store import Run

PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Spot:
    """One kernel on one length: medians over launches. low and high: the 95 % interval of one launch, or the span of
    several, as rates. tflops: executed, as flash-attention counts; None for memory: not measured."""

    method: str
    which: str
    seqlen: int
    tflops: float
    low: float
    high: float
    time_us: float | None
    memory_bytes: float | None
    case: Attention | None


def kernels_section(run: Run) -> dict | None:
    """The attention kernels of `run`; None where it has none. Rows that other tools printed have rates only."""
    by_point: dict[str, list[Sample]] = defaultdict(list)
    for sample in run.samples():
        point = sample.point
        if point.kind == "kernel" and point.op.startswith("attention_") and sample.status == "ok":
            by_point[point.id].append(sample)
    settings: dict[tuple, list[Spot]] = defaultdict(list)
    for samples in by_point.values():
        if spot := _spot(samples):
            settings[_setting(samples[0], spot.case)].append(spot)
    if not settings:
        return None
    peak, roofs = _peak(run), _roofs(run)
    known = [spot for spots in settings.values() for spot in spots if spot.case]
    methods = list(dict.fromkeys(spot.method for spots in settings.values() for spot in spots))
    return {
        "settings": [_drawn(title, spots, methods, peak) for (title, *_), spots in settings.items()],
        "roofline": roofline_figure(known, methods, roofs, peak) if known and (roofs or peak) else None,
        "roofs": roofs,
        "peak": peak,
        "absent": _absent(run),
        "checked": all(sample.wrong is not None for samples in by_point.values() for sample in samples),
    }


def _spot(samples: list[Sample]) -> Spot | None:
    point, seqlen = samples[0].point, _int(samples[0].point.params.get("seqlen"))
    method = str(point.params.get("method") or point.algorithm)
    which = point.op.removeprefix("attention_")
    if seqlen is None or which not in PASSES:
        return None
    times = [time for sample in samples if (time := time_us(sample))]
    case = from_params(point.params, point.dtype)
    memory = [sample.reported.get("memory_bytes") for sample in samples]
    memory = [size for size in memory if type(size) in (int, float)]
    if not times or case is None:
        told = [sample.reported.get("TFLOPS") for sample in samples]
        told = [rate for rate in told if type(rate) in (int, float) and rate > 0]
        if not told:
            return None
        return Spot(method, which, seqlen, statistics.median(told), min(told), max(told), None, None, None)
    time = statistics.median(times)
    ends = (interval_us(samples[0]) or (time, time)) if len(times) == 1 else (min(times), max(times))
    rate, high, low = (rates(case, which, t).executed for t in (time, *ends))
    return Spot(method, which, seqlen, rate, low, high, time, statistics.median(memory) if memory else None, case)


def _int(value) -> int | None:
    """A length of ours, or the text that an importer kept."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) else None


def _setting(sample: Sample, case: Attention | None) -> tuple:
    """What the lengths of one figure share, first of all its title."""
    point = sample.point
    if case is None:
        told = [f"{name} {point.params[name]}" for name in ("headdim", "causal", "dtype") if name in point.params]
        return (", ".join([point.backend, *told]),)
    dims = f"head dim {case.dim}" + (f"/{case.dim_v}" if case.dim_v != case.dim else "")
    shared = f" over {case.kv_heads}" if case.kv_heads != case.heads else ""
    documents = len(case.mask.documents)
    mask = str(case.mask)
    keys = f"{case.sk} keys" if case.sk != case.sq else ""
    title = ", ".join(filter(None, [point.backend, case.dtype, dims, f"{case.heads}{shared} heads", mask, keys]))
    return title, case.dtype, case.dim, case.dim_v, case.heads, case.kv_heads, mask, documents


def _drawn(title: str, spots: list[Spot], methods: list[str], peak: Peak | None) -> dict:
    return {
        "title": title,
        "rates": rate_figure(spots, methods, peak),
        "memory": memory_figure(spots, methods) if any(spot.memory_bytes is not None for spot in spots) else None,
        "rows": [
            _row(spot, peak) for spot in sorted(spots, key=lambda s: (s.seqlen, s.which == "backward", -s.tflops))
        ],
    }


def _row(spot: Spot, peak: Peak | None) -> dict:
    row = {
        "method": spot.method, "pass": spot.which, "seqlen": spot.seqlen,
        "batch": spot.case.batch if spot.case else "–",
        "time": figure(spot.time_us / 1e3 if spot.time_us else None), "tflops": figure(spot.tflops),
        "memory": figure(None if spot.memory_bytes is None else spot.memory_bytes / 2**20),
        "scores": figure(score_bytes(spot.case) / 2**20 if spot.case else None),
        "mfu": "–", "unmasked": "–", "hfu": "–",
    }  # fmt: skip
    if peak and spot.case and spot.time_us:
        found = rates(spot.case, spot.which, spot.time_us)
        row |= {
            "mfu": _percent(found.model, peak, None),
            "unmasked": _percent(found.unmasked, peak, found.model),
            "hfu": _percent(found.executed, peak, None),
        }
    return row


def _percent(tflops: float, peak: Peak, exact_tflops: float | None) -> str:
    try:
        return f"{percent(tflops, peak, exact_tflops):.3g} %"
    except MeasureError as error:
        return f"over 100 %: {str(error).partition(': ')[2]}"


def _peak(run: Run) -> Peak | None:
    """The peak that the run was held against, as its header has it."""
    for launch in run.launches:
        told = launch.header.get("peak")
        if isinstance(told, dict) and type(told.get("tflops")) in (int, float) and 0 < told["tflops"] < 1e9:
            memory = told.get("memory_GBps")
            memory = float(memory) if type(memory) in (int, float) and 0 < memory < 1e9 else None
            return Peak(float(told["tflops"]), str(told.get("name")), str(told.get("source")), None, memory)
    return None


def _roofs(run: Run) -> tuple[float, float] | None:
    """(GB/s of a copy, TFLOP/s of a matrix product) as the run measured them; None where it did not."""
    found = {sample.point.op: sample for sample in run.samples() if sample.samples_us and sample.status == "ok"}
    if not {"copy", "matmul"} <= set(found) or not found["matmul"].flops:
        return None
    copy, product = found["copy"], found["matmul"]
    return 2 * copy.point.size_bytes / time_us(copy) / 1e3, product.flops / time_us(product) / 1e6


def _absent(run: Run) -> list[tuple[str, str]]:
    """(backend, reason) of those that ran nothing."""
    samples = [s for s in run.samples() if s.point.kind == "kernel" and s.point.op.startswith("attention_")]
    ran = {sample.point.algorithm for sample in samples if sample.status != "skip"}
    reasons = {sample.point.algorithm: sample.reason for sample in samples if sample.status == "skip"}
    return [(name, reason) for name, reason in reasons.items() if name not in ran]
