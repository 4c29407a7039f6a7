"""Ring attention: keys and values travel round the ring while each rank attends to the block it has.

Liu et al., arXiv 2310.01889; the order of calls is that of ring-flash-attention (ring_flash_attn.py): forward c - 1
sends of a block; backward the same blocks again, and c sends of their gradients, which end at their owner. Gradients
travel in float32, since each rank adds to them.
"""

import torch

from commbench.layers.attention_pieces import (
    attend_pieces,
    attend_pieces_backward,
    heads_first,
    keys_values,
    start,
)


def buffers(kv: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(two blocks that arrive in turn, three gradients of a block in float32)."""
    return [torch.zeros_like(kv) for _ in range(2)], [torch.zeros_like(kv, dtype=torch.float32) for _ in range(3)]


def forward(wire, q, kv, steps, spare):
    """(o in q's dtype, lse). steps[s]: the pieces of the block that comes from s ranks before."""
    o, lse = start(q)
    for block, pieces in _round(wire, kv, steps, spare):
        attend_pieces(heads_first(q), *keys_values(block), pieces, o, lse)
    return o.to(q.dtype), lse


def backward(wire, do, q, kv, o, lse, steps, spare, sums):
    """(dq [n, B, H, D], dkv [n, 2, B, Hkv, D]) in float32."""
    dq, arrived, arriving = torch.zeros_like(q, dtype=torch.float32), sums[2], None
    for s, (block, pieces) in enumerate(_round(wire, kv, steps, spare)):
        d_block = sums[s % 2].zero_()
        attend_pieces_backward(
            heads_first(do), heads_first(q), *keys_values(block), o, lse, pieces, heads_first(dq), *keys_values(d_block)
        )
        if arriving:
            arriving.wait()
            d_block += arrived
        if wire.size == 1:
            return dq, d_block
        arriving = wire.exchange([(_before(wire), arrived)], [(_after(wire), d_block)])
    arriving.wait()
    return dq, arrived


def _round(wire, kv, steps, spare):
    """(block, pieces) of each step; the next block is under way while one is worked on."""
    block, last = kv, len(steps) - 1
    for s, pieces in enumerate(steps):
        coming = spare[s % 2]
        if s < last:
            moving = wire.exchange([(_before(wire), coming)], [(_after(wire), block)])
        yield block, pieces
        if s < last:
            moving.wait()
            block = coming


def _after(wire) -> int:
    return (wire.rank + 1) % wire.size


def _before(wire) -> int:
    return (wire.rank - 1) % wire.size
