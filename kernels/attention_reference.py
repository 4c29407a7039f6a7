"""Attention as it is defined, softmax(QK^T / sqrt(d)) V, every score written to memory; what all others are held to.

Shapes: q [B, H, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv]; H is a multiple of Hkv.
"""

import torch

from commbench.kernels.masks import Mask


def allowed(mask: Mask, sq: int, sk: int, device="cpu") -> torch.Tensor:
    """The mask as booleans [Sq, Sk], from its definition."""
    own = torch.arange(sq, device=device)[:, None] + sk - sq
    key = torch.arange(sk, device=device)[None, :]
    seen = torch.ones(sq, sk, dtype=torch.bool, device=device)
    if mask.left is not None:
        seen &= key >= own - mask.left
    if mask.right is not None:
        seen &= key <= own + mask.right
    if mask.documents:
        lengths = torch.tensor(mask.documents, device=device)
        number = torch.repeat_interleave(torch.arange(len(mask.documents), device=device), lengths)
        seen &= number[:, None] == number[None, :]
    return seen


def attention(q, k, v, mask: Mask, scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(o [B, H, Sq, Dv] in q's dtype, lse [B, H, Sq] in float32): all arithmetic in float32 (float64 stays).

    lse is the natural logarithm of the sum of exp(score). A query that sees no key has o = 0 and lse = -inf.
    Differentiable by autograd, lse too.
    """
    dtype = q.dtype
    wide = dtype if dtype == torch.float64 else torch.float32
    group = q.shape[1] // k.shape[1]
    q = q.to(wide)
    k, v = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-1, -2) * scale
    scores = scores.masked_fill(~allowed(mask, q.shape[2], k.shape[2], q.device), float("-inf"))
    largest = scores.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(wide).min)  # finite in an empty row
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    seen = total > 0
    o = (weights / torch.where(seen, total, 1.0)) @ v
    lse = torch.where(seen, largest + torch.log(torch.where(seen, total, 1.0)), float("-inf"))
    return o.to(dtype), lse.squeeze(-1)


def merge(o1, lse1, o2, lse2) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) over the keys of two parts, from what each part gave by itself (ring attention, split-K decoding).

    o [..., Sq, Dv], lse [..., Sq]. A part in which a query saw no key (lse = -inf) adds nothing.
    """
    lse = torch.logaddexp(lse1, lse2)
    finite = torch.where(torch.isneginf(lse), 0.0, lse)
    o = o1 * torch.exp(lse1 - finite).unsqueeze(-1) + o2 * torch.exp(lse2 - finite).unsqueeze(-1)
    return o.to(o1.dtype), lse
