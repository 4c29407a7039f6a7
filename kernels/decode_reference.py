"""Decoding attention as it is defined: one new query for each sequence against its keys, which lie in pages.

Shapes: q [B, H, D]; pages of keys [P, page, Hkv, D] and of values [P, page, Hkv, Dv]; table int32 [B, most pages]:
which page holds which part of a sequence; lengths int32 [B]: keys of each, 0 too. MLA (DeepSeek-V2, arXiv 2405.04434,
2.1.2, with the up-projections absorbed into q and o) is the case of one key head whose values are the first Dv columns
of its latent keys: pages of values None, `dim_v` given.
"""

import torch

from commbench.errors import UsageError


def decode(q, k_pages, v_pages, table, lengths, scale: float, dim_v: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(o [B, H, Dv] in q's dtype, lse [B, H] in float32). A sequence without keys has o = 0 and lse = -inf."""
    batch, heads, _ = q.shape
    values = k_pages[..., :dim_v] if v_pages is None else v_pages
    group = heads // k_pages.shape[2]
    o = torch.zeros(batch, heads, values.shape[-1], dtype=torch.float32, device=q.device)
    lse = torch.full((batch, heads), float("-inf"), dtype=torch.float32, device=q.device)
    for i, length in enumerate(lengths.tolist()):
        if length:
            pages = table[i].long()
            k, v = (x[pages].flatten(0, 1)[:length].float().repeat_interleave(group, 1) for x in (k_pages, values))
            scores = torch.einsum("hd,khd->hk", q[i].float(), k) * scale
            lse[i] = torch.logsumexp(scores, -1)
            o[i] = torch.einsum("hk,khd->hd", torch.softmax(scores, -1), v)
    return o.to(q.dtype), lse


def check(q, k_pages, v_pages, table, lengths, dim_v: int = 0) -> None:
    """Raise UsageError where the tensors do not belong together."""
    batch, heads, dim = q.shape
    pages, page, kv_heads, key_dim = k_pages.shape
    if key_dim != dim or heads % kv_heads:
        raise UsageError(
            f"queries of {heads} heads x {dim} do not go with keys of {kv_heads} heads x {key_dim}; the width must be "
            "the same, and key heads must divide query heads"
        )
    if v_pages is None and (kv_heads != 1 or not 0 < dim_v <= dim):
        raise UsageError(f"latent values are the first dim_v of one head's {dim} columns; dim_v is {dim_v}")
    if v_pages is not None and v_pages.shape[:3] != k_pages.shape[:3]:
        raise UsageError(f"pages of values {tuple(v_pages.shape)} do not go with pages of keys {tuple(k_pages.shape)}")
    longest = int(lengths.max())
    if len(lengths) != batch or len(table) != batch or int(lengths.min()) < 0 or longest > table.shape[1] * page:
        raise UsageError(
            f"lengths up to {longest} need {-(-longest // page)} pages of {page} a sequence; the table has "
            f"{table.shape[1]} for {len(table)} of {batch} sequences"
        )
    if int(table.min()) < 0 or int(table.max()) >= pages:
        raise UsageError(f"the block table names page {int(table.max())}; there are pages 0 to {pages - 1}")


def decode_bytes(q, k_pages, v_pages, lengths, dim_v: int = 0) -> int:
    """The least traffic: the keys (and values) of every sequence once, q and o."""
    kv = int(lengths.sum()) * k_pages.shape[2] * k_pages.shape[3] * k_pages.element_size()
    if v_pages is not None:
        dim_v = v_pages.shape[-1]
        kv += int(lengths.sum()) * v_pages.shape[2] * dim_v * v_pages.element_size()
    return kv + q.shape[0] * q.shape[1] * (q.shape[2] + dim_v) * q.element_size()
