"""Integers survive every element type, and the hand-made encodings are torch's own."""

import numpy as np
import pytest
import torch

from commbench.world.dtypes import ALIASES, DTYPES, decode, encode

EVERY = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)


def integers(dtype):
    """0..exact_limit where that is small; else its ends, the neighbours of all powers of two, and a random sample."""
    if dtype.exact_limit <= 2**12:
        return np.arange(dtype.exact_limit + 1)
    powers = 2 ** np.arange(dtype.exact_limit.bit_length())
    drawn = np.random.default_rng(1).integers(0, dtype.exact_limit, 5000, endpoint=True)
    some = np.concatenate([powers - 1, powers, powers + 1, drawn, [0, dtype.exact_limit]])
    return some[some <= dtype.exact_limit]


def as_torch(stored, dtype):
    return torch.from_numpy(stored.view(np.uint8).copy()).view(getattr(torch, dtype.name))


@EVERY
def test_every_integer_up_to_the_limit_survives(dtype):
    values = integers(dtype)
    stored = encode(values, dtype)
    assert stored.dtype == np.dtype(dtype.storage) and stored.dtype.itemsize == dtype.itemsize
    assert np.array_equal(decode(stored, dtype), values)
    assert torch.equal(as_torch(stored, dtype).to(torch.float64), torch.from_numpy(values).to(torch.float64))


@EVERY
def test_the_bits_are_those_of_torch(dtype):
    values = integers(dtype)
    theirs = torch.from_numpy(values).to(torch.float64).to(getattr(torch, dtype.name))
    assert np.array_equal(encode(values, dtype).view(np.uint8), theirs.view(torch.uint8).numpy())


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_code_decodes_as_in_torch(name):
    dtype = DTYPES[name]
    codes = np.arange(256**dtype.itemsize).astype(f"uint{8 * dtype.itemsize}").view(dtype.storage)
    with np.errstate(invalid="ignore"):
        ours = decode(codes, dtype)
    theirs = as_torch(codes, dtype).to(torch.float64).numpy()
    if name == "float8_e5m2":  # its infinities are decoded as NaN: both are wrong data
        theirs = np.where(np.isinf(theirs), np.nan, theirs)
    assert np.array_equal(ours, theirs, equal_nan=True)


@EVERY
def test_the_limit_is_no_wider_than_the_type(dtype):
    kind = getattr(torch, dtype.name)
    if not dtype.is_float:
        assert not kind.is_floating_point and dtype.exact_limit <= torch.iinfo(kind).max
        return
    assert kind.is_floating_point
    # Contiguous integers are exact up to 2 / eps.
    assert dtype.exact_limit <= 2 / torch.finfo(kind).eps <= torch.finfo(kind).max


@EVERY
def test_poison_is_no_value_of_a_pattern(dtype):
    poison = np.full(dtype.itemsize, 0xFF, dtype=np.uint8).view(dtype.storage)
    value = decode(poison, dtype)[0]
    assert np.isnan(value) or value < 0 or value > dtype.exact_limit


@EVERY
def test_itemsize_and_names_are_those_of_torch(dtype):
    assert dtype.itemsize == getattr(torch, dtype.name).itemsize
    assert np.dtype(dtype.storage).itemsize == dtype.itemsize


def test_aliases_lead_to_types_and_hide_none():
    assert set(ALIASES.values()) <= set(DTYPES)
    assert not set(ALIASES) & set(DTYPES)
    # nccl-tests' own names are understood, whatever they are called here.
    assert all(dtype.nccl_name in ALIASES or dtype.nccl_name in DTYPES for dtype in DTYPES.values())
    assert all(ALIASES.get(dtype.nccl_name, dtype.nccl_name) == dtype.name for dtype in DTYPES.values())
