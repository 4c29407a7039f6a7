"""Where each local rank stands, in a file that ranks write through a shared map and the supervisor reads.

Writing costs well under a microsecond and happens outside timed regions; a stopped or killed rank leaves its last word.
"""

import mmap
import time
from pathlib import Path

import numpy as np

PHASES = (
    "starting", "forming the world", "filling of buffers", "warm-up", "timed calls",
    "data check", "exchange of results", "done",
)  # fmt: skip
STARTING, FORMING, FILL, WARMUP, TIMED, CHECK, EXCHANGE, DONE = range(len(PHASES))
_FIELDS = ("pid", "step", "phase", "calls", "stamp_ns", "allowance_ms")


class Progress:
    """One row of int64 per local rank."""

    def __init__(self, path: Path, local_ranks: int, create: bool = False):
        size = local_ranks * len(_FIELDS) * 8
        if create:
            rows = np.zeros((local_ranks, len(_FIELDS)), dtype=np.int64)
            rows[:, 1] = -1  # no step yet
            path.write_bytes(rows.tobytes())
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self.table = np.frombuffer(self._map, dtype=np.int64).reshape(local_ranks, len(_FIELDS))

    def of(self, local_rank: int) -> "Mark":
        return Mark(self.table[local_rank])

    def rows(self) -> list[dict]:
        return [dict(zip(_FIELDS, row, strict=True)) for row in self.table.tolist()]


class Mark:
    """What a rank says of itself."""

    def __init__(self, row: np.ndarray):
        self._row = row

    def pid(self, pid: int) -> None:
        self._row[0] = pid
        self._row[4] = time.monotonic_ns()

    def phase(self, phase: int, step: int | None = None, allowance_s: float = 0.0) -> None:
        """A new phase begins; `allowance_s` is time that one call of it may take beyond the time-out."""
        if step is not None:
            self._row[1] = step
        self._row[2] = phase
        self._row[3] = 0
        self._row[5] = int(allowance_s * 1e3)
        self._row[4] = time.monotonic_ns()

    def call(self, number: int) -> None:
        self._row[3] = number
        self._row[4] = time.monotonic_ns()
