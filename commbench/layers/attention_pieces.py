"""Attention on pieces of a sequence, merged in float32, and its backward: what all forms of context parallelism share.

Shapes: q, o [B, H, n, D], k, v [B, Hkv, n, D], views of memory that lies sequence first; lse [B, H, n], float32, the
natural logarithm of the sum of exp(score).
"""

import torch
import torch.nn.functional as F

from commbench.layers.sequence_cut import Piece

aten = torch.ops.aten


def heads_first(rows: torch.Tensor) -> torch.Tensor:
    """[B, H, n, D] of [n, B, H, D]: a view."""
    return rows.permute(1, 2, 0, 3)


def rows_first(heads: torch.Tensor) -> torch.Tensor:
    """[n, B, H, D] of [B, H, n, D]: a view."""
    return heads.permute(2, 0, 1, 3)


def keys_values(kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """k and v [B, Hkv, n, D] of kv [n, 2, B, Hkv, D]: views."""
    return heads_first(kv[:, 0]), heads_first(kv[:, 1])


def start(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) that attend_pieces fills, for queries [n, B, H, D]; o is float32 and heads first."""
    n, batch, heads, _ = q.shape
    return heads_first(torch.empty_like(q, dtype=torch.float32)), q.new_empty(batch, heads, n, dtype=torch.float32)


def attend_pieces(q, k, v, pieces: list[Piece], o, lse) -> None:
    """Merge what `pieces` see into o and lse. A causal square is the first that its queries see."""
    for piece in pieces:
        part, part_lse = attend(q[:, :, piece.q], k[:, :, piece.k], v[:, :, piece.k], piece.causal)
        o_rows, lse_rows = o[:, :, piece.q], lse[:, :, piece.q]
        if piece.causal:
            o_rows.copy_(part)
            lse_rows.copy_(part_lse)
        else:
            merge(o_rows, lse_rows, part, part_lse)


def merge(o, lse, part, part_lse) -> None:
    """Take a further part into o and lse, in place; the form that cannot overflow (ring-flash-attention, utils.py)."""
    o.lerp_(part.float(), torch.sigmoid(part_lse - lse).unsqueeze(-1))
    lse.sub_(F.logsigmoid(lse - part_lse))


def attend_pieces_backward(do, q, k, v, o, lse, pieces: list[Piece], dq, dk, dv) -> None:
    """Add the gradients of `pieces` to dq, dk and dv (float32). o and lse are those of the whole attention, so that
    each piece finds its own share of it (Dao, arXiv 2205.14135, algorithm 4)."""
    for piece in pieces:
        rows, keys = piece.q, piece.k
        parts = attend_backward(
            do[:, :, rows], q[:, :, rows], k[:, :, keys], v[:, :, keys], o[:, :, rows], lse[:, :, rows], piece.causal
        )
        for total, where, part in zip((dq, dk, dv), (rows, keys, keys), parts):
            total[:, :, where] += part


def attend(q, k, v, causal: bool):
    """(o in q's dtype, lse) by torch's flash attention; written out where a GPU has it only for 16 bits."""
    if q.device.type == "cpu":
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    if q.dtype == torch.float32:
        return attend_written_out(q, k, v, causal)
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]


def attend_backward(do, q, k, v, o, lse, causal: bool):
    """(dq, dk, dv) in q's dtype."""
    if q.device.type == "cpu":
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(do, q, k, v, o, lse, 0.0, causal)
    if q.dtype == torch.float32:
        return attend_backward_written_out(do, q, k, v, o, lse, causal)
    no_dropout = torch.empty(2, dtype=torch.uint64, device=q.device)
    return aten._scaled_dot_product_flash_attention_backward(
        do, q, k, v, o, lse.contiguous(), None, None, q.shape[2], k.shape[2], 0.0, causal, no_dropout, no_dropout
    )


def attend_written_out(q, k, v, causal: bool):
    """(o, lse) in float32 with every score in memory."""
    scores = _scores(q, k, causal)
    lse = scores.logsumexp(-1)
    return _by_head(torch.exp(scores - lse.unsqueeze(-1)) @ _wide(v), q), lse.flatten(1, 2)


def attend_backward_written_out(do, q, k, v, o, lse, causal: bool):
    """(dq, dk, dv) in float32: dS = P (dO V^T - rowsum(dO O))."""
    grouped = q.shape[0], k.shape[1], -1, q.shape[2]
    weights = torch.exp(_scores(q, k, causal) - lse.reshape(grouped).unsqueeze(-1))
    do_grouped = _grouped(do, k)
    delta = (do * o).sum(-1).reshape(grouped).unsqueeze(-1)
    d_scores = weights * (do_grouped @ _wide(v).transpose(-1, -2) - delta) * q.shape[-1] ** -0.5
    dk = (d_scores.transpose(-1, -2) @ _grouped(q, k)).sum(2)
    return _by_head(d_scores @ _wide(k), q), dk, (weights.transpose(-1, -2) @ do_grouped).sum(2)


def _scores(q, k, causal: bool):
    """[B, Hkv, H / Hkv, n, keys]"""
    scores = _grouped(q, k) @ _wide(k).transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


def _grouped(q, k):
    return q.float().reshape(q.shape[0], k.shape[1], -1, *q.shape[2:])


def _wide(k):
    return k.float().unsqueeze(2)


def _by_head(grouped, q):
    return grouped.reshape(q.shape)
