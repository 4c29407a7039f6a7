"""The forward kernel of attention_triton: a program takes a tile of queries over all the keys that it sees."""

import triton
import triton.language as tl

from commbench.kernels.triton_tiles import LN_2, LOG2_E, parts, tile, write


@triton.jit
def _forward_over(acc, largest, total, q, q_rest, k, v, stride_k, stride_v, low, high, begin, end, sk, scale,
                  WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr, KEYS: tl.constexpr,
                  MASKED: tl.constexpr):  # fmt: skip
    """Take the keys from `begin` to `end` into the running output, maximum and sum of a tile of queries."""
    for first in range(begin, end, KEYS):
        scores = tl.dot(q, tl.trans(tile(k, stride_k, first, sk, KEYS, WHOLE)), input_precision="ieee")
        if REST > 0:
            k_rest = tile(k, stride_k, first, sk, KEYS, REST, WHOLE)
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
        values = tile(v, stride_v, first, sk, KEYS, DIM_V)
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
        largest = higher
    return acc, largest, total


@triton.jit
def forward(q, k, v, o, lse, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_s,
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
    begin, inner_begin, inner_end, end = parts(lows, highs, first, sq, ROWS, KEYS)
    q_tile = tile(q, q_s, first, sq, ROWS, WHOLE)
    q_rest = q_tile
    if REST > 0:
        q_rest = tile(q, q_s, first, sq, ROWS, REST, WHOLE)
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
    write(o + batch * o_b + head * o_h, o_s, first, sq, acc, ROWS, DIM_V)
    natural = tl.where(total > 0, (largest + tl.log2(tl.where(total > 0, total, 1.0))) * LN_2, float("-inf"))
    tl.store(lse + tl.program_id(1).to(tl.int64) * sq + rows, natural, mask=rows < sq)
