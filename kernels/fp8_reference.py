"""Products in 8 bits as DeepSeek-V3 makes them (arXiv 2412.19437, 3.3): e4m3 values with a float32 scale for each
1 x 128 of the activations and each 128 x 128 of the weights, summed in float32 after every 128 of the depth.

x [M, K], w [N, K]; K is a multiple of 128.
"""

import torch

from commbench.errors import UsageError

BLOCK = 128
LARGEST = 448.0  # of e4m3fn


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values e4m3 [M, K], scales [M, K/128]): x is about values * scales. A block of zeros has scale 1."""
    return _quantise(x, 1)


def quantise_blocks(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values e4m3 [N, K], scales [ceil(N/128), K/128])."""
    return _quantise(w, BLOCK)


def _quantise(x: torch.Tensor, tall: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, depth = x.shape
    if depth % BLOCK:
        raise UsageError(f"a depth of {depth} is no multiple of {BLOCK}; pad it with zeros")
    padded = torch.nn.functional.pad(x.float(), (0, 0, 0, -rows % tall))
    blocks = padded.view(len(padded) // tall, tall, depth // BLOCK, BLOCK)
    largest = blocks.abs().amax((1, 3))
    scales = torch.where(largest > 0, largest / LARGEST, 1.0)
    values = (blocks / scales[:, None, :, None]).reshape(len(padded), depth)[:rows]
    return values.to(torch.float8_e4m3fn), scales


def dequantise(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32, from either kind of blocks."""
    tall = 1 if len(scales) == len(values) else BLOCK
    wide = scales.repeat_interleave(tall, 0)[: len(values)]
    return values.float() * wide.repeat_interleave(BLOCK, 1)


def matmul(x_values, x_scales, w_values, w_scales) -> torch.Tensor:
    """[M, N] float32: the sum over blocks of the depth of (values x values) * scale * scale."""
    out = torch.zeros(len(x_values), len(w_values), device=x_values.device)
    rows = torch.arange(len(w_values), device=w_values.device) // BLOCK
    for i in range(x_values.shape[1] // BLOCK):
        part = slice(i * BLOCK, (i + 1) * BLOCK)
        product = x_values[:, part].float() @ w_values[:, part].float().T
        out += product * x_scales[:, i, None] * w_scales[rows, i]
    return out
