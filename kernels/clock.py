"""Times of a kernel: warmed up by time, its inputs never in a cache, one sample a call, nothing dropped.

On a CPU the host clock and inputs that take turns (Triton's do_bench needs a driver); on a GPU an event before and
after each call, and a buffer larger than the L2 cache written between calls, warm-up too. The GPU part is written from
documentation: unverified on GPU.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from commbench.timing.stop_rule import StopRule

_CACHE_BYTES = 64 * 2**20  # assumed where the machine does not tell


@dataclass(frozen=True)
class Timed:
    samples_us: tuple[float, ...]
    warmup: int
    stop_reason: str


def timed(calls, device: str, rule: StopRule, warmup_s: float) -> Timed:
    """Times of the `calls`, which do the same on different inputs and take turns."""
    turn = _Turn(calls, device)
    begin, warmup = time.perf_counter(), 0
    while not warmup or time.perf_counter() - begin < warmup_s:
        turn.take(1)
        warmup += 1
    call_s = (time.perf_counter() - begin) / warmup
    samples: list[float] = []
    begin = time.perf_counter()
    while True:
        count, reason = rule.next_block([samples], time.perf_counter() - begin, call_s)
        if not count:
            return Timed(tuple(samples), warmup, reason)
        samples += turn.take(count).tolist()
        call_s = float(np.median(samples)) / 1e6


class _Turn:
    """Takes samples, the next call each time."""

    def __init__(self, calls, device: str):
        self._calls, self._next, self._device = list(calls), 0, device
        self._flush = None if device == "cpu" else torch.empty(2 * cache_bytes(device), dtype=torch.int8, device=device)

    def take(self, count: int) -> np.ndarray:
        chosen = [self._calls[(self._next + i) % len(self._calls)] for i in range(count)]
        self._next += count
        if self._flush is not None:
            return self._on_gpu(chosen)
        durations = np.empty(count)
        for i, call in enumerate(chosen):
            begin = time.perf_counter_ns()
            call()
            durations[i] = time.perf_counter_ns() - begin
        return durations / 1e3

    def _on_gpu(self, chosen) -> np.ndarray:
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in chosen]
        for call, (before, after) in zip(chosen, marks, strict=True):
            self._flush.zero_()
            before.record()
            call()
            after.record()
        torch.cuda.synchronize()
        return np.array([before.elapsed_time(after) for before, after in marks]) * 1e3


def cache_bytes(device: str) -> int:
    """The last cache before memory: a GPU's L2, a processor's largest."""
    if device != "cpu":
        return torch.cuda.get_device_properties(device).L2_cache_size
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * 2**10 for size in sizes if size.endswith("K")), default=_CACHE_BYTES)


def turns(bytes_each: int, device: str) -> int:
    """How many sets of inputs of `bytes_each` take turns, so that none is in the cache when its turn comes: together
    they are twice the cache, but 16 at most; one on a GPU, whose cache is flushed."""
    return 1 if device != "cpu" else min(16, max(1, -(-2 * cache_bytes(device) // bytes_each)))
