"""What the Triton kernels of attention share: reading and writing tiles, and which of them a mask leaves whole."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


def split(dim: int) -> tuple[int, int]:
    """(the largest power of two in `dim`, the rest): Triton's tiles have powers of two as sides."""
    whole = 1 << (dim.bit_length() - 1)
    return whole, dim - whole


@triton.jit
def tile(base, stride, first, limit, SIDE: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr = 0):
    """[SIDE, WIDTH] of a matrix from row `first` and column OFFSET on; rows from `limit` on are 0."""
    rows = first + tl.arange(0, SIDE)
    columns = OFFSET + tl.arange(0, WIDTH)
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < limit, other=0.0)


@triton.jit
def write(base, stride, first, limit, x, SIDE: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr = 0):
    rows = first + tl.arange(0, SIDE)
    columns = OFFSET + tl.arange(0, WIDTH)
    pointers = base + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, x.to(base.dtype.element_ty), mask=rows[:, None] < limit)


@triton.jit
def parts(low, high, first, limit, side, other_side):
    """(begin, inner begin, inner end, end) of what the rows first .. first + side - 1 see, in whole tiles of the other
    axis: all of them see all of what lies between inner begin and inner end."""
    last = tl.minimum(first + side, limit) - 1
    begin = tl.load(low + first) // other_side * other_side
    end = tl.maximum(tl.load(high + last), begin)
    inner_begin = tl.minimum(tl.cdiv(tl.load(low + last), other_side) * other_side, end)
    inner_end = tl.maximum(tl.load(high + first) // other_side * other_side, inner_begin)
    return begin, inner_begin, inner_end, end


INTERPRETED = not isinstance(tile, triton.runtime.JITFunction)
