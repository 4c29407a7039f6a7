"""Changed against the reference: each row is read once and written once, forward and backward; torch makes a pass over
memory for each of its steps. Rows of RMSNorm stand in one tile, those of cross-entropy are walked over with a running
maximum, as attention's are. Unverified on GPU."""

import torch
import triton
import triton.language as tl

_MOST_PROGRAMS = 1024  # of RMSNorm's backward: each adds up the weight's gradient over its rows


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """As rowwise_reference.rms_norm, differentiable in x and weight."""
    return _RMSNorm.apply(x, weight, eps)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """As rowwise_reference.swiglu, differentiable in both."""
    return _SwiGLU.apply(gate, up)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, block: int = 4096) -> torch.Tensor:
    """As rowwise_reference.cross_entropy, differentiable in logits. block: of the vocabulary, at a time."""
    return _CrossEntropy.apply(logits, target, block)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = x.contiguous().view(-1, x.shape[-1])
        y, scale = torch.empty_like(rows), torch.empty(len(rows), dtype=torch.float32, device=x.device)
        side = triton.next_power_of_2(rows.shape[1])
        _norm_forward[(len(rows),)](rows, weight, y, scale, rows.shape[1], eps, side)
        ctx.save_for_backward(rows, weight, scale)
        return y.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        rows, weight, scale = ctx.saved_tensors
        count, width = rows.shape
        programs = min(count, _MOST_PROGRAMS)
        dx = torch.empty_like(rows)
        dw = torch.empty(programs, width, dtype=torch.float32, device=rows.device)
        each, side = triton.cdiv(count, programs), triton.next_power_of_2(width)
        _norm_backward[(programs,)](rows, weight, scale, dy.contiguous(), dx, dw, count, width, each, side)
        return dx.view_as(dy), dw.sum(0).to(weight.dtype), None


@triton.jit
def _norm_forward(x, weight, y, scale, width, eps, SIDE: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, SIDE)
    value = tl.load(x + row * width + column, mask=column < width, other=0.0).to(tl.float32)
    own = 1 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    w = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(y + row * width + column, (value * own * w).to(y.dtype.element_ty), mask=column < width)
    tl.store(scale + row, own)


@triton.jit
def _norm_backward(x, weight, scale, dy, dx, dw, count, width, each, SIDE: tl.constexpr):
    column = tl.arange(0, SIDE)
    inside = column < width
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    acc = tl.zeros([SIDE], tl.float32)
    first = tl.program_id(0) * each
    for row in range(first, tl.minimum(first + each, count)):
        at = row * width.to(tl.int64) + column
        normed = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * tl.load(scale + row)
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        acc += gradient * normed
        through = gradient * w
        out = (through - normed * (tl.sum(through * normed, 0) / width)) * tl.load(scale + row)
        tl.store(dx + at, out.to(dx.dtype.element_ty), mask=inside)
    tl.store(dw + tl.program_id(0) * width + column, acc, mask=inside)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        _swiglu_forward[(triton.cdiv(gate.numel(), 1024),)](gate, up, out, gate.numel(), 1024)
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx, d_out):
        gate, up = ctx.saved_tensors
        d_gate, d_up = torch.empty_like(gate), torch.empty_like(up)
        grid = (triton.cdiv(gate.numel(), 1024),)
        _swiglu_backward[grid](gate, up, d_out.contiguous(), d_gate, d_up, gate.numel(), 1024)
        return d_gate, d_up


@triton.jit
def _swiglu_forward(gate, up, out, count, SIDE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    g = tl.load(gate + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=at < count)


@triton.jit
def _swiglu_backward(gate, up, d_out, d_gate, d_up, count, SIDE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    g = tl.load(gate + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < count, other=0.0).to(tl.float32)
    d = tl.load(d_out + at, mask=at < count, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(d_gate + at, (d * u * s * (1 + g * (1 - s))).to(d_gate.dtype.element_ty), mask=at < count)
    tl.store(d_up + at, (d * g * s).to(d_up.dtype.element_ty), mask=at < count)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, block):
        logits = logits.contiguous()
        rows, vocabulary = logits.shape
        loss, lse = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
        _entropy_forward[(rows,)](logits, target, loss, lse, vocabulary, block)
        ctx.save_for_backward(logits, target, lse)
        ctx.block = block
        return loss

    @staticmethod
    def backward(ctx, d_loss):
        logits, target, lse = ctx.saved_tensors
        rows, vocabulary = logits.shape
        d_logits = torch.empty_like(logits)
        grid = (rows, triton.cdiv(vocabulary, ctx.block))
        _entropy_backward[grid](logits, target, lse, d_loss.contiguous(), d_logits, vocabulary, ctx.block)
        return d_logits, None, None


@triton.jit
def _entropy_forward(logits, target, loss, lse, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    largest, total = float("-inf"), 0.0
    for first in range(0, vocabulary, BLOCK):
        column = first + tl.arange(0, BLOCK)
        value = tl.load(logits + row * vocabulary + column, mask=column < vocabulary, other=float("-inf")).to(
            tl.float32
        )
        higher = tl.maximum(largest, tl.max(value, 0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(value - higher), 0)
        largest = higher
    own = largest + tl.log(total)
    right = tl.load(logits + row * vocabulary + tl.load(target + row)).to(tl.float32)
    tl.store(lse + row, own)
    tl.store(loss + row, own - right)


@triton.jit
def _entropy_backward(logits, target, lse, d_loss, d_logits, vocabulary, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * vocabulary + column, mask=column < vocabulary, other=0.0).to(tl.float32)
    share = tl.exp(value - tl.load(lse + row)) - tl.where(column == tl.load(target + row), 1.0, 0.0)
    out = share * tl.load(d_loss + row)
    tl.store(d_logits + row * vocabulary + column, out.to(d_logits.dtype.element_ty), mask=column < vocabulary)
