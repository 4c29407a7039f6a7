"""One training step as an account: what its time is spent on, and what that makes of the GPUs."""

from dataclasses import dataclass, replace

from commbench.planning.flops import CONVENTIONS, hardware_flops_per_token, model_flops_per_token, utilisation
from commbench.planning.layer_time import MIDDLE, TERMS, Setting, Tilt, head_us, layer_us, traffic_us
from commbench.planning.layout import Job, Layout, micro_batches
from commbench.planning.links import Group, group_of
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.pipeline import Work, bubble_us
from commbench.planning.placement import Stage, expert_parameters, shared_parameters, stages
from commbench.planning.state import recipe_named
from commbench.planning.traffic import optimizer_traffic_bytes
from commbench.shapes import Shape

INPUTS = ("kernel efficiency", "memory rate", "TP", "CP", "EP", "PP", "DP")


@dataclass(frozen=True)
class Account:
    """us of one step by term, in the order of the stack. step_us is their sum."""

    terms: dict[str, float]
    tokens: int
    gpus: int

    @property
    def step_us(self) -> float:
        return sum(self.terms.values())

    @property
    def tokens_per_s_per_gpu(self) -> float:
        return self.tokens / self.step_us * 1e6 / self.gpus


@dataclass(frozen=True)
class Prediction:
    """An account with the interval of its step time, and by how much each input's own interval moves it (us, half)."""

    account: Account
    low_us: float
    high_us: float
    moved_by: dict[str, float]

    @property
    def dominant(self) -> list[str]:
        """The two inputs that make the interval wide, the wider first."""
        return sorted((n for n, us in self.moved_by.items() if us > 0), key=self.moved_by.get, reverse=True)[:2]


