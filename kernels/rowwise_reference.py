"""The parts of a layer that only move memory, row by row, in plain torch: RMSNorm, SwiGLU, cross-entropy."""

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, in float32 (Zhang & Sennrich, arXiv 1910.07467)."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, in float32 (Shazeer, arXiv 2002.05202)."""
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """[T] float32: logsumexp(logits) - logits[target] of each row of [T, V]."""
    return F.cross_entropy(logits.float(), target, reduction="none")
