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

from commbench.errors import UsageError
from commbench.kernels.attention_triton_backward import backward_keys, backward_queries, delta_of
from commbench.kernels.attention_triton_forward import forward
from commbench.kernels.masks import Mask, key_bounds, query_bounds
from commbench.kernels.triton_tiles import INTERPRETED, split


class Tiles(NamedTuple):
    """Queries and keys of a tile, warps of a program, stages of its software pipeline."""

    rows: int
    keys: int
    warps: int
    stages: int


_POWERS = (16, 32, 64, 128, 256)

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
    if not (16 <= whole <= dim <= 256 and rest in (0, *_POWERS) and dim_v in _POWERS):
        raise UsageError(
            f"head dims {dim} and {dim_v}: queries and keys are a power of two from 16 up, or the sum of two (192 = "
            "128 + 64), up to 256, values a power of two; pad the others with zeros"
        )
    if INTERPRETED and dtype == "bfloat16":
        raise UsageError("Triton's interpreter computes wrongly in bfloat16; use float32 or float16 there")


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
    forward[triton.cdiv(sq, tiles.rows), batch * heads](
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
    delta_of[triton.cdiv(sq, 64), batch * heads](
        o, do, lse, dlse.contiguous(), delta, *_strides(o, do), heads, sq, dim_v, 64
    )  # fmt: skip
    sizes = heads, heads // kv_heads, sq, sk, scale, *split(dim), dim_v
    how = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    # dK and dV keep a tile of keys and walk over queries; dQ keeps a tile of queries, so its tile is the turned one.
    backward_keys[triton.cdiv(sk, tiles.keys), batch * kv_heads](
        q, k, v, do, lse, delta, dk, dv, *bounds[2:], *_strides(q, k, v, do, dk, dv), *sizes,
        tiles.rows, tiles.keys, **how,
    )  # fmt: skip
    backward_queries[triton.cdiv(sq, tiles.keys), batch * heads](
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
