"""Time of one layer for one micro-batch on one rank, forward and backward, by what it is spent on."""

from dataclasses import dataclass

from commbench.planning.experts import dispatch_bytes, exchange
from commbench.planning.flops import attention_flops, head_flops, matmul_flops, up_projection_flops
from commbench.planning.layout import Job, Layout
from commbench.planning.links import group_of
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.traffic import layer_traffic_bytes
from commbench.shapes import Shape

TERMS = ("matmul", "memory-bound", "recompute", "TP", "CP", "EP")


@dataclass(frozen=True)
class Tilt:
    """Which input is taken at which end of its interval: -1 fast, 1 slow. The empty name tilts nothing."""

    name: str = ""
    end: int = 0

    def of(self, name: str) -> int:
        return self.end if name == self.name else 0


MIDDLE = Tilt()


@dataclass(frozen=True)
class Setting:
    """All that a time depends on."""

    shape: Shape
    layout: Layout
    job: Job
    machine: Machine
    assume: Assumptions
    tilt: Tilt = MIDDLE


Pair = tuple[dict[str, float], dict[str, float]]  # us forward, us backward, by term


def flops_us(setting: Setting, flops: float, precision: str) -> float:
    """Time of so many FLOPs at the GPU's dense peak times the efficiency."""
    machine = setting.machine
    end = setting.tilt.of("kernel efficiency")
    efficiency = (machine.efficiency, machine.efficiency_low, machine.efficiency_high)[end]  # the lower, the slower
    return flops / (machine.gpu.peak_TFLOPs(precision) * efficiency) / 1e6


def traffic_us(setting: Setting, traffic_bytes: float) -> float:
    """Time of so many bytes to and from the GPU's memory."""
    share = setting.assume.memory_share - setting.tilt.of("memory rate") * setting.assume.memory_spread
    return traffic_bytes / (setting.machine.gpu.memory_GBps * share) / 1e3


def layer_us(setting: Setting, with_experts: bool) -> Pair:
    """Times of one layer by term."""
    shape, layout, job = setting.shape, setting.layout, setting.job
    cut = layout.cut(job)
    # Attention runs in bf16 whatever the matrix products do (arXiv 2412.19437, 3.3.1); a flash kernel skips the half
    # that a causal mask hides.
    core_flops = attention_flops(shape, job.sequence, "causal" if layout.flash else "full")
    linear = flops_us(setting, cut.tokens * matmul_flops(shape, with_experts) / layout.tp, job.precision)
    core = flops_us(setting, cut.tokens * core_flops / layout.tp, job.wide)
    read = [traffic_us(setting, moved) for moved in layer_traffic_bytes(shape, cut, with_experts)]
    forward = {"matmul": linear + core, "memory-bound": read[0]}
    backward = {"matmul": 2 * linear + 2 * core, "memory-bound": read[1]}
    backward["recompute"] = _recompute_us(setting, linear, core)
    for name, (there, back) in (
        ("TP", _tp_us(setting, with_experts, linear + core)),
        ("CP", _cp_us(setting, core)),
        ("EP", _ep_us(setting, linear + core) if with_experts else (0.0, 0.0)),
    ):
        forward[name], backward[name] = there, back
        if layout.recompute == "full" and name != "EP":  # the layer runs again, with its collectives
            backward[name] += there
        elif layout.recompute == "full":
            backward[name] += there if layout.schedule != "dualpipe" else 0.0
    return forward, backward


def head_us(setting: Setting) -> tuple[float, float]:
    """Forward and backward time of the output layer, which stays out of fp8."""
    cut = setting.layout.cut(setting.job)
    once = flops_us(setting, cut.tokens * head_flops(setting.shape) / setting.layout.tp, setting.job.wide)
    return once, 2 * once


def _recompute_us(setting: Setting, linear: float, core: float) -> float:
    layout = setting.layout
    score_again = core / 2 if layout.flash else 0.0  # a flash kernel's backward recomputes the scores
    if layout.recompute == "full":
        return linear + core + score_again
    if layout.recompute == "selective" and not layout.flash:
        return core
    if layout.recompute == "light" and setting.shape.mla:
        tokens = layout.cut(setting.job).tokens
        again = tokens * up_projection_flops(setting.shape) / layout.tp
        return score_again + flops_us(setting, again, setting.job.precision)
    return score_again


