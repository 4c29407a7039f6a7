"""The backward kernels of attention_triton. Scores are computed again; nobody adds to what another program writes."""

import triton
import triton.language as tl

from commbench.kernels.triton_tiles import LOG2_E, parts, tile, write


@triton.jit
def delta_of(o, do, lse, dlse, delta, o_b, o_h, o_s, do_b, do_h, do_s, heads, sq,
           DIM_V: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """delta = sum(o * do) - dlse of each query: what softmax's backward subtracts from dP."""
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    first = tl.program_id(0) * ROWS
    o_tile = tile(o + batch * o_b + head * o_h, o_s, first, sq, ROWS, DIM_V).to(tl.float32)
    do_tile = tile(do + batch * do_b + head * do_h, do_s, first, sq, ROWS, DIM_V).to(tl.float32)
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
        q_tile = tile(q, q_s, first, sq, ROWS, WHOLE)
        q_rest = q_tile
        scores = tl.dot(k, tl.trans(q_tile), input_precision="ieee")
        if REST > 0:
            q_rest = tile(q, q_s, first, sq, ROWS, REST, WHOLE)
            scores = tl.dot(k_rest, tl.trans(q_rest), scores, input_precision="ieee")
        lse_row = tl.load(lse + rows, mask=rows < sq, other=0.0)
        weights = tl.exp2(scores * (scale * LOG2_E) - (lse_row * LOG2_E)[None, :])
        if MASKED:
            seen = (rows[None, :] >= low[:, None]) & (rows[None, :] < high[:, None])
            weights = tl.where(seen, weights, 0.0)
        do_tile = tile(do, do_s, first, sq, ROWS, DIM_V)
        dv = tl.dot(weights.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
        d_weights = tl.dot(v, tl.trans(do_tile), input_precision="ieee")
        d_scores = weights * (d_weights - tl.load(delta + rows, mask=rows < sq, other=0.0)[None, :])
        d_scores = d_scores.to(q_tile.dtype)
        dk = tl.dot(d_scores, q_tile, dk, input_precision="ieee")
        if REST > 0:
            dk_rest = tl.dot(d_scores, q_rest, dk_rest, input_precision="ieee")
    return dk, dk_rest, dv


@triton.jit
def backward_keys(q, k, v, do, lse, delta, dk, dv, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s,
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
    begin, inner_begin, inner_end, end = parts(lows, highs, first, sk, KEYS, ROWS)
    k_tile = tile(k, k_s, first, sk, KEYS, WHOLE)
    k_rest = k_tile
    v_tile = tile(v + batch * v_b + kv_head * v_h, v_s, first, sk, KEYS, DIM_V)
    dk_tile = tl.zeros([KEYS, WHOLE], tl.float32)
    dk_rest = dk_tile
    if REST > 0:
        k_rest = tile(k, k_s, first, sk, KEYS, REST, WHOLE)
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
    write(dk, dk_s, first, sk, dk_tile * scale, KEYS, WHOLE)
    if REST > 0:
        write(dk, dk_s, first, sk, dk_rest * scale, KEYS, REST, WHOLE)
    write(dv + batch * dv_b + kv_head * dv_h, dv_s, first, sk, dv_tile, KEYS, DIM_V)


@triton.jit
def _queries_over(dq, dq_rest, q, q_rest, do, lse, delta, k, v, k_s, v_s, low, high, begin, end, sk, scale,
                  WHOLE: tl.constexpr, REST: tl.constexpr, DIM_V: tl.constexpr, KEYS: tl.constexpr,
                  MASKED: tl.constexpr):  # fmt: skip
    """Take the keys from `begin` to `end` into dQ of a tile of queries."""
    for first in range(begin, end, KEYS):
        k_tile = tile(k, k_s, first, sk, KEYS, WHOLE)
        k_rest = k_tile
        scores = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
        if REST > 0:
            k_rest = tile(k, k_s, first, sk, KEYS, REST, WHOLE)
            scores = tl.dot(q_rest, tl.trans(k_rest), scores, input_precision="ieee")
        weights = tl.exp2(scores * (scale * LOG2_E) - (lse * LOG2_E)[:, None])
        if MASKED:
            keys = first + tl.arange(0, KEYS)
            seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
            weights = tl.where(seen, weights, 0.0)
        d_weights = tl.dot(do, tl.trans(tile(v, v_s, first, sk, KEYS, DIM_V)), input_precision="ieee")
        d_scores = (weights * (d_weights - delta[:, None])).to(k_tile.dtype)
        dq = tl.dot(d_scores, k_tile, dq, input_precision="ieee")
        if REST > 0:
            dq_rest = tl.dot(d_scores, k_rest, dq_rest, input_precision="ieee")
    return dq, dq_rest


@triton.jit
def backward_queries(q, k, v, do, lse, delta, dq, lows, highs, q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s,
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
    begin, inner_begin, inner_end, end = parts(lows, highs, first, sq, ROWS, KEYS)
    q_tile = tile(q, q_s, first, sq, ROWS, WHOLE)
    q_rest = q_tile
    dq_tile = tl.zeros([ROWS, WHOLE], tl.float32)
    dq_rest = dq_tile
    if REST > 0:
        q_rest = tile(q, q_s, first, sq, ROWS, REST, WHOLE)
        dq_rest = tl.zeros([ROWS, REST], tl.float32)
    do_tile = tile(do + batch * do_b + head * do_h, do_s, first, sq, ROWS, DIM_V)
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
    write(dq, dq_s, first, sq, dq_tile * scale, ROWS, WHOLE)
    if REST > 0:
        write(dq, dq_s, first, sq, dq_rest * scale, ROWS, REST, WHOLE)
