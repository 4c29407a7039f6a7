"""What `commbench plan` answers: one layout in full, or all layouts ranked; as data, for text, JSON and the page."""

from dataclasses import dataclass

from commbench.fabrics import Fabric
from commbench.planning.break_even import BreakEven, break_even
from commbench.planning.fitted_links import noted
from commbench.planning.goodput import LLAMA3, daly_interval_s, goodput, young_interval_s
from commbench.planning.layout import Job, Layout, check_layout
from commbench.planning.ledger import Ledger, ledger
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.search import (
    Candidate,
    Comparison,
    Limits,
    Search,
    best_of_tp,
    compare,
    distinct,
    search,
)
from commbench.planning.step import Prediction, hfu, mfu, predict_step
from commbench.shapes import Shape

RUNNERS_UP = 8
_NOT_BF16 = {
    "fp8": "the efficiency is that of bf16 runs; the one published fp8 run, DeepSeek-V3, was slower than this predicts "
    "(see `commbench plan --published`)",
    "fp32": "the efficiency is that of bf16 runs; none in fp32 is published: state it by --efficiency",
}


@dataclass(frozen=True)
class Goodput:
    """Interruptions of a job of this size, and what they leave with the best checkpoint interval."""

    per_day: float
    hours_between: float
    young_s: float
    daly_s: float
    share: float
    source: str


@dataclass(frozen=True)
class LayoutAdvice:
    """One layout: its ledger, its step with interval, utilisation by convention, goodput, and notes."""

    shape: Shape
    job: Job
    machine: Machine
    assume: Assumptions
    layout: Layout
    ledger: Ledger
    prediction: Prediction
    mfu: dict[str, float]
    hfu: dict[str, float]
    goodput: Goodput
    notes: list[str]


@dataclass(frozen=True)
class SearchAdvice:
    """All layouts: the best in full, the runners-up held against it, the best of each tp, and the break-even curve."""

    best: LayoutAdvice
    search: Search
    runners_up: list[tuple[Candidate, Comparison]]
    of_tp: dict[int, Candidate]
    break_even: BreakEven | None


def advise_layout(
    shape: Shape, layout: Layout, job: Job, machine: Machine, assume: Assumptions, checkpoint_s: float, restart_s: float
) -> LayoutAdvice:
    """The account of one layout. Raises UsageError where it cannot be."""
    check_layout(shape, layout, job)
    links, notes = noted(machine.links)
    machine = Machine(**{**vars(machine), "links": links})
    told = predict_step(shape, layout, job, machine, assume)
    rate = told.account.tokens_per_s_per_gpu
    told_notes = notes() + (
        [_NOT_BF16[job.precision]]
        if job.precision in _NOT_BF16 and machine.efficiency_low < machine.efficiency_high
        else []
    )
    return LayoutAdvice(
        shape, job, machine, assume, layout, ledger(shape, layout, job, machine.gpu), told,
        mfu(shape, job, machine, rate), hfu(shape, layout, job, machine, rate),
        goodput_of(job.gpus, checkpoint_s, restart_s), told_notes,
    )  # fmt: skip


def advise_search(
    shape: Shape,
    job: Job,
    machine: Machine,
    assume: Assumptions,
    limits: Limits,
    fabric: Fabric | None,
    checkpoint_s: float,
    restart_s: float,
) -> SearchAdvice:
    """All layouts that fit. fabric: for the break-even curve, which changes its links; None draws none."""
    found = search(shape, job, machine, assume, limits)
    first = found.candidates[0]
    runners = [
        (c, compare(shape, job, machine, assume, first, c)) for c in distinct(found.candidates, RUNNERS_UP + 1)[1:]
    ]
    return SearchAdvice(
        advise_layout(shape, first.layout, job, machine, assume, checkpoint_s, restart_s),
        found,
        runners,
        best_of_tp(found.candidates),
        break_even(shape, job, machine, fabric, assume, limits) if fabric else None,
    )


def goodput_of(gpus: int, checkpoint_s: float, restart_s: float) -> Goodput:
    """Llama 3's rate of interruptions scaled to `gpus`."""
    rate = LLAMA3.on(gpus)
    between_s = rate.hours_between * 3600
    best_s = daly_interval_s(checkpoint_s, between_s)
    return Goodput(
        rate.per_day, rate.hours_between, young_interval_s(checkpoint_s, between_s), best_s,
        goodput(best_s, checkpoint_s, restart_s, between_s), rate.source,
    )  # fmt: skip
