"""Changed against attention_triton: the forward's tiles come through tensor descriptors (TMA on Hopper and later: one
instruction moves a tile, out-of-range rows are 0), its sizes are found by autotuning, and the loop asks for warp
specialisation where Triton has it (Blackwell; elsewhere it is ignored). The backward is attention_triton's.

Head dims are powers of two. Needs triton 3.4 or newer. Unverified on GPU; checked in Triton's interpreter.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from commbench.errors import UsageError
from commbench.kernels import attention_triton as plain
from commbench.kernels.masks import Mask
from commbench.kernels.triton_tiles import INTERPRETED, LN_2, LOG2_E, parts, split


def attention(q, k, v, mask: Mask, scale: float | None = None):
    """(o, lse), as attention_reference.attention gives them; both are differentiable."""
    if split(q.shape[-1])[1]:
        raise UsageError(f"head dim {q.shape[-1]}: the Hopper form takes powers of two; use the plain Triton form")
    plain.refuse(q.shape[-1], v.shape[-1], str(q.dtype).removeprefix("torch."))
    return _Hopper.apply(q, k, v, mask, q.shape[-1] ** -0.5 if scale is None else scale)


class _Hopper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, scale):
        o, lse = _launch(q.contiguous(), k.contiguous(), v.contiguous(), mask, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.how = mask, scale, plain.default_tiles(q.shape[-1], q.element_size())[1]
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        return (*plain.launch_backward(q, k, v, o, lse, do, dlse, *ctx.how), None, None)


def _launch(q, k, v, mask: Mask, scale: float):
    (batch, heads, sq, dim), (_, kv_heads, sk, dim_v) = q.shape, v.shape
    o = torch.empty(batch, heads, sq, dim_v, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, sq, dtype=torch.float32, device=q.device)
    low, high, _, _ = plain.device_bounds(mask, sq, sk, str(q.device))
    # The sides of the blocks are set by the hook, when a configuration is chosen.
    blocks = [TensorDescriptor.from_tensor(x.flatten(0, 1), [1, 16, x.shape[-1]]) for x in (q, k, v, o)]

    def grid(chosen):
        return triton.cdiv(sq, chosen["ROWS"]), batch * heads

    cuts_left = mask.left is not None or bool(mask.documents)
    _forward[grid](*blocks, lse, low, high, heads // kv_heads, sq, sk, scale, dim, dim_v, cuts_left)
    return o, lse


def _set_blocks(arguments: dict) -> None:
    for name, side in (("q", "ROWS"), ("k", "KEYS"), ("v", "KEYS"), ("o", "ROWS")):
        block = arguments[name].block_shape
        arguments[name].block_shape = [1, arguments[side], block[2]]


def _configs() -> list[triton.Config]:
    sizes = [(128, 128, 8), (128, 64, 8), (128, 64, 4), (64, 64, 4)]
    found = [
        triton.Config(
            {"ROWS": rows, "KEYS": keys, "SPECIALIZE": apart}, num_warps=w, num_stages=s, pre_hook=_set_blocks
        )
        for rows, keys, w in sizes
        for s in (2, 3, 4)
        for apart in (False, True)
    ]
    small = triton.Config({"ROWS": 32, "KEYS": 16, "SPECIALIZE": True}, pre_hook=_set_blocks)
    return [small] if INTERPRETED else found  # the interpreter has no clock to tune by


@triton.jit
def _block(descriptor, which, first, SIDE: tl.constexpr, WIDTH: tl.constexpr):
    return tl.reshape(descriptor.load([which, first, 0]), [SIDE, WIDTH])


@triton.jit
def _over(acc, largest, total, q, k, v, kv, low, high, begin, end, scale, DIM: tl.constexpr, DIM_V: tl.constexpr,
          KEYS: tl.constexpr, MASKED: tl.constexpr, SPECIALIZE: tl.constexpr):  # fmt: skip
    for first in tl.range(begin, end, KEYS, warp_specialize=SPECIALIZE):
        scores = tl.dot(q, tl.trans(_block(k, kv, first, KEYS, DIM)), input_precision="ieee") * (scale * LOG2_E)
        if MASKED:
            keys = first + tl.arange(0, KEYS)
            seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - finite[:, None])
        fade = tl.exp2(largest - finite)
        total = total * fade + tl.sum(weights, 1)
        acc *= fade[:, None]
        values = _block(v, kv, first, KEYS, DIM_V)
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
        largest = higher
    return acc, largest, total


@triton.autotune(configs=_configs(), key=["sq", "sk", "DIM", "DIM_V", "CUTS_LEFT"])
@triton.jit
def _forward(q, k, v, o, lse, lows, highs, group, sq, sk, scale, DIM: tl.constexpr, DIM_V: tl.constexpr,
             CUTS_LEFT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SPECIALIZE: tl.constexpr):  # fmt: skip
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    head = tl.program_id(1)  # of all sequences: the key heads are as many times fewer, in the same order
    rows = first + tl.arange(0, ROWS)
    low = tl.load(lows + rows, mask=rows < sq, other=0)
    high = tl.load(highs + rows, mask=rows < sq, other=0)
    begin, inner_begin, inner_end, end = parts(lows, highs, first, sq, ROWS, KEYS)
    q_tile = _block(q, head, first, ROWS, DIM)
    acc = tl.zeros([ROWS, DIM_V], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    kv = head // group
    if CUTS_LEFT:
        acc, largest, total = _over(acc, largest, total, q_tile, k, v, kv, low, high, begin, inner_begin, scale,
                                    DIM, DIM_V, KEYS, True, SPECIALIZE)  # fmt: skip
    acc, largest, total = _over(acc, largest, total, q_tile, k, v, kv, low, high, inner_begin, inner_end, scale,
                                DIM, DIM_V, KEYS, False, SPECIALIZE)  # fmt: skip
    acc, largest, total = _over(acc, largest, total, q_tile, k, v, kv, low, high, inner_end, end, scale,
                                DIM, DIM_V, KEYS, True, SPECIALIZE)  # fmt: skip
    acc /= tl.where(total > 0, total, 1.0)[:, None]
    o.store([head, first, 0], tl.reshape(acc.to(o.dtype), [1, ROWS, DIM_V]))
    natural = tl.where(total > 0, (largest + tl.log2(tl.where(total > 0, total, 1.0))) * LN_2, float("-inf"))
    tl.store(lse + head.to(tl.int64) * sq + rows, natural, mask=rows < sq)
