"""Accelerators by their datasheets: the kernels' table of peaks with gpus.toml's memory, or a table of one's own."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from commbench.errors import UsageError
from commbench.kernels.peaks import peaks_of_entry
from commbench.toml_file import read_toml

_FILE = Path(__file__).with_name("gpus.toml")


@dataclass(frozen=True)
class Gpu:
    """Dense peaks in TFLOP/s (fp8, fp32: None where the GPU has none, or none is told), memory in 10^9 bytes, its rate.

    fp32 is the rate of the plain units, not of TF32."""

    name: str
    bf16_TFLOPs: float
    memory_GB: float
    memory_GBps: float
    source: str
    fp8_TFLOPs: float | None = None
    fp32_TFLOPs: float | None = None

    def peak_TFLOPs(self, precision: str) -> float:
        """The dense peak of "bf16", "fp8" or "fp32". Raises UsageError where the GPU has none of it."""
        peaks = {"bf16": self.bf16_TFLOPs, "fp8": self.fp8_TFLOPs, "fp32": self.fp32_TFLOPs}
        if precision not in peaks:
            raise UsageError(f"precision {precision!r} is not known; there are {', '.join(peaks)}")
        if peaks[precision] is None:
            raise UsageError(f"{self.name} has no {precision} rate that is known here; plan with bf16")
        return peaks[precision]


def gpu_names() -> list[str]:
    """Names of the accelerators that commbench knows."""
    return list(_shipped())


def gpu_named(name: str) -> Gpu:
    """The accelerator of that name, or of the TOML file at that path: one table, named as the GPU, with its keys.

    Raises UsageError naming those there are, or the key that is wrong.
    """
    if name in _shipped():
        return _shipped()[name]
    if not name.endswith(".toml"):
        raise UsageError(f"there is no GPU {name!r}; GPUs: {', '.join(_shipped())}, or a TOML file of one's own")
    own = read_toml(Path(name), "GPU file", f"GPU file {name} cannot be read: there is no such file")
    if len(own) != 1 or not isinstance(next(iter(own.values())), dict):
        raise UsageError(f"GPU file {name} must hold one table, named as the GPU")
    ((title, table),) = own.items()
    return Gpu(name=title, **_checked(table, name))


def _checked(table: dict, file: str) -> dict:
    """The keys of a GPU's table, each known, there and of its type."""
    known = {key: field for key, field in Gpu.__dataclass_fields__.items() if key != "name"}
    for key in table:
        if key not in known:
            raise UsageError(f"GPU file {file}: {key} is not a known key; there are {', '.join(known)}")
    for key in known:
        if key not in table and key not in ("fp8_TFLOPs", "fp32_TFLOPs"):
            raise UsageError(f"GPU file {file}: {key} is missing")
        value = table.get(key)
        if key == "source":
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f"GPU file {file}: source is {value!r}; it must be a text that is not empty")
        elif key in table and (type(value) not in (int, float) or not 0 < value < 1e12):
            raise UsageError(f"GPU file {file}: {key} is {value!r}; it must be a number above 0")
    return table


def gpu_of_fabric(fabric: str) -> Gpu | None:
    """The accelerator that a shipped fabric's name begins with (h100-8x400g: h100); None for another name."""
    return _shipped().get(fabric.split("-")[0])


@cache
def _shipped() -> dict[str, Gpu]:
    made = {}
    for name, row in tomllib.loads(_FILE.read_text(encoding="utf-8")).items():
        peaks = peaks_of_entry(row["peaks"])
        bf16, rates = peaks["bfloat16"], {dtype: peak.tflops for dtype, peak in peaks.items()}
        source = f"{bf16.source}; memory: {row['memory_source']}"
        made[name] = Gpu(
            name, bf16.tflops, row["memory_GB"], bf16.memory_GBps, source, rates.get("float8"), rates.get("float32")
        )
    return made
