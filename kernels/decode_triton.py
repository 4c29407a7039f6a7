"""Changed against the reference: a sequence's keys are split over programs (split-K, as in Flash-Decoding), so that one
long sequence fills the GPU; the query heads that share a key head are one tile, so that keys are read once for all.

Each part writes its own output and lse; a second kernel joins them. Shapes as in decode_reference. Unverified on GPU.
"""

import torch
import triton
import triton.language as tl

from commbench.kernels.triton_tiles import LN_2, LOG2_E, split


def decode(q, k_pages, v_pages, table, lengths, scale: float, dim_v: int = 0, splits: int = 0, keys: int = 0):
    """(o, lse), as decode_reference.decode gives them.

    splits: into how many parts the keys are cut; 0: so that there are about four programs for each processor of the
    GPU. keys: of a tile; 0: by the width.
    """
    batch, heads, dim = q.shape
    _, page, kv_heads, _ = k_pages.shape
    latent = v_pages is None
    values = k_pages if latent else v_pages
    dim_v = dim_v if latent else values.shape[-1]
    keys = keys or (64 if dim <= 256 else 32)
    splits = splits or _splits(batch * kv_heads, table.shape[1] * page, keys, q.device)
    parts = torch.empty(batch, heads, splits, dim_v, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(batch, heads, splits, dtype=torch.float32, device=q.device)
    group = heads // kv_heads
    rows = max(16, triton.next_power_of_2(group))  # a tile of a matrix product has at least 16 rows
    whole, rest = split(dim)
    _part[batch, kv_heads, splits](
        q, k_pages, values, table, lengths, parts, part_lse, *q.stride()[:2], *k_pages.stride()[:3],
        *values.stride()[:3], table.stride(0), heads, group, scale, page, whole, rest, max(16, rest), dim_v,
        rows, keys, latent,
    )  # fmt: skip
    o = torch.empty(batch, heads, dim_v, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, dtype=torch.float32, device=q.device)
    _join[batch, heads](parts, part_lse, o, lse, heads, splits, dim_v, triton.next_power_of_2(splits))
    return o, lse


def _splits(programs: int, most_keys: int, keys: int, device) -> int:
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
    return max(1, min(4 * processors // programs, most_keys // keys, 128))


@triton.jit
def _part(q, k_pages, v_pages, table, lengths, parts, part_lse, q_b, q_h, k_p, k_s, k_h, v_p, v_s, v_h, table_b,
          heads, group, scale, PAGE: tl.constexpr, WHOLE: tl.constexpr, REST: tl.constexpr, REST_SIDE: tl.constexpr,
          DIM_V: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, LATENT: tl.constexpr):  # fmt: skip
    batch, kv_head, which = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length, splits = tl.load(lengths + batch), tl.num_programs(2)
    share = tl.cdiv(tl.cdiv(length, splits), KEYS) * KEYS
    begin, end = which * share, tl.minimum(length, (which + 1) * share)
    member = tl.arange(0, ROWS)
    head = kv_head * group + member
    here = member < group
    columns, rest, value_columns = tl.arange(0, WHOLE), WHOLE + tl.arange(0, REST_SIDE), tl.arange(0, DIM_V)
    q_rows = q + batch.to(tl.int64) * q_b + head[:, None] * q_h
    q_tile = tl.load(q_rows + columns[None, :], mask=here[:, None], other=0.0)
    q_rest = q_tile
    if REST > 0:
        q_rest = tl.load(q_rows + rest[None, :], mask=here[:, None], other=0.0)
    acc = tl.zeros([ROWS, DIM_V], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for first in range(begin, end, KEYS):
        key = first + tl.arange(0, KEYS)
        inside = key < end
        page = tl.load(table + batch * table_b + key // PAGE, mask=inside, other=0).to(tl.int64)
        k_rows = k_pages + page * k_p + (key % PAGE) * k_s + kv_head * k_h
        k_tile = tl.load(k_rows[:, None] + columns[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")
        if REST > 0:
            k_rest = tl.load(k_rows[:, None] + rest[None, :], mask=inside[:, None], other=0.0)
            scores = tl.dot(q_rest, tl.trans(k_rest), scores, input_precision="ieee")
        scores = tl.where(inside[None, :], scores * (scale * LOG2_E), float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(largest - higher)
        total = total * fade + tl.sum(weights, 1)
        acc *= fade[:, None]
        if LATENT:
            values = k_tile  # the same bytes: DIM_V is WHOLE
        else:
            v_rows = v_pages + page * v_p + (key % PAGE) * v_s + kv_head * v_h
            values = tl.load(v_rows[:, None] + value_columns[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
        largest = higher
    at = ((batch * heads + head) * splits + which).to(tl.int64)
    acc /= tl.where(total > 0, total, 1.0)[:, None]
    tl.store(parts + at[:, None] * DIM_V + value_columns[None, :], acc, mask=here[:, None])
    lse = tl.where(total > 0, largest + tl.log2(tl.where(total > 0, total, 1.0)), float("-inf"))
    tl.store(part_lse + at, lse, mask=here)


@triton.jit
def _join(parts, part_lse, o, lse, heads, splits, DIM_V: tl.constexpr, SPLITS: tl.constexpr):
    at = (tl.program_id(0) * heads + tl.program_id(1)).to(tl.int64)
    which, columns = tl.arange(0, SPLITS), tl.arange(0, DIM_V)
    each = tl.load(part_lse + at * splits + which, mask=which < splits, other=float("-inf"))
    largest = tl.max(each, 0)
    finite = tl.where(largest == float("-inf"), 0.0, largest)
    weights = tl.exp2(each - finite)
    total = tl.sum(weights, 0)
    pointers = parts + (at * splits + which[:, None]) * DIM_V + columns[None, :]
    tile = tl.load(pointers, mask=which[:, None] < splits, other=0.0)
    joined = tl.sum(tile * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(o + at * DIM_V + columns, joined.to(o.dtype.element_ty))
    tl.store(lse + at, tl.where(total > 0, (finite + tl.log2(tl.where(total > 0, total, 1.0))) * LN_2, float("-inf")))
