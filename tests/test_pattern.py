"""The data check: exact in any order of reduction, and blind to no wrong element."""

import numpy as np
import pytest
import torch

from commbench.ops.capabilities import refusal
from commbench.ops.pattern import PERIOD, Pattern, Segment, count_wrong, fill
from commbench.world.buffers import HostBuffer
from commbench.world.dtypes import DTYPES, decode, encode

REDOPS = ("sum", "prod", "min", "max", "avg")
SIZES = (1, 2, 3, 5, 8, 64, 300)
EVERY_DTYPE = pytest.mark.parametrize("name", DTYPES)


def exact(name, redop, n):
    """Whether the pattern promises exactness: an average needs one multiple of n per rank."""
    return redop != "avg" or DTYPES[name].exact_limit >= n


def as_torch(stored, dtype):
    return torch.from_numpy(stored.view(np.uint8).copy()).view(getattr(torch, dtype.name))


def combined(a, b, redop):
    """One step of a reduction in the dtype itself; 8-bit floats are rounded after each step."""
    kind = a.dtype
    if kind.itemsize == 1 and kind.is_floating_point:
        a, b = a.float(), b.float()
    step = {"sum": torch.add, "avg": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum}[redop]
    return step(a, b).to(kind)


def divided(total, n):
    return total // n if not total.dtype.is_floating_point else (total.double() / n).to(total.dtype)


def in_a_row(parts, redop):
    total = parts[0]
    for part in parts[1:]:
        total = combined(total, part, redop)
    return total