def _tp_us(setting: Setting, with_experts: bool, forward_us: float) -> tuple[float, float]:
    """Collectives of the column and row pairs: two all_reduces a layer and direction, or with sp an all_gather and a
    reduce_scatter in place of each (Megatron's third all_gather runs behind a matrix product). One pair in a parallel
    block; with experts one for attention and one for shared experts.
    """
    shape, layout = setting.shape, setting.layout
    if layout.tp == 1:
        return 0.0, 0.0
    pairs = 1 if shape.parallel_block else 2
    if with_experts:
        pairs = 1 + (shape.moe.shared_experts > 0)
    size = setting.job.element_bytes * layout.cut(setting.job).tokens * shape.hidden
    group = group_of(layout.tp, 1, setting.machine.links.domain_ranks)
    calls = ("all_gather", "reduce_scatter") if layout.sp else ("all_reduce",)
    end = setting.tilt.of("TP")
    times = [setting.machine.links.time(op, group, size).at(end) for op in calls]
    if not setting.assume.tp_overlap:
        return pairs * sum(times), pairs * sum(times)
    beside = forward_us / (pairs * len(calls))
    hidden = [pairs * sum(max(t / layout.tp, t - product) for t in times) for product in (beside, 2 * beside)]
    return hidden[0], hidden[1]


def _cp_us(setting: Setting, core_us: float) -> tuple[float, float]:
    """Keys and values over cp ranks. all_gather: before attention, again and a reduce_scatter backward (arXiv
    2407.21783, 3.3.2). ring: the same bytes behind attention. ulysses: all_to_all of q, k, v and output."""
    shape, layout = setting.shape, setting.layout
    if layout.cp == 1:
        return 0.0, 0.0
    cut = layout.cut(setting.job)
    time, end = setting.machine.links.time, setting.tilt.of("CP")
    group = group_of(layout.cp, layout.tp, setting.machine.links.domain_ranks)
    kv_heads = max(1.0, shape.kv_heads / layout.tp)
    if layout.cp_kind == "ulysses":
        size = setting.job.element_bytes * cut.tokens * (shape.heads / layout.tp + kv_heads) * shape.head_dim * 2
        once = time("all_to_all", group, size).at(end)
        return once, once
    width = (shape.mla.kv_lora + shape.mla.rope_dim) if shape.mla else 2 * kv_heads * shape.head_dim
    size = setting.job.element_bytes * cut.tokens * layout.cp * width
    gather, scatter = (time(op, group, size).at(end) for op in ("all_gather", "reduce_scatter"))
    if layout.cp_kind == "ring":
        return max(0.0, gather - core_us), max(0.0, gather + scatter - 2 * core_us)
    return gather, gather + scatter


def _ep_us(setting: Setting, forward_us: float) -> tuple[float, float]:
    """A dispatch and a combine, forward and backward. Under dualpipe they run behind the arithmetic of another
    micro-batch, on multiprocessors that the arithmetic then lacks; elsewhere they are exposed."""
    shape, layout, assume = setting.shape, setting.layout, setting.assume
    if layout.ep == 1:
        return 0.0, 0.0
    machine, end = setting.machine, setting.tilt.of("EP")
    group = group_of(layout.ep, 1, machine.links.domain_ranks)
    cut = layout.cut(setting.job)
    tokens = cut.tokens / layout.tp
    sizes = dispatch_bytes(shape.hidden, setting.job), float(setting.job.element_bytes * shape.hidden)
    moved = sum(exchange(shape.moe, group, tokens, size, machine.links).at(end) for size in sizes)
    if layout.schedule != "dualpipe":
        return moved, moved
    lent = 1 / (1 - assume.dualpipe_share) - 1
    return (
        lent * forward_us + max(0.0, moved - (1 + lent) * forward_us),
        2 * lent * forward_us + max(0.0, moved - 2 * (1 + lent) * forward_us),
    )
