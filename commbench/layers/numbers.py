"""What the layers share: scaled model shapes, seeded values that every rank can draw, and how results are compared."""

from dataclasses import replace
from math import gcd

import torch

from commbench.errors import UsageError
from commbench.shapes import Shape, read_shape

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


def scaled(model: str, by: int) -> Shape:
    """The shape of `model` with hidden size, heads, FFN and experts' inside divided by `by`; head size and layers stay.

    Key and value heads stay as many as divide the heads that are left, so that a degree that suits the real shape suits
    this one. Raises UsageError where `by` does not divide.
    """
    shape = read_shape(model)
    if by < 1:
        raise UsageError(f"scale {by} is below 1; 8 makes hidden size, heads and FFN an eighth")
    for what in ("hidden", "heads", "ffn_hidden"):
        if getattr(shape, what) % by:
            raise UsageError(f"scale {by} does not divide {what} {getattr(shape, what)} of {shape.name}")
    heads = shape.heads // by
    moe = shape.moe and replace(shape.moe, expert_hidden=max(shape.moe.expert_hidden // by, 1))
    return replace(
        shape, hidden=shape.hidden // by, heads=heads, kv_heads=gcd(heads, shape.kv_heads),
        ffn_hidden=shape.ffn_hidden // by, moe=moe,
    )  # fmt: skip


def itemsize(params: dict) -> int:
    return getattr(torch, params["dtype"]).itemsize


def draw(seed: int, what: int, *shape: int, dtype: str, device: str = "cpu", spread: float = 1.0) -> torch.Tensor:
    """Normal values that hang on `seed` and `what` alone, so that each rank draws the same."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + int(what))
    return (torch.randn(*shape, generator=generator) * spread).to(getattr(torch, dtype)).to(device)


def weight(seed: int, what: int, rows: int, columns: int, dtype: str, device: str = "cpu") -> torch.Tensor:
    """A matrix that keeps the size of what it is applied to."""
    return draw(seed, what, rows, columns, dtype=dtype, device=device, spread=columns**-0.5)


def compare(pairs, dtype: str) -> tuple[int, float]:
    """(tensors that are wrong, the largest relative error) of (found, wanted) pairs: the norm of the difference over
    that of what is wanted; wrong where it is above the tolerance of `dtype`, or no number."""
    errors = []
    for found, wanted in pairs:
        found, wanted = found.detach().double().cpu(), wanted.detach().double().cpu()
        if found.shape != wanted.shape:
            raise AssertionError(f"a result of shape {tuple(found.shape)} stands where {tuple(wanted.shape)} is wanted")
        error = float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))
        errors.append(error if error == error else float("inf"))
    return sum(error > TOLERANCE[dtype] for error in errors), max(errors, default=0.0)