def account(
    shape: Shape, layout: Layout, job: Job, machine: Machine, assume: Assumptions, tilt: Tilt = MIDDLE
) -> Account:
    """The account of one step; check_layout must have passed."""
    setting = Setting(shape, layout, job, machine, assume, tilt)
    split = stages(shape, layout)
    micro = micro_batches(layout, job)
    kinds = {False: layer_us(setting, False), True: layer_us(setting, True) if shape.moe else ({}, {})}
    head = head_us(setting)
    alike = {(stage.dense, stage.sparse, stage.head): _stage_us(stage, kinds, head) for stage in split}
    per_stage = [alike[stage.dense, stage.sparse, stage.head] for stage in split]
    if layout.schedule == "dualpipe":  # a rank works on a stage of each direction: the mean of the two
        per_stage = [[_mean(a, b) for a, b in zip(*pair)] for pair in zip(per_stage, reversed(per_stage))]
    mean = {term: micro * sum(f[term] + b[term] for f, b in per_stage) / layout.pp for term in TERMS}
    slowest = max(per_stage, key=lambda pair: sum(pair[0].values()) + sum(pair[1].values()))
    forward, backward = (sum(way.values()) for way in slowest)
    work = Work(forward, backward, slowest[1]["matmul"] / 2)
    terms = dict(mean)
    terms["stage imbalance"] = micro * (forward + backward) - sum(mean.values())
    terms["PP bubble"] = bubble_us(layout.schedule, layout.pp, layout.vpp, work)
    terms["PP send"] = _pp_us(setting, micro, work)
    terms["DP"] = max(_dp_us(setting, stage, micro, work) for stage in (split[0], split[len(split) // 2], split[-1]))
    terms["optimizer"] = _optimizer_us(setting, split[min(1, len(split) - 1)])
    return Account(terms, job.sequence * job.global_batch, job.gpus)


def predict_step(shape: Shape, layout: Layout, job: Job, machine: Machine, assume: Assumptions) -> Prediction:
    """The account, its interval, and the inputs it comes from: each is moved to both ends of its own interval, and the
    half-widths are added in quadrature as those of independent errors."""
    middle = account(shape, layout, job, machine, assume)
    moved, below, above = {}, 0.0, 0.0
    for name in INPUTS:
        fast, slow = (account(shape, layout, job, machine, assume, Tilt(name, end)).step_us for end in (-1, 1))
        moved[name] = (slow - fast) / 2
        below += (middle.step_us - fast) ** 2
        above += (slow - middle.step_us) ** 2
    return Prediction(middle, max(0.0, middle.step_us - below**0.5), middle.step_us + above**0.5, moved)


def mfu(shape: Shape, job: Job, machine: Machine, tokens_per_s_per_gpu: float) -> dict[str, float]:
    """Model FLOPs utilisation by both conventions, of the bf16 peak (of the fp32 one where the job is in fp32)."""
    peak = machine.gpu.peak_TFLOPs(job.wide)
    return {
        c: utilisation(model_flops_per_token(shape, job.sequence, c), tokens_per_s_per_gpu, peak) for c in CONVENTIONS
    }


def hfu(shape: Shape, layout: Layout, job: Job, machine: Machine, tokens_per_s_per_gpu: float) -> dict[str, float]:
    """Hardware FLOPs utilisation by both conventions: recomputation counted. Of the same peak as mfu."""
    peak = machine.gpu.peak_TFLOPs(job.wide)
    done = {c: hardware_flops_per_token(shape, job.sequence, layout, c) for c in CONVENTIONS}
    return {c: utilisation(flops, tokens_per_s_per_gpu, peak) for c, flops in done.items()}


def _stage_us(stage: Stage, kinds: dict, head: tuple[float, float]):
    ways = []
    for way in (0, 1):
        times = {
            term: stage.dense * kinds[False][way].get(term, 0.0) + stage.sparse * kinds[True][way].get(term, 0.0)
            for term in TERMS
        }
        times["matmul"] += head[way] if stage.head else 0.0
        ways.append(times)
    return ways


def _mean(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {term: (one[term] + other[term]) / 2 for term in TERMS}


def _pp_us(setting: Setting, micro: int, work: Work) -> float:
    """Messages between stages: exposed while the pipeline fills and drains, else behind a chunk's arithmetic."""
    layout = setting.layout
    if layout.pp == 1:
        return 0.0
    stride = layout.tp * layout.cp * layout.dp
    pair = Group(2, 1) if stride >= setting.machine.links.domain_ranks else Group(2, 2)
    size = (
        setting.job.element_bytes
        * layout.cut(setting.job).tokens
        * setting.shape.hidden
        / (layout.tp if layout.sp else 1)
    )
    one = setting.machine.links.time("send", pair, size).at(setting.tilt.of("PP"))
    steady = micro * max(0.0, 2 * layout.vpp * one - work.forward_us - work.backward_us)
    return 2 * (layout.pp - 1) * one + steady


def _dp_us(setting: Setting, stage: Stage, micro: int, work: Work) -> float:
    """Gradients and weights among the ranks that share parameters; the last bucket (a layer) never hides."""
    shape, layout = setting.shape, setting.layout
    recipe = recipe_named(setting.job.recipe)
    reduce_us = gather_us = 0.0
    domain, end = setting.machine.links.domain_ranks, setting.tilt.of("DP")
    for count, ranks, stride in (
        (shared_parameters(shape, layout, stage), layout.dp * layout.cp, layout.tp),
        (expert_parameters(shape, layout, stage), layout.expert_dp, layout.ep),
    ):
        group, time = group_of(ranks, stride, domain), setting.machine.links.time
        if layout.zero == 0:
            reduce_us += time("all_reduce", group, count * recipe.gradient).at(end)
            continue
        reduce_us += time("reduce_scatter", group, count * recipe.gradient).at(end)
        gather_us += time("all_gather", group, count * recipe.weight).at(end)
    forward, backward = (work.forward_us, work.backward_us) if setting.assume.dp_overlap else (0.0, 0.0)
    bucket = 1 / max(1, stage.dense + stage.sparse)
    if layout.zero == 3:  # weights are gathered for each pass of each micro-batch, gradients leave after each
        later = max(0.0, gather_us - forward) + max(0.0, gather_us + reduce_us - backward)
        return micro * later + bucket * (gather_us + reduce_us)
    once = max(reduce_us * bucket, reduce_us - backward) + max(gather_us * bucket, gather_us - forward)
    if layout.zero == 2:  # gradients leave after each micro-batch
        once += (micro - 1) * max(0.0, reduce_us - forward - backward)
    return once


def _optimizer_us(setting: Setting, stage: Stage) -> float:
    layout = setting.layout
    shards = (layout.dp * layout.cp, layout.expert_dp) if layout.zero else (1, 1)
    mine = shared_parameters(setting.shape, layout, stage) / shards[0]
    mine += expert_parameters(setting.shape, layout, stage) / shards[1]
    return traffic_us(setting, optimizer_traffic_bytes(mine))


def with_efficiency(machine: Machine, efficiency: float) -> Machine:
    """The machine with another efficiency, known exactly: for fitting it."""
    return replace(machine, efficiency=efficiency, efficiency_low=efficiency, efficiency_high=efficiency)
