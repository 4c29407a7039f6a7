"""Changed against the tiled form: one kernel instead of one torch call for each step, so that scores never leave the
chip; a program for each tile of queries, exp2 for exp, and no mask in tiles that lie wholly inside it.

FlashAttention-2 (Dao, arXiv 2307.08691): forward, and a backward of two kernels that need no atomics: one for dK and
dV by tiles of keys, over all query heads that share them, one for dQ by tiles of queries. A mask is two numbers for
each query and for each key (masks.py), so causal, windows, documents and unequal lengths are one code. Shapes as in
attention_reference; only the last axis must be contiguous. Needs triton; on a CPU its interpreter, TRITON_INTERPRET=1
set before triton is imported. Unverified on GPU.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from commbench.errors import UsageError
from commbench.kernels.masks import Mask, key_bounds, query_bounds

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


class Tiles(NamedTuple):
    """Queries and keys of a tile, warps of a program, stages of its software pipeline."""

    rows: int
    keys: int
    warps: int
    stages: int


# By the width of a head in elements of 16 bits: what fits into the shared memory and registers of an SM.
_FORWARD = {64: Tiles(128, 64, 4, 3), 128: Tiles(128, 128, 8, 3), 256: Tiles(128, 64, 8, 2), 512: Tiles(64, 32, 8, 1)}
_BACKWARD = {64: Tiles(64, 128, 4, 3), 128: Tiles(64, 128, 8, 2), 256: Tiles(32, 64, 8, 1), 512: Tiles(16, 32, 8, 1)}


def attention(q, k, v, mask: Mask, scale: float | None = None, tiles: tuple[Tiles, Tiles] | None = None):
    """(o, lse), as attention_reference.attention gives them; both are differentiable.

    tiles: of forward and backward; None: by the head's width. Raises UsageError for widths and types it does not take.
    """
    refuse(q.shape[-1], v.shape[-1], str(q.dtype).removeprefix("torch."))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _Flash.apply(q, k, v, mask, scale, tiles or default_tiles(q.shape[-1], q.element_size()))


def refuse(dim: int, dim_v: int, dtype: str) -> None:
    """Raise UsageError where the kernels do not take the widths or the type."""
    whole, rest = split(dim)
    if not (16 <= whole <= 256 and rest in (0, *_POWERS) and dim_v in _POWERS):
        raise UsageError(
            f"head dims {dim} and {dim_v}: queries and keys are a power of two from 16 to 256 or the sum of two (192 = "
            "128 + 64), values a power of two; pad the others with zeros"
        )
    if INTERPRETED and dtype == "bfloat16":
        raise UsageError("Triton's interpreter computes wrongly in bfloat16; use float32 or float16 there")


def split(dim: int) -> tuple[int, int]:
    """(the largest power of two in `dim`, the rest): Triton's tiles have powers of two as sides."""
    whole = 1 << (dim.bit_length() - 1)
    return whole, dim - whole


_POWERS = (16, 32, 64, 128, 256)


def default_tiles(dim: int, itemsize: int) -> tuple[Tiles, Tiles]:
    """Of forward and backward, for queries `dim` wide of `itemsize` bytes."""
    width = max(64, 1 << (dim - 1).bit_length()) * max(1, itemsize // 2)
    return _FORWARD[width], _BACKWARD[width]


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, scale, tiles):
        o, lse = launch_forward(q, k, v, mask, scale, tiles[0])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.how = mask, scale, tiles[1]
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        return (*launch_backward(q, k, v, o, lse, do, dlse, *ctx.how), None, None, None)


