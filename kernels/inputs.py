"""Inputs of attention: the same numbers for everyone who asks with the same seed."""

import torch

from commbench.kernels.flops import Attention


def draw(case: Attention, device: str, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """(q, k, v, do) from a normal distribution, shaped as in attention_reference, drawn in float32 on the CPU."""
    source = torch.Generator().manual_seed(seed)
    shapes = (
        (case.batch, case.heads, case.sq, case.dim),
        (case.batch, case.kv_heads, case.sk, case.dim),
        (case.batch, case.kv_heads, case.sk, case.dim_v),
        (case.batch, case.heads, case.sq, case.dim_v),
    )
    dtype = getattr(torch, case.dtype)
    return tuple(torch.randn(shape, generator=source).to(device, dtype) for shape in shapes)


def leaves(tensors, layout: str) -> tuple[torch.Tensor, ...]:
    """Copies of q, k, v that take gradients, stored in the order of axes that a backend wants: "bhsd" or "bshd"."""
    return tuple(relaid(x, layout).clone().requires_grad_() for x in tensors)


def relaid(x: torch.Tensor, layout: str) -> torch.Tensor:
    """[B, H, S, D] in `layout`, contiguous; and back, since exchanging two axes undoes itself."""
    return x.detach().transpose(1, 2).contiguous() if layout == "bshd" else x.detach().contiguous()
