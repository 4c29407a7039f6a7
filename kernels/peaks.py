"""What a GPU can do at most: dense rates by data type and memory bandwidth, with their sources; else no percentage."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from commbench.errors import UsageError


@dataclass(frozen=True)
class Peak:
    """The denominator of a percentage: a dense rate in TFLOP/s and where it is from. sparse_tflops: what the datasheet
    prints with 2:4 sparsity; memory_GBps: its memory bandwidth; None where nobody has said it."""

    tflops: float
    name: str
    source: str
    sparse_tflops: float | None = None
    memory_GBps: float | None = None

    def __str__(self) -> str:
        return f"{self.tflops:g} TFLOP/s ({self.name})"


def peak_of(device_name: str, dtype: str) -> Peak | None:
    """The peak of a GPU by the name its driver gives it; None where the table has no such GPU or no such rate, and
    for a MIG slice, which is a part of one.

    float32 is asked of the plain units, not of TF32: nothing here computes float32 in TF32.
    """
    words = set(re.split(r"[^A-Z0-9]+", device_name.upper()))
    for gpu in [] if "MIG" in words else _table():
        if words.issuperset(word.upper() for word in gpu["match"]):
            if dtype not in gpu["dense"]:
                return None
            return _peak(gpu, dtype)
    return None


def peaks_of_entry(name: str) -> dict[str, Peak]:
    """By data type the peaks of the GPU that the table calls `name`."""
    (gpu,) = (gpu for gpu in _table() if gpu["name"] == name)
    return {dtype: _peak(gpu, dtype) for dtype in gpu["dense"]}


def given_peak(tflops: float) -> Peak:
    """A peak that a person gave. Raises UsageError for what is no rate."""
    if not 0 < tflops < 1e9:
        raise UsageError(f"--peak {tflops:g}: write the device's peak in TFLOP/s, a number above 0, such as 989")
    return Peak(tflops, "given by --peak", "the user")


def _peak(gpu: dict, dtype: str) -> Peak:
    return Peak(
        float(gpu["dense"][dtype]),
        f"{gpu['name']}, dense {dtype}",
        gpu["source"],
        gpu["sparse"].get(dtype),
        float(gpu["memory_GBps"]),
    )


@cache
def _table() -> list[dict]:
    return tomllib.loads(Path(__file__).with_name("peaks.toml").read_text(encoding="utf-8"))["gpu"]