def launch_forward(q, k, v, mask: Mask, scale: float, tiles: Tiles):
    (batch, heads, sq, dim), (_, kv_heads, sk, dim_v) = q.shape, v.shape
    q, k, v = (_last_contiguous(x) for x in (q, k, v))
    o = torch.empty(batch, heads, sq, dim_v, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, sq, dtype=torch.float32, device=q.device)
    low, high, _, _ = device_bounds(mask, sq, sk, str(q.device))
    _forward[triton.cdiv(sq, tiles.rows), batch * heads](
        q, k, v, o, lse, low, high, *_strides(q, k, v, o), heads, heads // kv_heads, sq, sk, scale,
        *split(dim), dim_v, tiles.rows, tiles.keys, _cuts_left(mask), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return o, lse


def launch_backward(q, k, v, o, lse, do, dlse, mask: Mask, scale: float, tiles: Tiles):
    (batch, heads, sq, dim), (_, kv_heads, sk, dim_v) = q.shape, v.shape
    q, k, v, do = (_last_contiguous(x) for x in (q, k, v, do))
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    delta = torch.empty_like(lse)
    bounds = device_bounds(mask, sq, sk, str(q.device))
    _delta[triton.cdiv(sq, 64), batch * heads](
        o, do, lse, dlse.contiguous(), delta, *_strides(o, do), heads, sq, dim_v, 64
    )  # fmt: skip
    sizes = heads, heads // kv_heads, sq, sk, scale, *split(dim), dim_v
    how = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    # dK and dV keep a tile of keys and walk over queries; dQ keeps a tile of queries, so its tile is the turned one.
    _backward_keys[triton.cdiv(sk, tiles.keys), batch * kv_heads](
        q, k, v, do, lse, delta, dk, dv, *bounds[2:], *_strides(q, k, v, do, dk, dv), *sizes,
        tiles.rows, tiles.keys, **how,
    )  # fmt: skip
    _backward_queries[triton.cdiv(sq, tiles.keys), batch * heads](
        q, k, v, do, lse, delta, dq, *bounds[:2], *_strides(q, k, v, do, dq), *sizes,
        tiles.keys, tiles.rows, _cuts_left(mask), **how,
    )  # fmt: skip
    return dq, dk, dv


@lru_cache(maxsize=64)
def device_bounds(mask: Mask, sq: int, sk: int, device: str) -> tuple[torch.Tensor, ...]:
    """key_bounds and query_bounds on the device, made once for each mask."""
    bounds = (*key_bounds(mask, sq, sk), *query_bounds(mask, sq, sk))
    return tuple(torch.from_numpy(bound).to(device) for bound in bounds)


def _cuts_left(mask: Mask) -> bool:
    return mask.left is not None or bool(mask.documents)


def _last_contiguous(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: torch.Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]


@triton.jit
def _tile(base, stride, first, limit, SIDE: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr = 0):
    """[SIDE, WIDTH] of a matrix from row `first` and column OFFSET on; rows from `limit` on are 0."""
    rows = first + tl.arange(0, SIDE)
    columns = OFFSET + tl.arange(0, WIDTH)
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < limit, other=0.0)


@triton.jit
def _write(base, stride, first, limit, x, SIDE: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr = 0):
    rows = first + tl.arange(0, SIDE)
    columns = OFFSET + tl.arange(0, WIDTH)
    pointers = base + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, x.to(base.dtype.element_ty), mask=rows[:, None] < limit)


@triton.jit
def _parts(low, high, first, limit, side, other_side):
    """(begin, inner begin, inner end, end) of what the rows first .. first + side - 1 see, in whole tiles of the other
    axis: all of them see all of what lies between inner begin and inner end."""
    last = tl.minimum(first + side, limit) - 1
    begin = tl.load(low + first) // other_side * other_side
    end = tl.maximum(tl.load(high + last), begin)
    inner_begin = tl.minimum(tl.cdiv(tl.load(low + last), other_side) * other_side, end)
    inner_end = tl.maximum(tl.load(high + first) // other_side * other_side, inner_begin)
    return begin, inner_begin, inner_end, end


@triton.jit
def _forward_over(acc, largest, total, q, q_rest, k, v, stride_k, stride_v, low, high, begin, end, sk, scale,
                  WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr, KEYS: tl.constexpr,
                  MASKED: tl.constexpr):  # fmt: skip
    """Take the keys from `begin` to `end` into the running output, maximum and sum of a tile of queries."""
    for first in range(begin, end, KEYS):
        scores = tl.dot(q, tl.trans(_tile(k, stride_k, first, sk, KEYS, WHOLE)), input_precision="ieee")
        if REST > 0:
            k_rest = _tile(k, stride_k, first, sk, KEYS, REST, WHOLE)
            scores = tl.dot(q_rest, tl.trans(k_rest), scores, input_precision="ieee")
        scores *= scale * LOG2_E
        if MASKED:
            keys = first + tl.arange(0, KEYS)
            seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)  # a query that has seen no key yet
        weights = tl.exp2(scores - finite[:, None])
        fade = tl.exp2(largest - finite)
        total = total * fade + tl.sum(weights, 1)
        acc *= fade[:, None]
        values = _tile(v, stride_v, first, sk, KEYS, DIM_V)
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
        largest = higher
    return acc, largest, total


