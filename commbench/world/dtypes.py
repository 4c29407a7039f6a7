"""The element types: width, range of exact integers, and how integers are encoded without torch.

numpy knows neither bfloat16 nor the 8-bit floats, so those are encoded by hand; a rank under MPI needs no torch.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dtype:
    """One element type; every integer 0..exact_limit is represented exactly."""

    name: str
    itemsize: int
    exact_limit: int
    is_float: bool
    storage: str  # the numpy dtype its bits are kept in
    nccl_name: str  # what nccl-tests prints and takes for -d


DTYPES = {
    d.name: d
    for d in (
        Dtype("float32", 4, 2**24, True, "float32", "float"),
        Dtype("float64", 8, 2**31, True, "float64", "double"),
        Dtype("float16", 2, 2**11, True, "float16", "half"),
        Dtype("bfloat16", 2, 2**8, True, "uint16", "bfloat16"),
        Dtype("float8_e4m3fn", 1, 2**4, True, "uint8", "f8e4m3"),
        Dtype("float8_e5m2", 1, 2**3, True, "uint8", "f8e5m2"),
        Dtype("int8", 1, 127, False, "int8", "int8"),
        Dtype("uint8", 1, 254, False, "uint8", "uint8"),  # 255 is the poison
        Dtype("int32", 4, 2**30, False, "int32", "int32"),
        Dtype("int64", 8, 2**31, False, "int64", "int64"),
    )
}

ALIASES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64",
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "char": "int8", "int": "int32",
    "fp8": "float8_e4m3fn", "f8e4m3": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
}  # fmt: skip


def _fp8_values(exponent_bits: int) -> np.ndarray:
    """The value of each of the 256 codes of an 8-bit float (OCP OFP8, section 5); NaN and inf as NaN."""
    mantissa_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent = (code & 0x7F) >> mantissa_bits
    mantissa = (code & (2**mantissa_bits - 1)) / 2**mantissa_bits
    value = sign * np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    top = exponent == 2**exponent_bits - 1
    not_a_number = top if exponent_bits == 5 else (code & 0x7F) == 0x7F
    return np.where(not_a_number, np.nan, value)


_FP8 = {"float8_e4m3fn": _fp8_values(4), "float8_e5m2": _fp8_values(5)}


def encode(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Integers within 0..exact_limit as an array of `dtype.storage` holding their exact bits."""
    if dtype.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.name in _FP8:
        codes = {value: code for code, value in reversed(list(enumerate(_FP8[dtype.name]))) if code < 128}
        table = np.array([codes[float(v)] for v in range(dtype.exact_limit + 1)], dtype=np.uint8)
        return table[values]
    return values.astype(dtype.storage)


def decode(stored: np.ndarray, dtype: Dtype) -> np.ndarray:
    """The float64 values of bits kept as `dtype.storage`."""
    if dtype.name == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.name in _FP8:
        return _FP8[dtype.name][stored]
    return stored.astype(np.float64)
