"""All layouts of a model on a cluster that fit in memory, ranked by predicted step time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from commbench.errors import UsageError
from commbench.planning.layer_time import Tilt
from commbench.planning.layout import Job, Layout, check_layout, micro_batches
from commbench.planning.ledger import ledger
from commbench.planning.links import Unmeasured
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.step import INPUTS, Account, account
from commbench.shapes import Shape

TP_MOST = 64
TOKENS_LEAST = 4096  # a context-parallel rank with fewer tokens is not looked at
MICRO_BATCHES = (1, 2, 4)
_REASONS = 3  # that are told of layouts which were left out


@dataclass(frozen=True)
class Limits:
    """What a search may use. tp_in_domain: tensor parallel groups stay within an NVLink domain. ep_most: of expert
    ranks. schedules: besides 1f1b, without which a single stage could not be. zero_with_pp: ZeRO stages that go with
    a pipeline; DeepSpeed refuses 2 and 3 there (runtime/pipe/engine.py) and Megatron's distributed optimizer is 1.
    """

    tp_in_domain: bool = False
    tp: tuple[int, ...] | None = None
    ep_most: int = 512
    schedules: tuple[str, ...] = ("1f1b", "interleaved", "dualpipe")
    zero: tuple[int, ...] = (1, 2, 3)
    zero_with_pp: tuple[int, ...] = (1,)
    recompute: tuple[str, ...] = ("none", "light", "full")


@dataclass(frozen=True)
class Candidate:
    """A layout that fits, its account, and the bytes it leaves free."""

    layout: Layout
    account: Account
    headroom: float


@dataclass(frozen=True)
class Search:
    """Candidates, the fastest first; how many layouts were looked at; what the others lacked memory for, and, for
    links that were measured, which measurement they lacked: how many by reason."""

    candidates: list[Candidate]
    looked_at: int
    too_large: dict[str, int]
    unmeasured: dict[str, int]

    @property
    def left_out(self) -> list[str]:
        """What to say of the layouts that lack a measurement: the commonest reasons, and how many have others."""
        commonest = sorted(self.unmeasured.items(), key=lambda pair: -pair[1])
        told = [f"{count} more fit but were left out: {why}" for why, count in commonest[:_REASONS]]
        rest = sum(count for _, count in commonest[_REASONS:])
        return told + ([f"{rest} more were left out for want of other measurements"] if rest else [])


def search(shape: Shape, job: Job, machine: Machine, assume: Assumptions, limits: Limits = Limits()) -> Search:
    """All layouts within the limits. Raises UsageError where none fits and Unmeasured where none of those that fit was
    measured, naming what is in the way."""
    found, looked_at, too_large, unmeasured = [], 0, {}, {}
    for layout in layouts(shape, job, machine, limits):
        looked_at += 1
        filled = ledger(shape, layout, job, machine.gpu)
        if not filled.fits:
            item = filled.first_too_much
            too_large[item] = too_large.get(item, 0) + 1
            continue
        try:
            found.append(Candidate(layout, account(shape, layout, job, machine, assume), filled.headroom))
        except Unmeasured as error:
            unmeasured[str(error)] = unmeasured.get(str(error), 0) + 1
    if not found and unmeasured:
        raise Unmeasured(max(unmeasured, key=unmeasured.get))
    if not found:
        why = f"none of {looked_at} layouts fits: no room for {max(too_large, key=too_large.get)}" if too_large else (
            f"no layout of {job.gpus} GPUs divides the global batch of {job.global_batch} sequences"
        )  # fmt: skip
        raise UsageError(f"{shape.name} on {job.gpus} {machine.gpu.name}: {why}; use more GPUs or another batch")
    found.sort(key=lambda c: c.account.step_us)
    return Search(found, looked_at, too_large, unmeasured)


def layouts(shape: Shape, job: Job, machine: Machine, limits: Limits) -> Iterator[Layout]:
    """The layouts within the limits, without regard to memory."""
    for tp in _tensor(shape, job, machine, limits):
        for cp in _powers(max(1, job.sequence // TOKENS_LEAST)):
            for pp in _divisors(job.gpus // tp // cp, shape.layers) if job.gpus % (tp * cp) == 0 else ():
                dp = job.gpus // (tp * cp * pp)
                for ep in _expert_degrees(shape, tp * cp * dp, limits):
                    yield from _variants(shape, job, limits, Layout(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep))


def distinct(candidates: list[Candidate], most: int) -> list[Candidate]:
    """The fastest candidate of each (tp, cp, pp, ep), at most so many, the fastest first."""
    seen, kept = set(), []
    for one in candidates:
        cut = one.layout.tp, one.layout.cp, one.layout.pp, one.layout.ep
        if cut not in seen:
            seen.add(cut)
            kept.append(one)
        if len(kept) == most:
            break
    return kept


def best_of_tp(candidates: list[Candidate]) -> dict[int, Candidate]:
    """The fastest candidate of each tp degree."""
    best: dict[int, Candidate] = {}
    for one in candidates:
        best.setdefault(one.layout.tp, one)
    return dict(sorted(best.items()))


@dataclass(frozen=True)
class Comparison:
    """How many times as long as the best a candidate takes, with its interval; `by`: us a step lost (above 0) and won
    by term, the largest first."""

    times: float
    low: float
    high: float
    by: list[tuple[str, float]]

    @property
    def distinguishable(self) -> bool:
        """Whether the interval of the ratio lies on one side of 1."""
        return self.low > 1 or self.high < 1


def compare(
    shape: Shape, job: Job, machine: Machine, assume: Assumptions, best: Candidate, other: Candidate
) -> Comparison:
    """The other layout held against the best, both at the same end of each input's interval at a time.

    Errors that both share (the same kernels, the same links) cancel, so this is narrower than two intervals laid side
    by side.
    """
    ratio = other.account.step_us / best.account.step_us
    below = above = 0.0
    for name in INPUTS:
        for end in (-1, 1):
            pair = [account(shape, c.layout, job, machine, assume, Tilt(name, end)).step_us for c in (other, best)]
            moved = pair[0] / pair[1] - ratio
            below, above = below + min(moved, 0) ** 2, above + max(moved, 0) ** 2
    terms = {**best.account.terms, **other.account.terms}
    by = [(t, other.account.terms.get(t, 0.0) - best.account.terms.get(t, 0.0)) for t in terms]
    by.sort(key=lambda pair: -abs(pair[1]))
    return Comparison(ratio, ratio - below**0.5, ratio + above**0.5, [pair for pair in by if abs(pair[1]) > 0])


def _variants(shape: Shape, job: Job, limits: Limits, base: Layout) -> Iterator[Layout]:
    """Micro-batches, schedules, recomputation and ZeRO stages of one cut."""
    for micro in MICRO_BATCHES:
        if job.global_batch % (base.dp * micro):
            continue
        count = micro_batches(replace(base, micro_batch=micro), job)
        for schedule, vpp in _schedules(shape, limits, base.pp, count):
            for recompute in limits.recompute:
                for zero in limits.zero_with_pp if base.pp > 1 else limits.zero if base.dp * base.cp > 1 else (1,):
                    layout = replace(
                        base, micro_batch=micro, schedule=schedule, vpp=vpp, recompute=recompute, zero=zero
                    )  # fmt: skip
                    check_layout(shape, layout, job)
                    yield layout


def _schedules(shape: Shape, limits: Limits, pp: int, count: int) -> Iterator[tuple[str, int]]:
    yield "1f1b", 1
    if pp == 1:
        return
    a_rank = -(-shape.layers // pp)
    if "interleaved" in limits.schedules and count >= pp:
        fitting = (v for v in range(2, a_rank + 1) if a_rank % v == 0 and pp * v <= shape.layers + 2)
        yield from (("interleaved", v) for v in fitting)
    if "dualpipe" in limits.schedules and shape.moe and pp % 2 == 0 and count >= 2 * pp:
        yield "dualpipe", 1


def _tensor(shape: Shape, job: Job, machine: Machine, limits: Limits) -> list[int]:
    most = min(TP_MOST, shape.heads, machine.links.domain_ranks if limits.tp_in_domain else TP_MOST)
    able = [tp for tp in _powers(most) if shape.heads % tp == 0 and job.gpus % tp == 0]
    return [tp for tp in able if limits.tp is None or tp in limits.tp]


def _expert_degrees(shape: Shape, inner: int, limits: Limits) -> list[int]:
    if shape.moe is None:
        return [1]
    most = min(shape.moe.experts, inner, limits.ep_most)
    return [ep for ep in _powers(most) if shape.moe.experts % ep == 0 and inner % ep == 0]


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length())]


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]
