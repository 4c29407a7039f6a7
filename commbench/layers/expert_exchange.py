"""Rows of tokens to the ranks of their experts and back, forward and backward: dispatch and combine.

The backward of dispatch is combine, and that of combine is dispatch (DeepEP, README).
"""

from dataclasses import dataclass

import torch

from commbench.layers.expert_rows import Rows
from commbench.layers.fp8 import from_fp8, to_fp8


class _Exchange(torch.autograd.Function):
    """Rows over a wire, there and back; with fp8 the rows go there as bytes, 128 elements to a scale."""

    @staticmethod
    def forward(ctx, rows, wire, out_splits, in_splits, fp8):
        ctx.wire, ctx.splits = wire, (out_splits, in_splits)
        if not fp8:
            return _moved(rows, wire, out_splits, in_splits)
        return from_fp8(_moved(to_fp8(rows), wire, out_splits, in_splits), rows.dtype)

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits
        return _moved(grad.contiguous(), ctx.wire, in_splits, out_splits), None, None, None, None


def _moved(rows, wire, out_splits, in_splits):
    arrived = rows.new_empty(sum(out_splits), *rows.shape[1:])
    wire.all_to_all(arrived, rows.contiguous(), out_splits, in_splits).wait()
    return arrived


@dataclass(frozen=True)
class Way:
    """One hop ready to go: its wire, its indices as tensors, its splits."""

    wire: object
    send: torch.Tensor
    in_splits: list[int]
    out_splits: list[int]
    then: torch.Tensor | None
    back: torch.Tensor | None  # undoes `then`


def ways_of(rows: Rows, wires, device) -> list[Way]:
    def index(array):
        return None if array is None else torch.from_numpy(array).to(device)

    return [
        Way(wires[name], index(hop.send), hop.in_splits, hop.out_splits, index(hop.then),
             index(None if hop.then is None else hop.then.argsort()))
        for name, hop in rows.hops
    ]  # fmt: skip


def dispatch(ways: list[Way], own: torch.Tensor, fp8: bool = False) -> torch.Tensor:
    """Rows of `own` tokens (and of what a first hop brought) on the ranks of their experts, in order of source."""
    held = own
    for i, way in enumerate(ways):
        arrived = _Exchange.apply(held[way.send], way.wire, way.out_splits, way.in_splits, fp8)
        if way.then is not None:
            arrived = arrived[way.then]
        held = arrived if i == len(ways) - 1 else torch.cat([own, arrived])
    return held


def combine(ways: list[Way], results: torch.Tensor, tokens: int) -> torch.Tensor:
    """The sum of each token's results on its own rank; in two hops summed once per node before the network."""
    total = results
    for i, way in reversed(list(enumerate(ways))):
        rows = total if way.back is None else total[way.back]
        arrived = _Exchange.apply(rows, way.wire, way.in_splits, way.out_splits, False)
        held = tokens if i == 0 else tokens + sum(ways[i - 1].out_splits)
        summed = arrived.new_zeros(held, arrived.shape[1]).index_add(0, way.send, arrived)
        if i:
            partial = summed[:tokens]
            total = summed[tokens:]
        elif len(ways) > 1:
            summed = summed + partial
    return summed
