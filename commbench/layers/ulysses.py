"""Ulysses: all-to-alls turn a part of the sequence with all heads into the whole sequence with a part of the heads.

Jacobs et al., arXiv 2309.14509, section 3: q, k, v before attention and o after it, and the same four backward. Each
rank needs heads of its own, so the degree goes no further than there are heads.
"""

import torch

from commbench.layers.attention_pieces import attend_pieces, attend_pieces_backward, heads_first, rows_first, start
from commbench.layers.sequence_cut import reordered


def buffers(q: torch.Tensor, kv: torch.Tensor, ranks: int) -> dict[str, torch.Tensor]:
    """What arrives, [ranks, n, B, heads / ranks, D] each."""
    shape = {"q": q.shape, "k": kv[:, 0].shape}
    of = {"q": "q", "k": "k", "v": "k", "o": "q", "do": "q", "dq": "q", "dk": "k", "dv": "k"}
    return {name: q.new_zeros(_by_rank(shape[kind], ranks)) for name, kind in of.items()}


def forward(wire, q, kv, pieces, held, orders):
    """(o [n, B, H, D], what backward needs)."""
    q, k, v = _to_heads(wire, {"q": q, "k": kv[:, 0], "v": kv[:, 1]}, held, orders)
    o, lse = start(q)
    attend_pieces(heads_first(q), heads_first(k), heads_first(v), pieces, o, lse)
    o = o.to(q.dtype)
    return _to_rows(wire, {"o": rows_first(o)}, held, orders)[0], (q, k, v, o, lse)


def backward(wire, do, saved, pieces, held, orders):
    """(dq [n, B, H, D], dkv [n, 2, B, Hkv, D])."""
    q, k, v, o, lse = saved
    (do,) = _to_heads(wire, {"do": do}, held, orders)
    dq, dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
    inputs, gradients = (heads_first(x) for x in (do, q, k, v)), (heads_first(x) for x in (dq, dk, dv))
    attend_pieces_backward(*inputs, o, lse, pieces, *gradients)
    dq, dk, dv = _to_rows(wire, {"dq": dq.to(q.dtype), "dk": dk.to(q.dtype), "dv": dv.to(q.dtype)}, held, orders)
    return dq, torch.stack([dk, dv], 1)


def _to_heads(wire, tensors: dict, held, orders):
    """[S, B, heads / ranks, D] in order of position of each [n, B, heads, D]; the calls are under way together."""
    works = [_exchange(wire, _split(tensor, wire.size), held[name]) for name, tensor in tensors.items()]
    for work in works:
        work.wait()
    return [reordered(held[name].flatten(0, 1), orders[0]) for name in tensors]


def _to_rows(wire, tensors: dict, held, orders):
    """[n, B, heads, D] of each [S, B, heads / ranks, D]."""
    works = []
    for name, tensor in tensors.items():
        rows = reordered(tensor.contiguous(), orders[1])
        works.append(_exchange(wire, rows.view(held[name].shape), held[name]))
    for work in works:
        work.wait()
    return [held[name].permute(1, 2, 0, 3, 4).flatten(2, 3) for name in tensors]


def _exchange(wire, tensor, out):
    return wire.all_to_all(out, tensor, [1] * wire.size, [1] * wire.size)


def _split(tensor, ranks: int):
    """[ranks, n, B, heads / ranks, D] of [n, B, heads, D]."""
    n, batch, heads, dim = tensor.shape
    return tensor.reshape(n, batch, ranks, heads // ranks, dim).permute(2, 0, 1, 3, 4).contiguous()


def _by_rank(shape, ranks: int) -> tuple[int, ...]:
    n, batch, heads, dim = shape
    return ranks, n, batch, heads // ranks, dim
