"""The one constant of a GPU kind: the share of its dense peak that matrix products reach, fitted to published runs."""

import math
from dataclasses import dataclass
from functools import cache

from commbench.errors import UsageError
from commbench.planning.gpus import Gpu
from commbench.planning.links import Links
from commbench.planning.machine import Machine
from commbench.planning.published import PublishedRun, kinds, measured_tokens_per_s, published_runs
from commbench.planning.step import account, with_efficiency

# A GPU that no two published runs are known of: the one whose constant it takes, and whether it is the same chip.
_LENDS = {"h800": ("h100", True), "h200": ("h100", True), "a800": ("a100", True), "b200": ("h100", False),
          "gb200": ("h100", False)}  # fmt: skip
OTHER_CHIP_SPREAD = 0.25


@dataclass(frozen=True)
class Efficiency:
    """Share of the peak with its interval, the rows it was fitted on, and where it comes from in words."""

    value: float
    low: float
    high: float
    rows: int
    source: str


def own_efficiency(run: PublishedRun) -> float:
    """The efficiency at which the model gives exactly the measured step time, by bisection."""
    wanted_us = run.job.global_batch * run.job.sequence / run.job.gpus / measured_tokens_per_s(run) * 1e6
    machine = Machine(run.gpu, run.links, 1.0, 1.0, 1.0, "")
    low, high = 0.05, 2.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        step_us = account(run.shape, run.layout, run.job, with_efficiency(machine, middle), run.assume).step_us
        low, high = (low, middle) if step_us < wanted_us else (middle, high)
    return math.sqrt(low * high)


@cache
def fitted() -> dict[str, Efficiency]:
    """The constant of each GPU kind with two published runs or more: the geometric mean over its fitting half.

    The interval is two standard deviations of what its rows need each for itself, wide enough for one more run.
    """
    found = {}
    for kind, runs in kinds(published_runs()).items():
        if len(runs) < 2 or any(run.links is None for run in runs):
            continue
        logs = [math.log(own_efficiency(run)) for run in runs if run.fits]
        mean = sum(logs) / len(logs)
        spread = 2 * math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
        value = math.exp(mean)
        source = f"fitted to {len(logs)} published runs on {kind}"
        found[kind] = Efficiency(value, value * math.exp(-spread), value * math.exp(spread), len(logs), source)
    return found


def efficiency_of(gpu: Gpu) -> Efficiency | None:
    """The constant of a GPU: fitted, or lent by the GPU nearest to it; None where there is none."""
    known = fitted()
    if gpu.name in known:
        return known[gpu.name]
    if gpu.name not in _LENDS:
        return None
    lender, same = _LENDS[gpu.name]
    one = known[lender]
    if same:
        return Efficiency(one.value, one.low, one.high, 0, f"{one.source}, the same chip")
    wide = 1 + OTHER_CHIP_SPREAD
    return Efficiency(
        one.value, min(one.low, one.value / wide), max(one.high, one.value * wide), 0,
        f"{one.source}: no run on {gpu.name} is known, so within {100 * OTHER_CHIP_SPREAD:.0f} %",
    )  # fmt: skip


def machine_of(gpu: Gpu, links: Links, stated: float | None = None) -> Machine:
    """The machine with the constant of its GPU, or with a stated one, which has no interval."""
    if stated is not None:
        return Machine(gpu, links, stated, stated, stated, "stated")
    one = efficiency_of(gpu)
    if one is None:
        raise UsageError(f"no published run tells the efficiency of {gpu.name}; state it by --efficiency, such as 0.6")
    return Machine(gpu, links, one.value, one.low, one.high, one.source)
