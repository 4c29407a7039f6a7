"""Changed against the reference: the copies are moved by one gather each way, and all experts' products are one launch,
whose tiles know which expert they belong to. Shapes as in moe_reference. Unverified on GPU."""

import torch
import triton
import triton.language as tl

from commbench.kernels.moe_reference import Order


def permute(x: torch.Tensor, how: Order, block: int = 1024) -> torch.Tensor:
    """[N, h], as moe_reference.permute."""
    hidden = x.shape[1]
    out = torch.empty(len(how.token), hidden, dtype=x.dtype, device=x.device)
    if len(out):
        _gather[len(out), triton.cdiv(hidden, block)](x.contiguous(), how.token, out, hidden, block)
    return out


def unpermute(y: torch.Tensor, how: Order, weights: torch.Tensor, block: int = 1024) -> torch.Tensor:
    """[T, n], as moe_reference.unpermute."""
    tokens, choices = weights.shape
    out = torch.empty(tokens, y.shape[1], dtype=y.dtype, device=y.device)
    _gather_sum[tokens, triton.cdiv(y.shape[1], block)](
        y.contiguous(), how.place.contiguous(), weights.float().contiguous(), out, y.shape[1], choices, block
    )
    return out


def grouped_gemm(x, w, counts, tile: tuple[int, int, int] = (128, 128, 64)) -> torch.Tensor:
    """[N, n], as moe_reference.grouped_gemm. tile: rows, columns and depth of a tile."""
    (rows, depth), (_, _, columns) = x.shape, w.shape
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    expert, first, last = _tiles(counts, tile[0])
    if len(expert):
        _grouped[len(expert), triton.cdiv(columns, tile[1])](
            x.contiguous(), w.contiguous(), out, expert, first, last, depth, columns, *tile
        )
    return out


def _tiles(counts: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(expert, first row, end of the expert's rows) of each tile of `side` rows; experts without rows have none."""
    tiles = (counts + side - 1) // side
    ends = torch.cumsum(counts, 0)
    expert = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), tiles)
    number = torch.arange(len(expert), device=counts.device) - (torch.cumsum(tiles, 0) - tiles)[expert]
    return expert, (ends - counts)[expert] + number * side, ends[expert]


@triton.jit
def _gather(x, token, out, hidden, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(token + row)
    value = tl.load(x + source * hidden + columns, mask=columns < hidden)
    tl.store(out + row * hidden + columns, value, mask=columns < hidden)


@triton.jit
def _gather_sum(y, place, weights, out, hidden, choices, BLOCK: tl.constexpr):
    token, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for choice in range(choices):
        at = tl.load(place + token * choices + choice)
        weight = tl.load(weights + token * choices + choice)
        value = tl.load(y + at * hidden + columns, mask=columns < tl.where(at >= 0, hidden, 0), other=0.0)
        acc += weight * value.to(tl.float32)
    tl.store(out + token * hidden + columns, acc.to(out.dtype.element_ty), mask=columns < hidden)


@triton.jit
def _grouped(x, w, out, expert, first, last, depth, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
             DEPTH: tl.constexpr):  # fmt: skip
    tile = tl.program_id(0)
    rows = tl.load(first + tile) + tl.arange(0, ROWS)
    inside = rows < tl.load(last + tile)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    matrix = w + tl.load(expert + tile).to(tl.int64) * depth * columns
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, depth, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        a = tl.load(x + rows[:, None] * depth + k[None, :], mask=inside[:, None] & (k[None, :] < depth), other=0.0)
        seen = (k[:, None] < depth) & (column[None, :] < columns)
        b = tl.load(matrix + k[:, None] * columns + column[None, :], mask=seen, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    seen = inside[:, None] & (column[None, :] < columns)
    tl.store(out + rows[:, None] * columns + column[None, :], acc.to(out.dtype.element_ty), mask=seen)
