"""Changed against the reference: scores exist for one tile at a time, so memory grows with the tokens, not with their
square. The softmax is kept up online (Dao et al., FlashAttention, arXiv 2205.14135, algorithms 1 and 4).

Plain torch, exact, forward and backward. Tiles that the mask empties are never computed; queries are the outer loop
(as in FlashAttention-2), so an output tile is finished before the next one begins. Shapes as in attention_reference.
"""

import torch

from commbench.kernels.masks import Mask, key_bounds

TILE = 256  # rows and columns: 256 KiB of float32 scores a head, which stay in a cache


def attention(q, k, v, mask: Mask, scale: float | None = None, tile: int = TILE) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse), as attention_reference.attention gives them; both are differentiable."""
    return _Tiled.apply(q, k, v, mask, q.shape[-1] ** -0.5 if scale is None else scale, tile)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, scale, tile):
        o, lse = _forward(q, k, v, mask, scale, tile)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.how = mask, scale, tile
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        return (*_backward(q, k, v, o, lse, do, dlse, *ctx.how), None, None, None)


def _forward(q, k, v, mask: Mask, scale: float, tile: int):
    (batch, heads, sq, _), (_, kv_heads, sk, dim_v) = q.shape, v.shape
    shared = batch, kv_heads, heads // kv_heads
    bounds = _bounds(mask, sq, sk, q.device)
    o = q.new_empty(batch, heads, sq, dim_v)
    lse = torch.empty(batch, heads, sq, dtype=_wide(q), device=q.device)
    for first in range(0, sq, tile):
        rows = slice(first, min(first + tile, sq))
        count = rows.stop - first
        # The query heads of a group stand below each other, so that one product serves them all.
        q_tile = _rows(q, rows, shared) * scale
        acc = q_tile.new_zeros(*shared[:2], shared[2] * count, dim_v)
        largest = acc.new_full((*acc.shape[:-1], 1), float("-inf"))
        total = torch.zeros_like(largest)
        for keys, masked in _tiles(bounds, sk, rows, tile):
            scores = q_tile @ _wide_part(k, keys).transpose(-1, -2)
            if masked:
                scores.masked_fill_(_hidden(bounds, rows, keys, shared[2]), float("-inf"))
            higher = torch.maximum(largest, scores.amax(-1, keepdim=True))
            finite = higher.clamp_min(torch.finfo(higher.dtype).min)
            weights = scores.sub_(finite).exp_()
            fade = torch.exp(largest - finite)
            total.mul_(fade).add_(weights.sum(-1, keepdim=True))
            acc.mul_(fade).add_(weights @ _wide_part(v, keys))
            largest = higher
        acc /= torch.where(total > 0, total, 1.0)
        o[:, :, rows] = acc.view(*shared, count, dim_v).flatten(1, 2)
        lse[:, :, rows] = (largest + total.log()).view(*shared, count).flatten(1, 2)
    return o, lse


def _backward(q, k, v, o, lse, do, dlse, mask: Mask, scale: float, tile: int):
    """Scores are computed again from q, k and lse. dlse comes in where lse was used, as in a merge of parts."""
    (batch, heads, sq, _), (_, kv_heads, sk, _) = q.shape, v.shape
    shared = batch, kv_heads, heads // kv_heads
    bounds = _bounds(mask, sq, sk, q.device)
    dq = torch.empty_like(q)
    dk, dv = (torch.zeros_like(x, dtype=_wide(q)) for x in (k, v))
    delta = (do.to(lse.dtype) * o).sum(-1) - torch.where(torch.isneginf(lse), 0.0, dlse)
    for first in range(0, sq, tile):
        rows = slice(first, min(first + tile, sq))
        q_tile, do_tile = (_rows(x, rows, shared) for x in (q, do))
        lse_tile, delta_tile = (_rows(x.unsqueeze(-1), rows, shared) for x in (lse, delta))
        # An empty row has no finite score either: any finite number makes its weights 0.
        lse_tile = lse_tile.clamp_min(torch.finfo(lse.dtype).min)
        dq_tile = torch.zeros_like(q_tile)
        for keys, masked in _tiles(bounds, sk, rows, tile):
            k_tile, v_tile = _wide_part(k, keys), _wide_part(v, keys)
            weights = (q_tile @ k_tile.transpose(-1, -2)).mul_(scale)
            if masked:
                weights.masked_fill_(_hidden(bounds, rows, keys, shared[2]), float("-inf"))
            weights.sub_(lse_tile).exp_()
            dv[:, :, keys] += weights.transpose(-1, -2) @ do_tile
            d_scores = (do_tile @ v_tile.transpose(-1, -2)).sub_(delta_tile).mul_(weights)
            dq_tile += d_scores @ k_tile
            dk[:, :, keys] += d_scores.transpose(-1, -2) @ q_tile
        dq_tile *= scale
        dq[:, :, rows] = dq_tile.view(*shared, rows.stop - first, -1).flatten(1, 2)
    return dq, dk.mul_(scale).to(k.dtype), dv.to(v.dtype)


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _wide_part(x: torch.Tensor, keys: slice) -> torch.Tensor:
    return x[:, :, keys].to(_wide(x))


def _rows(x: torch.Tensor, rows: slice, shared: tuple[int, int, int]) -> torch.Tensor:
    """[B, H, rows, D] as [B, Hkv, group * rows, D], in float32."""
    return x[:, :, rows].to(_wide(x)).reshape(*shared[:2], -1, x.shape[-1])


def _bounds(mask: Mask, sq: int, sk: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = key_bounds(mask, sq, sk)
    return torch.from_numpy(low).to(device), torch.from_numpy(high).to(device)


def _tiles(bounds, sk: int, rows: slice, tile: int):
    """(keys, whether the mask cuts through the tile) of the tiles that these queries see anything of."""
    (low, inner_low), (inner_high, high) = (x[[rows.start, rows.stop - 1]].tolist() for x in bounds)
    for first in range(low // tile * tile, high, tile):
        last = min(first + tile, sk)
        yield slice(first, last), first < inner_low or last > inner_high


def _hidden(bounds, rows: slice, keys: slice, group: int) -> torch.Tensor:
    """True where a query of the tile does not see a key: [group * rows, keys]."""
    low, high = (x[rows].repeat(group).unsqueeze(1) for x in bounds)
    key = torch.arange(keys.start, keys.stop, device=low.device)
    return (key < low) | (key >= high)
