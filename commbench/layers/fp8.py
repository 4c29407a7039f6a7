"""Rows as 8-bit floats with their scales, as bytes: what DeepSeek-V3 dispatches (arXiv 2412.19437, 3.3).

They move as bytes, since not every backend knows 8-bit floats.
"""

import torch

from commbench.kernels.fp8_reference import BLOCK, dequantise, quantise_rows


def row_bytes(hidden: int) -> int:
    """Bytes of a row of `hidden` elements: one each, and an fp32 scale for every 128."""
    return hidden + 4 * (hidden // BLOCK)


def to_fp8(rows: torch.Tensor) -> torch.Tensor:
    """(n, hidden) as uint8 (n, row_bytes(hidden))."""
    codes, scales = quantise_rows(rows)
    raw = torch.empty(rows.shape[0], row_bytes(rows.shape[1]), dtype=torch.uint8, device=rows.device)
    raw[:, : rows.shape[1]] = codes.view(torch.uint8)
    raw[:, rows.shape[1] :] = scales.flatten().view(torch.uint8).view(rows.shape[0], 4 * scales.shape[1])
    return raw


def from_fp8(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What to_fp8 made, in `dtype`."""
    hidden = raw.shape[1] * BLOCK // (BLOCK + 4)
    codes = raw[:, :hidden].contiguous().view(torch.float8_e4m3fn)
    scales = raw[:, hidden:].flatten().view(torch.float32).view(raw.shape[0], hidden // BLOCK)
    return dequantise(codes, scales).to(dtype)
