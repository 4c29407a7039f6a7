"""The host clock. Each function returns the durations of one rank in microseconds; nothing else is in the timed region.

`mark(i)` is called between samples, so that a watchdog sees progress.
"""

from itertools import repeat
from time import perf_counter_ns

import numpy as np


def isolated(call, align, samples: int, mark) -> np.ndarray:
    """One sample is one call, the ranks aligned before it."""
    durations, now = np.empty(samples), perf_counter_ns
    for i in range(samples):
        mark(i)
        align()
        begin = now()
        call()
        durations[i] = now() - begin
    return durations / 1e3


def streaming(call, align, samples: int, batch: int, mark) -> np.ndarray:
    """One sample is `batch` calls back to back, divided by `batch`; the ranks are aligned before each batch."""
    durations, now = np.empty(samples), perf_counter_ns
    for i in range(samples):
        mark(i)
        align()
        begin = now()
        for _ in repeat(None, batch):
            call()
        durations[i] = now() - begin
    return durations / 1e3 / batch
