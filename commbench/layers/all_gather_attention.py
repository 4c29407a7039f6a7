"""Llama 3's context parallelism: all keys and values are gathered, and each rank attends with its own queries.

arXiv 2407.21783, 3.3.2. Keys and values are few beside the queries where heads share them, so gathering them is cheap
beside attention, and a mask of any kind needs no further thought. Backward gathers them again and scatters the sum of
their gradients, in their own dtype.
"""

import torch

from commbench.layers.attention_pieces import (
    attend_pieces,
    attend_pieces_backward,
    heads_first,
    keys_values,
    start,
)
from commbench.layers.sequence_cut import reordered


def forward(wire, q, kv, pieces, whole, orders):
    """(o in q's dtype, lse). `whole`: memory for the keys and values of all ranks. orders: chunk_orders."""
    o, lse = start(q)
    attend_pieces(heads_first(q), *keys_values(_gathered(wire, kv, whole, orders)), pieces, o, lse)
    return o.to(q.dtype), lse


def backward(wire, do, q, kv, o, lse, pieces, whole, orders):
    """(dq [n, B, H, D] in float32, dkv [n, 2, B, Hkv, D])."""
    by_position = _gathered(wire, kv, whole, orders)
    dq, d_whole = (torch.zeros_like(x, dtype=torch.float32) for x in (q, by_position))
    attend_pieces_backward(
        heads_first(do),
        heads_first(q),
        *keys_values(by_position),
        o,
        lse,
        pieces,
        heads_first(dq),
        *keys_values(d_whole),
    )
    dkv = torch.empty_like(kv)
    wire.reduce_scatter(dkv, reordered(d_whole.to(kv.dtype), orders[1])).wait()
    return dq, dkv


def _gathered(wire, kv, whole, orders):
    """Keys and values of all ranks in order of position."""
    wire.all_gather(whole, kv).wait()
    return reordered(whole, orders[0])