def as_a_tree(parts, redop):
    while len(parts) > 1:
        pairs = [combined(a, b, redop) for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


@EVERY_DTYPE
@pytest.mark.parametrize("redop", REDOPS)
def test_a_reduction_is_exact_in_any_order(name, redop):
    dtype = DTYPES[name]
    shuffle = np.random.default_rng(7)
    for n in SIZES:
        if not exact(name, redop, n):
            continue
        pattern = Pattern(n, dtype, redop)
        for start, count in ((0, 400), (PERIOD - 150, 300)):  # the second runs over the end of the period
            parts = [as_torch(pattern.sent(rank, start, count), dtype) for rank in range(n)]
            expected = decode(pattern.reduced(start, count), dtype)
            for fold in (in_a_row, as_a_tree):
                total = fold([parts[rank] for rank in shuffle.permutation(n)], redop)
                if redop == "avg":
                    total = divided(total, n)
                found = total.double().numpy()
                assert np.array_equal(found, expected), (n, start, fold.__name__)


@EVERY_DTYPE
def test_values_are_integers_within_the_limit(name):
    dtype = DTYPES[name]
    for redop in ("none", *REDOPS):
        for n in SIZES:
            if exact(name, redop, n):
                pattern = Pattern(n, dtype, redop)
                values = [decode(pattern.sent(rank, 0, 1000), dtype) for rank in (0, n // 2, n - 1)]
                values = np.stack([*values, decode(pattern.reduced(0, 1000), dtype)])
                assert np.array_equal(values, np.round(values))
                assert values.min() >= 0 and values.max() <= dtype.exact_limit
                assert len(np.unique(values)) > 1 or n == dtype.exact_limit


@EVERY_DTYPE
@pytest.mark.parametrize("redop", REDOPS)
def test_every_rank_counts_wherever_the_window_starts(name, redop):
    """Within a few rounds of the window every rank sends something that is not neutral."""
    dtype = DTYPES[name]
    for n in (17, 31, 62, 257):
        if not exact(name, redop, n):
            continue
        pattern = Pattern(n, dtype, redop)
        top = pattern._window_and_top()[1]
        neutral = {"prod": 1, "min": top}.get(redop, 0)
        silent = [r for r in range(n) if not np.any(decode(pattern.sent(r, 0, 16 * n), dtype) != neutral)]
        assert silent == []


@pytest.mark.parametrize("redop", REDOPS)
def test_a_missing_rank_is_found(redop):
    # The types that some backend reduces.
    for name in (name for name in DTYPES if refusal("nccl", "all_reduce", name, redop, False, 2) is None):
        dtype = DTYPES[name]
        for n in (2, 3, 64, 300):
            if not exact(name, redop, n):
                continue
            pattern, count = Pattern(n, dtype, redop), 20 * n + 200
            parts = [as_torch(pattern.sent(rank, 0, count), dtype) for rank in range(n)]
            segment = [Segment(tuple(range(n)), 0, count, 0)]
            for missing in {0, n // 2, n - 1} if n < 100 else {n // 2}:
                total = in_a_row([part for rank, part in enumerate(parts) if rank != missing], redop)
                if redop == "avg":
                    total = divided(total, n)
                buffer = HostBuffer(count * dtype.itemsize)
                buffer.write(0, total.view(torch.uint8).numpy())
                assert count_wrong(buffer, pattern, segment)[0] > 0, (name, n, missing)


def test_large_worlds_are_checked_as_fast_as_small_ones():
    """The work per position is bounded by the window, so the largest cluster stays within a deadline."""
    for redop in REDOPS:
        assert Pattern(16384, DTYPES["float32"], redop)._window_and_top()[0] <= 16


@EVERY_DTYPE
def test_the_pattern_repeats_after_its_period(name):
    pattern = Pattern(5, DTYPES[name], "sum")
    assert pattern.sent(1, 0, 10**9).size == PERIOD == pattern.reduced(3, 10**9).size
    assert np.array_equal(pattern.sent(2, 17, 100), pattern.sent(2, 17 + PERIOD, 100))
    assert np.array_equal(pattern.sent(2, 0, 300)[200:], pattern.sent(2, 200, 100))
    assert np.array_equal(pattern.reduced(0, 300)[200:], pattern.reduced(200, 100))
    assert pattern.sent(0, 0, 0).size == 0


COUNT = 2 * PERIOD + 4321


def filled(name, count=COUNT, redop="none", rank=1, n=4):
    """A pattern, a buffer that holds what `rank` sends, and the segment that says so."""
    dtype = DTYPES[name]
    pattern, buffer = Pattern(n, dtype, redop), HostBuffer(count * dtype.itemsize)
    fill(buffer, pattern, rank, count)
    return pattern, buffer, [Segment((rank,), 0, count, 0)]


def elements(buffer, dtype):
    return buffer.bytes.view(dtype.storage)


@EVERY_DTYPE
def test_right_data_have_no_errors(name):
    pattern, buffer, segments = filled(name)
    assert count_wrong(buffer, pattern, segments) == (0, 0.0)
    pieces = [Segment((1,), start, 100_000, start) for start in range(0, 500_000, 100_000)]
    assert count_wrong(buffer, pattern, pieces) == (0, 0.0)
    assert count_wrong(buffer, pattern, []) == (0, 0.0)
    assert count_wrong(buffer, pattern, [Segment((1,), 0, 0, 0)]) == (0, 0.0)


@EVERY_DTYPE
def test_one_flipped_element_is_found_wherever_it_is(name):
    pattern, buffer, segments = filled(name)
    stored = elements(buffer, pattern.dtype)
    anywhere = np.random.default_rng(3).integers(0, COUNT, 2).tolist()
    for at in (0, 1, PERIOD - 1, PERIOD, PERIOD + 1, 2 * PERIOD - 1, 2 * PERIOD, COUNT - 1, *anywhere):
        kept = stored[at].copy()
        value = decode(stored[at : at + 1], pattern.dtype)[0]
        stored[at] = encode(np.array([0 if value else 1]), pattern.dtype)[0]
        assert count_wrong(buffer, pattern, segments) == (1, max(value, 1.0)), at
        stored[at] = kept
    assert count_wrong(buffer, pattern, segments) == (0, 0.0)


@EVERY_DTYPE
def test_one_flipped_bit_is_found(name):
    pattern, buffer, segments = filled(name, count=500)
    values = decode(elements(buffer, pattern.dtype), pattern.dtype)
    for at in np.flatnonzero(values)[:20] * pattern.dtype.itemsize:
        for byte in range(pattern.dtype.itemsize):
            for bit in range(8):
                buffer.bytes[at + byte] ^= 1 << bit
                with np.errstate(invalid="ignore"):  # some flips make a signalling NaN
                    assert count_wrong(buffer, pattern, segments)[0] == 1
                buffer.bytes[at + byte] ^= 1 << bit


def test_minus_zero_is_zero():
    pattern, buffer, segments = filled("float16", count=PERIOD)
    stored = elements(buffer, pattern.dtype)
    zeros = np.flatnonzero(stored == 0)
    assert zeros.size
    stored[zeros] = -0.0
    assert count_wrong(buffer, pattern, segments) == (0, 0.0)


@EVERY_DTYPE
def test_poison_that_was_left_is_counted(name):
    pattern, buffer, segments = filled(name)
    width = pattern.dtype.itemsize
    first, last = PERIOD - 10, PERIOD + 15
    buffer.bytes[first * width : last * width] = 0xFF
    assert count_wrong(buffer, pattern, segments)[0] == 25
    buffer.poison()
    assert count_wrong(buffer, pattern, segments)[0] == COUNT


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.is_float])
@pytest.mark.parametrize("what", ["nan", "inf", "-inf"])
def test_nan_and_infinity_are_wrong_and_their_error_is_infinite(name, what):
    if name == "float8_e4m3fn" and "inf" in what:
        pytest.skip("float8_e4m3fn has no infinity")
    for redop in ("none", "avg"):  # avg allows a tolerance
        pattern, buffer, _ = filled(name, count=100, redop=redop, n=3)
        segments = [Segment((0, 1, 2), 0, 100, 0)] if redop == "avg" else [Segment((1,), 0, 100, 0)]
        if redop == "avg":
            buffer.write(0, pattern.reduced(0, 100))
        bad = torch.tensor([float(what)]).to(getattr(torch, name)).view(torch.uint8).numpy()
        buffer.write(50 * pattern.dtype.itemsize, bad)
        assert count_wrong(buffer, pattern, segments) == (1, float("inf"))


@EVERY_DTYPE
@pytest.mark.parametrize("chunk", [64, 1000, 4096, 65536, 100_000, 262144])
def test_swapped_chunks_of_one_buffer_are_found(name, chunk):
    pattern, buffer, segments = filled(name, count=2 * chunk + 100)
    stored = elements(buffer, pattern.dtype)
    stored[: 2 * chunk] = np.concatenate([stored[chunk : 2 * chunk], stored[:chunk]])
    assert count_wrong(buffer, pattern, segments)[0] > chunk // 4


@EVERY_DTYPE
def test_swapped_blocks_of_two_ranks_are_found(name):
    dtype = DTYPES[name]
    for block in (64, 4096, PERIOD):
        pattern, buffer = Pattern(4, dtype, "none"), HostBuffer(4 * block * dtype.itemsize)
        segments = [Segment((rank,), 0, block, rank * block) for rank in range(4)]
        for rank in range(4):
            buffer.write(rank * block * dtype.itemsize, pattern.sent(rank, 0, block))
        assert count_wrong(buffer, pattern, segments) == (0, 0.0)
        rows = elements(buffer, dtype).reshape(4, block)
        for a, b in ((0, 1), (0, 3)):
            rows[[a, b]] = rows[[b, a]]
            assert count_wrong(buffer, pattern, segments)[0] > block // 4
            rows[[a, b]] = rows[[b, a]]


@EVERY_DTYPE
def test_data_one_element_late_are_found(name):
    pattern, buffer, segments = filled(name, count=1000)
    stored = elements(buffer, pattern.dtype)
    stored[1:] = stored[:-1].copy()
    assert count_wrong(buffer, pattern, segments)[0] > 250


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_an_average_taken_as_a_product_with_the_rounded_1_over_n_passes_and_a_worse_one_does_not(name):
    dtype, kind = DTYPES[name], getattr(torch, name)
    for n in (3, 5, 7, 12, 100):
        pattern, count = Pattern(n, dtype, "avg"), 2000
        share = (torch.ones(1, dtype=torch.float64) / n).to(kind)
        total = in_a_row([as_torch(pattern.sent(rank, 0, count), dtype) * share for rank in range(n)], "sum")
        buffer = HostBuffer(count * dtype.itemsize)
        buffer.write(0, total.view(torch.uint8).numpy())
        segments = [Segment(tuple(range(n)), 0, count, 0)]
        assert count_wrong(buffer, pattern, segments)[0] == 0
        worse = as_torch(pattern.reduced(0, count), dtype).double() * (1 + 8 * pattern.tolerance())
        buffer.write(0, worse.to(kind).view(torch.uint8).numpy())
        assert count_wrong(buffer, pattern, segments)[0] > 0


def test_only_averages_are_given_a_tolerance():
    for dtype in DTYPES.values():
        assert all(Pattern(3, dtype, redop).tolerance() == 0 for redop in ("none", "sum", "prod", "min", "max"))
        assert Pattern(8, dtype, "avg").tolerance() == 0  # 1/8 is exact
        assert (Pattern(3, dtype, "avg").tolerance() > 0) == dtype.is_float
