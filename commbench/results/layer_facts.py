"""What the rows of data_parallel, tensor_parallel, offload and host_optimizer say beside their times."""

from dataclasses import dataclass

import numpy as np

from commbench.results.metrics import time_us
from commbench.results.records import Sample
from commbench.units import format_bytes


def link_GBps(sample: Sample) -> dict[str, float]:
    """GB/s of one rank on an offload link: "out", "back", and of offload "both", the sum of both ways at once; of
    kv_transfer that of a pair; {} for other rows. On the slowest rank, as times are; all ranks of a node move at the
    same time."""
    if sample.point.op == "kv_transfer" and sample.samples_us:
        return {"a pair": sample.point.size_bytes / time_us(sample) / 1e3}
    moved = sample.rank_facts.get("moved_bytes")
    if not moved or not {"out", "back"} <= set(sample.parts_us):
        return {}
    rates = {name: moved[0] / float(np.median(sample.parts_us[name])) / 1e3 for name in ("out", "back")}
    return rates | ({"both": 2 * moved[0] / time_us(sample) / 1e3} if sample.point.op == "offload" else {})


@dataclass(frozen=True)
class Recompute:
    """What recomputation costs: time_ratio, of the step over that without it; flops_ratio, the same of the arithmetic;
    kept_bytes, activations on one rank, and kept_published_bytes by the published formula, None where it is for other
    layers."""

    time_ratio: float
    flops_ratio: float
    kept_bytes: int
    kept_published_bytes: float | None


def recompute(sample: Sample) -> Recompute | None:
    """None for a row without recomputation. FLOPs are no bound on time: the two ratios stand beside each other."""
    facts, without = sample.rank_facts, sample.parts_us.get("without_recompute")
    if not without or not sample.samples_us or "extra_flops_share" not in facts:
        return None
    published = facts.get("kept_published_bytes", [None])[0]
    ratio = time_us(sample) / float(np.median(without))
    return Recompute(ratio, 1 + facts["extra_flops_share"][0], facts["kept_bytes"][0], published)


def facts_words(sample: Sample) -> list[str]:
    """The same in words, for a line of a log."""
    facts = sample.rank_facts
    told = [f"{name} {rate:.3g} GB/s" for name, rate in link_GBps(sample).items()]
    if any(facts.get("page_cache", ())):
        told.append("through the page cache")
    if "state_bytes" in facts:
        formula = facts["state_formula_bytes"][0]
        told.append(f"state {format_bytes(facts['state_bytes'][0])} (by formula {format_bytes(round(formula))})")
    if "kept_bytes" in facts:
        published = facts.get("kept_published_bytes")
        beside = f" (published formula {format_bytes(round(published[0]))})" if published else ""
        told.append(f"kept {format_bytes(facts['kept_bytes'][0])}{beside}")
    if cost := recompute(sample):
        told.append(f"recompute time x{cost.time_ratio:.2f}, FLOPs x{cost.flops_ratio:.3f}")
    return told