@triton.jit
def _forward(q, k, v, o, lse, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_s,
             heads, group, sq, sk, scale, WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr,
             ROWS: tl.constexpr, KEYS: tl.constexpr, CUTS_LEFT: tl.constexpr):  # fmt: skip
    # The last queries see the most keys under a causal mask: they begin first, so that no long one is left at the end.
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    q += batch * q_b + head * q_h
    k += batch * k_b + head // group * k_h
    v += batch * v_b + head // group * v_h
    rows = first + tl.arange(0, ROWS)
    low = tl.load(lows + rows, mask=rows < sq, other=0)
    high = tl.load(highs + rows, mask=rows < sq, other=0)
    begin, inner_begin, inner_end, end = _parts(lows, highs, first, sq, ROWS, KEYS)
    q_tile = _tile(q, q_s, first, sq, ROWS, WHOLE)
    q_rest = q_tile
    if REST > 0:
        q_rest = _tile(q, q_s, first, sq, ROWS, REST, WHOLE)
    acc = tl.zeros([ROWS, DIM_V], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if CUTS_LEFT:
        acc, largest, total = _forward_over(
            acc, largest, total, q_tile, q_rest, k, v, k_s, v_s, low, high, begin, inner_begin, sk, scale,
            WHOLE, REST, DIM_V, KEYS, True)  # fmt: skip
    acc, largest, total = _forward_over(
        acc, largest, total, q_tile, q_rest, k, v, k_s, v_s, low, high, inner_begin, inner_end, sk, scale,
        WHOLE, REST, DIM_V, KEYS, False)  # fmt: skip
    acc, largest, total = _forward_over(
        acc, largest, total, q_tile, q_rest, k, v, k_s, v_s, low, high, inner_end, end, sk, scale,
        WHOLE, REST, DIM_V, KEYS, True)  # fmt: skip
    acc /= tl.where(total > 0, total, 1.0)[:, None]
    _write(o + batch * o_b + head * o_h, o_s, first, sq, acc, ROWS, DIM_V)
    natural = tl.where(total > 0, (largest + tl.log2(tl.where(total > 0, total, 1.0))) * LN_2, float("-inf"))
    tl.store(lse + tl.program_id(1).to(tl.int64) * sq + rows, natural, mask=rows < sq)


@triton.jit
def _delta(o, do, lse, dlse, delta, o_b, o_h, o_s, do_b, do_h, do_s, heads, sq,
           DIM_V: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """delta = sum(o * do) - dlse of each query: what softmax's backward subtracts from dP."""
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    first = tl.program_id(0) * ROWS
    o_tile = _tile(o + batch * o_b + head * o_h, o_s, first, sq, ROWS, DIM_V).to(tl.float32)
    do_tile = _tile(do + batch * do_b + head * do_h, do_s, first, sq, ROWS, DIM_V).to(tl.float32)
    rows = first + tl.arange(0, ROWS)
    at = tl.program_id(1).to(tl.int64) * sq + rows
    empty = tl.load(lse + at, mask=rows < sq, other=0.0) == float("-inf")  # such a query has no gradient
    through_lse = tl.where(empty, 0.0, tl.load(dlse + at, mask=rows < sq, other=0.0))
    tl.store(delta + at, tl.sum(o_tile * do_tile, 1) - through_lse, mask=rows < sq)


@triton.jit
def _keys_over(dk, dk_rest, dv, k, k_rest, v, q, do, lse, delta, q_s, do_s, low, high, begin, end, sq, scale,
               WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr, ROWS: tl.constexpr,
               MASKED: tl.constexpr):  # fmt: skip
    """Take the queries from `begin` to `end` into dK and dV of a tile of keys. Scores stand turned: [keys, rows]."""
    for first in range(begin, end, ROWS):
        rows = first + tl.arange(0, ROWS)
        q_tile = _tile(q, q_s, first, sq, ROWS, WHOLE)
        q_rest = q_tile
        scores = tl.dot(k, tl.trans(q_tile), input_precision="ieee")
        if REST > 0:
            q_rest = _tile(q, q_s, first, sq, ROWS, REST, WHOLE)
            scores = tl.dot(k_rest, tl.trans(q_rest), scores, input_precision="ieee")
        lse_row = tl.load(lse + rows, mask=rows < sq, other=0.0)
        weights = tl.exp2(scores * (scale * LOG2_E) - (lse_row * LOG2_E)[None, :])
        if MASKED:
            seen = (rows[None, :] >= low[:, None]) & (rows[None, :] < high[:, None])
            weights = tl.where(seen, weights, 0.0)
        do_tile = _tile(do, do_s, first, sq, ROWS, DIM_V)
        dv = tl.dot(weights.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
        d_weights = tl.dot(v, tl.trans(do_tile), input_precision="ieee")
        d_scores = weights * (d_weights - tl.load(delta + rows, mask=rows < sq, other=0.0)[None, :])
        d_scores = d_scores.to(q_tile.dtype)
        dk = tl.dot(d_scores, q_tile, dk, input_precision="ieee")
        if REST > 0:
            dk_rest = tl.dot(d_scores, q_rest, dk_rest, input_precision="ieee")
    return dk, dk_rest, dv


@triton.jit
def _backward_keys(q, k, v, do, lse, delta, dk, dv, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s,
                   do_b, do_h, do_s, dk_b, dk_h, dk_s, dv_b, dv_h, dv_s, heads, group, sq, sk, scale,
                   WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr,
                   ROWS: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * KEYS
    kv_heads = heads // group
    batch, kv_head = (tl.program_id(1) // kv_heads).to(tl.int64), (tl.program_id(1) % kv_heads).to(tl.int64)
    k += batch * k_b + kv_head * k_h
    keys = first + tl.arange(0, KEYS)
    low = tl.load(lows + keys, mask=keys < sk, other=0)
    high = tl.load(highs + keys, mask=keys < sk, other=0)
    begin, inner_begin, inner_end, end = _parts(lows, highs, first, sk, KEYS, ROWS)
    k_tile = _tile(k, k_s, first, sk, KEYS, WHOLE)
    k_rest = k_tile
    v_tile = _tile(v + batch * v_b + kv_head * v_h, v_s, first, sk, KEYS, DIM_V)
    dk_tile = tl.zeros([KEYS, WHOLE], tl.float32)
    dk_rest = dk_tile
    if REST > 0:
        k_rest = _tile(k, k_s, first, sk, KEYS, REST, WHOLE)
        dk_rest = tl.zeros([KEYS, REST], tl.float32)
    dv_tile = tl.zeros([KEYS, DIM_V], tl.float32)
    for member in range(group):
        head = kv_head * group + member
        q_head, do_head = q + batch * q_b + head * q_h, do + batch * do_b + head * do_h
        lse_head, delta_head = lse + (batch * heads + head) * sq, delta + (batch * heads + head) * sq
        dk_tile, dk_rest, dv_tile = _keys_over(
            dk_tile, dk_rest, dv_tile, k_tile, k_rest, v_tile, q_head, do_head, lse_head, delta_head, q_s, do_s,
            low, high, begin, inner_begin, sq, scale, WHOLE, REST, DIM_V, ROWS, True)  # fmt: skip
        dk_tile, dk_rest, dv_tile = _keys_over(
            dk_tile, dk_rest, dv_tile, k_tile, k_rest, v_tile, q_head, do_head, lse_head, delta_head, q_s, do_s,
            low, high, inner_begin, inner_end, sq, scale, WHOLE, REST, DIM_V, ROWS, False)  # fmt: skip
        dk_tile, dk_rest, dv_tile = _keys_over(
            dk_tile, dk_rest, dv_tile, k_tile, k_rest, v_tile, q_head, do_head, lse_head, delta_head, q_s, do_s,
            low, high, inner_end, end, sq, scale, WHOLE, REST, DIM_V, ROWS, True)  # fmt: skip
    dk += batch * dk_b + kv_head * dk_h
    _write(dk, dk_s, first, sk, dk_tile * scale, KEYS, WHOLE)
    if REST > 0:
        _write(dk, dk_s, first, sk, dk_rest * scale, KEYS, REST, WHOLE)
    _write(dv + batch * dv_b + kv_head * dv_h, dv_s, first, sk, dv_tile, KEYS, DIM_V)


@triton.jit
def _queries_over(dq, dq_rest, q, q_rest, do, lse, delta, k, v, k_s, v_s, low, high, begin, end, sk, scale,
                  WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr, KEYS: tl.constexpr,
                  MASKED: tl.constexpr):  # fmt: skip
    """Take the keys from `begin` to `end` into dQ of a tile of queries."""
    for first in range(begin, end, KEYS):
        k_tile = _tile(k, k_s, first, sk, KEYS, WHOLE)
        k_rest = k_tile
        scores = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
        if REST > 0:
            k_rest = _tile(k, k_s, first, sk, KEYS, REST, WHOLE)
            scores = tl.dot(q_rest, tl.trans(k_rest), scores, input_precision="ieee")
        weights = tl.exp2(scores * (scale * LOG2_E) - (lse * LOG2_E)[:, None])
        if MASKED:
            keys = first + tl.arange(0, KEYS)
            seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
            weights = tl.where(seen, weights, 0.0)
        d_weights = tl.dot(do, tl.trans(_tile(v, v_s, first, sk, KEYS, DIM_V)), input_precision="ieee")
        d_scores = (weights * (d_weights - delta[:, None])).to(k_tile.dtype)
        dq = tl.dot(d_scores, k_tile, dq, input_precision="ieee")
        if REST > 0:
            dq_rest = tl.dot(d_scores, k_rest, dq_rest, input_precision="ieee")
    return dq, dq_rest


@triton.jit
def _backward_queries(q, k, v, do, lse, delta, dq, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s,
                      do_b, do_h, do_s, dq_b, dq_h, dq_s, heads, group, sq, sk, scale,
                      WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr,
                      ROWS: tl.constexpr, KEYS: tl.constexpr, CUTS_LEFT: tl.constexpr):  # fmt: skip
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    q += batch * q_b + head * q_h
    k += batch * k_b + head // group * k_h
    v += batch * v_b + head // group * v_h
    rows = first + tl.arange(0, ROWS)
    low = tl.load(lows + rows, mask=rows < sq, other=0)
    high = tl.load(highs + rows, mask=rows < sq, other=0)
    begin, inner_begin, inner_end, end = _parts(lows, highs, first, sq, ROWS, KEYS)
    q_tile = _tile(q, q_s, first, sq, ROWS, WHOLE)
    q_rest = q_tile
    dq_tile = tl.zeros([ROWS, WHOLE], tl.float32)
    dq_rest = dq_tile
    if REST > 0:
        q_rest = _tile(q, q_s, first, sq, ROWS, REST, WHOLE)
        dq_rest = tl.zeros([ROWS, REST], tl.float32)
    do_tile = _tile(do + batch * do_b + head * do_h, do_s, first, sq, ROWS, DIM_V)
    at = (batch * heads + head) * sq + rows
    lse_row = tl.load(lse + at, mask=rows < sq, other=0.0)
    delta_row = tl.load(delta + at, mask=rows < sq, other=0.0)
    if CUTS_LEFT:
        dq_tile, dq_rest = _queries_over(
            dq_tile, dq_rest, q_tile, q_rest, do_tile, lse_row, delta_row, k, v, k_s, v_s, low, high,
            begin, inner_begin, sk, scale, WHOLE, REST, DIM_V, KEYS, True)  # fmt: skip
    dq_tile, dq_rest = _queries_over(
        dq_tile, dq_rest, q_tile, q_rest, do_tile, lse_row, delta_row, k, v, k_s, v_s, low, high,
        inner_begin, inner_end, sk, scale, WHOLE, REST, DIM_V, KEYS, False)  # fmt: skip
    dq_tile, dq_rest = _queries_over(
        dq_tile, dq_rest, q_tile, q_rest, do_tile, lse_row, delta_row, k, v, k_s, v_s, low, high,
        inner_end, end, sk, scale, WHOLE, REST, DIM_V, KEYS, True)  # fmt: skip
    dq += batch * dq_b + head * dq_h
    _write(dq, dq_s, first, sq, dq_tile * scale, ROWS, WHOLE)
    if REST > 0:
        _write(dq, dq_s, first, sq, dq_rest * scale, ROWS, REST, WHOLE)


INTERPRETED = not isinstance(_forward, triton.runtime.JITFunction)
