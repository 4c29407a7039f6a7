"""What this device reaches on the two plainest kernels: a copy (memory) and a matrix product (arithmetic). They are the
roofs that a measured roofline has, beside the peaks of a datasheet."""

import torch

from commbench.kernels.bench import How
from commbench.kernels.clock import Timed, cache_bytes, timed


def copy_bytes(device: str) -> int:
    """Bytes of the copy: out of any cache. Its traffic is twice that, read and written."""
    return max(2**26, 4 * cache_bytes(device)) // 4 * 4


def copy(device: str, how: How) -> Timed:
    source = torch.ones(copy_bytes(device) // 4, device=device)
    target = torch.empty_like(source)
    return timed([lambda: target.copy_(source)], device, how.rule, how.warmup_s)


def matmul_side(device: str) -> int:
    """Side of the square matrices."""
    return 1536 if device == "cpu" else 8192


def matmul(device: str, dtype: str, how: How) -> Timed:
    side = matmul_side(device)
    a, b = (torch.randn(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2))
    return timed([lambda: a @ b], device, how.rule, how.warmup_s)
