"""Is it right? Every kernel is held, before it is timed, against attention as defined, in float32.

A kernel may be off by 2.5 times what torch's SDPA is off in the same data type, plus a floor (flash-attention's tests
allow 2 times a plain implementation's error; the floor is there for inputs on which SDPA happens to be exact).
"""

from dataclasses import dataclass

import torch

from commbench.kernels.attention_reference import attention
from commbench.kernels.backends import BACKENDS
from commbench.kernels.flops import Attention, score_bytes

ALLOWED = 2.5
FLOORS = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}  # times the largest magnitude, where that is above 1
NAMES = ("o", "dq", "dk", "dv")
_MOST_SCORES = 2**31  # bytes of scores that the reference holds at a time


@dataclass(frozen=True)
class Expected:
    """Per tensor of NAMES the right values in float32, and the largest error that is let pass. heads: which key heads
    of which sequences were computed: (sequence, key head) each."""

    tensors: dict[str, torch.Tensor]
    allowed: dict[str, float]
    heads: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Checked:
    """wrong: elements off by more than allowed. error, allowed: of the tensor that is worst, as shares of its bound."""

    wrong: int
    error: float
    allowed: float
    tensor: str


def expected(case: Attention, q, k, v, do, most_heads: int = 8) -> Expected:
    """What must come out of these inputs, of at most `most_heads` key heads, the first and the last among them."""
    every = [(b, h) for b in range(case.batch) for h in range(case.kv_heads)]
    one_head = score_bytes(case) // len(every)
    count = min(len(every), max(2, min(most_heads, _MOST_SCORES // max(1, one_head))))
    heads = tuple(every[i * (len(every) - 1) // max(1, count - 1)] for i in range(count))
    parts = [_one(case, *cut(case, (q, k, v, do), head)) for head in heads]
    right = {name: torch.stack([part[0][name] for part in parts]) for name in NAMES}
    theirs = {name: torch.stack([part[1][name] for part in parts]) for name in NAMES}
    return Expected(right, {name: _bound(right[name], theirs[name], case.dtype) for name in NAMES}, heads)


def compare(case: Attention, found: dict[str, torch.Tensor], right: Expected) -> Checked:
    """`found`: o, or dq, dk, dv, or all of them, shaped as the inputs [B, H, S, D]."""
    worst, wrong = Checked(0, 0.0, 1.0, ""), 0
    for name, tensor in found.items():
        chosen = torch.stack([_cut_one(case, tensor.detach(), head, name in ("o", "dq")) for head in right.heads])
        error = (chosen.float() - right.tensors[name]).abs()
        off = int((~(error <= right.allowed[name])).sum())  # NaN is off too
        wrong += off
        largest = float(error.max()) if not torch.isnan(error).any() else float("inf")
        if not worst.tensor or largest / right.allowed[name] > worst.error / worst.allowed:
            worst = Checked(0, largest, right.allowed[name], name)
    return Checked(wrong, worst.error, worst.allowed, worst.tensor)


def cut(case: Attention, tensors, head: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """q, k, v, do of one key head and the query heads that share it, as a batch of one."""
    return tuple(_cut_one(case, x, head, i in (0, 3))[None] for i, x in enumerate(tensors))


def _cut_one(case: Attention, x: torch.Tensor, head: tuple[int, int], of_queries: bool) -> torch.Tensor:
    group = case.heads // case.kv_heads if of_queries else 1
    return x[head[0], head[1] * group : (head[1] + 1) * group]


def _one(case: Attention, q, k, v, do) -> tuple[dict, dict]:
    """(right in float32, SDPA's in the case's type) for one key head."""
    made = []
    for wide in (True, False):
        inputs = [(x.float() if wide else x).detach().requires_grad_() for x in (q, k, v)]
        o = attention(*inputs, case.mask)[0] if wide else _sdpa(case, *inputs)
        grads = torch.autograd.grad(o, inputs, do.to(o.dtype))
        made.append(dict(zip(NAMES, (x[0].detach().float() for x in (o, *grads)), strict=True)))
    return tuple(made)


def _sdpa(case: Attention, q, k, v) -> torch.Tensor:
    """SDPA in the case's type; its math form, which takes every mask and width. Empty rows are 0, not NaN."""
    one = Attention(1, q.shape[1], 1, case.sq, case.sk, case.dim, case.dim_v, case.dtype, case.mask)
    o = BACKENDS["sdpa-math"].setup(one, str(q.device))(q, k, v)
    return torch.nan_to_num(o)


def _bound(right: torch.Tensor, theirs: torch.Tensor, dtype: str) -> float:
    error = (theirs - right).abs()
    error = error[error.isfinite()]  # SDPA's own NaN and inf are no measure
    return ALLOWED * float(error.max() if len(error) else 0.0) + FLOORS[dtype] * max(1.0, float(right.abs().max()))
