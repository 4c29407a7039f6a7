"""One case of attention on one backend: checked, then timed, its memory measured; or why it was not."""

from dataclasses import dataclass, field

import torch

from commbench.errors import MeasureError
from commbench.kernels.backends import Backend
from commbench.kernels.check import ALLOWED, Checked, Expected, compare
from commbench.kernels.clock import Timed, timed, turns
from commbench.kernels.flops import Attention, backward_bytes, forward_bytes, score_bytes, tensor_bytes
from commbench.kernels.inputs import draw, leaves, relaid
from commbench.kernels.memory import free_bytes, peak_bytes
from commbench.kernels.utilisation import PASSES
from commbench.timing.cores import foreign_cores, used
from commbench.timing.stop_rule import StopRule

_MATERIALISED = 4  # score matrices that a form that writes them holds at a time, with what backward keeps
_SHARE = 0.7  # of the free memory that a case may fill


@dataclass(frozen=True)
class Outcome:
    """What came of one pass ("forward", "backward"): status "ok", "skip", "wrong" or "error", and its reason."""

    status: str
    reason: str = ""
    timed: Timed | None = None
    checked: Checked | None = None
    memory_bytes: int | None = None
    foreign_cores: float | None = None
    heads_checked: int = 0


@dataclass(frozen=True)
class How:
    """warmup_s: seconds of warm-up; rule: when there are enough samples."""

    warmup_s: float = 0.2
    rule: StopRule = field(default_factory=lambda: StopRule(budget_s=1.0))


def need_bytes(case: Attention, device: str) -> int:
    """What a case holds on any backend: its sets of inputs with outputs and gradients, and what the check takes."""
    sizes = tensor_bytes(case)
    each = 3 * sum(sizes.values())
    return (turns(sum(sizes.values()), device) + 1) * each


def fits(case: Attention, device: str) -> None:
    """Raise MeasureError where the device has not the memory for a case on any backend."""
    free = free_bytes(device)
    if free is not None and need_bytes(case, device) > _SHARE * free:
        raise MeasureError(
            f"{case.batch} sequences of {case.sk} with {case.heads} heads of {case.dim} in {case.dtype} need about "
            f"{_gib(need_bytes(case, device))}, and {_gib(free)} are free on {device}; take fewer --tokens or a "
            "smaller --hidden"
        )


def run(case: Attention, backend: Backend, device: str, inputs, right: Expected, how: How) -> dict[str, Outcome]:
    """The outcome of each of PASSES. inputs: (q, k, v, do) that `right` was computed from."""
    refused = _too_large(case, backend, device)
    if refused:
        return dict.fromkeys(PASSES, Outcome("skip", refused))
    try:
        forward = backend.setup(case, device)
        if isinstance(forward, str):
            return dict.fromkeys(PASSES, Outcome("skip", forward))
        return {which: _pass(which, case, backend, forward, device, inputs, right, how) for which in PASSES}
    except torch.OutOfMemoryError:
        return dict.fromkeys(PASSES, Outcome("skip", f"{backend.name} ran out of memory"))
    except Exception as error:  # whatever a library raises is the end of its row, not of the run
        told = (str(error).splitlines() or [""])[0][:200]
        if "No available kernel" in told or "No viable backend" in told:
            return dict.fromkeys(PASSES, Outcome("skip", "torch has no such kernel for this case on this device"))
        return dict.fromkeys(PASSES, Outcome("error", f"{backend.name}: {type(error).__name__}: {told}"))


def _too_large(case: Attention, backend: Backend, device: str) -> str:
    if not backend.materialises:
        return ""
    scores = score_bytes(case)
    need, free = _MATERIALISED * scores, free_bytes(device)
    if free is None or need <= _SHARE * free:
        return ""
    return f"its scores take {_gib(scores)}, about {_gib(need)} with its steps, and {_gib(free)} are free"


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _pass(which, case, backend: Backend, forward, device, inputs, right: Expected, how: How) -> Outcome:
    if which == "backward" and backend.no_backward:
        return Outcome("skip", backend.no_backward)
    call = _calls(which, backend, forward, inputs)
    checked = compare(case, _found(which, backend, call()), right)
    if checked.wrong:
        share = f"{checked.error:.3g} in {checked.tensor}, allowed are {checked.allowed:.3g}"
        reason = f"{checked.wrong} elements are off by up to {share} ({ALLOWED} times SDPA's error, plus a floor)"
        return Outcome("wrong", reason, checked=checked, heads_checked=len(right.heads))
    memory = peak_bytes(call, device)
    touched = forward_bytes(case) if which == "forward" else backward_bytes(case)
    sets = turns(touched + (score_bytes(case) if backend.materialises else 0), device)
    others = [_calls(which, backend, forward, draw(case, device, seed)) for seed in range(1, sets)]
    before = used()
    found = timed([call, *others], device, how.rule, how.warmup_s)
    spent = [None if None in pair else pair[1] - pair[0] for pair in zip(before, used(), strict=True)]
    return Outcome("ok", "", found, checked, memory, foreign_cores([(0, *spent)]), len(right.heads))


def _calls(which: str, backend: Backend, forward, inputs):
    """The timed call: a forward that keeps what backward needs, or the backward alone."""
    q, k, v = leaves(inputs[:3], backend.layout)
    if which == "forward":
        return (lambda: _without_graph(forward, q, k, v)) if backend.no_backward else (lambda: forward(q, k, v))
    do = relaid(inputs[3], backend.layout)
    o = forward(q, k, v)
    return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)


def _without_graph(forward, q, k, v):
    with torch.no_grad():
        return forward(q, k, v)


def _found(which: str, backend: Backend, made) -> dict[str, torch.Tensor]:
    names, tensors = (("o",), (made,)) if which == "forward" else (("dq", "dk", "dv"), made)
    return {name: relaid(x, backend.layout) for name, x in zip(names, tensors, strict=True)}
