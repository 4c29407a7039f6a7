"""What is sent and what must come back: integers that depend on rank and position, exact in every dtype.

The pattern repeats after PERIOD elements. PERIOD is prime, so two chunks of equal length never hold the same run of
values (a swapped chunk shows), and filling or checking gigabytes costs one short computation and a pass of copies.
A reduction must be exact in any order: the total of a position stays within the integers the dtype holds exactly.
With many ranks only a window of them is non-neutral at one position; the window wanders, so each rank is still seen.
"""

from dataclasses import dataclass

import numpy as np

from commbench.world.dtypes import Dtype, decode, encode

PERIOD = 262139  # the largest prime below 2^18
_WINDOW = 16
_MIX = 1000003


@dataclass(frozen=True)
class Segment:
    """`count` elements that must stand from element `at` on: positions start.. of the pattern of `ranks`.

    One rank: its values as it sent them. Several: their reduction.
    """

    ranks: tuple[int, ...]
    start: int
    count: int
    at: int


@dataclass(frozen=True)
class Pattern:
    """The values of a group of `world_size` ranks for one dtype and reduction ("none" where data only moves)."""

    world_size: int
    dtype: Dtype
    redop: str

    def _window_and_top(self) -> tuple[int, int]:
        """How many ranks are non-neutral at one position, and the largest value one of them may have."""
        n, limit = self.world_size, self.dtype.exact_limit
        if self.redop == "sum":
            window = max(1, min(n, _WINDOW, limit // 3))
            return window, limit // window
        if self.redop == "avg":  # values are n*u, so that the mean is the integer sum of the u
            window = max(1, min(n, _WINDOW, limit // n // 3))
            return window, max(1, limit // n // window)
        if self.redop == "prod":  # values are 1 or 2
            return min(n, _WINDOW, limit.bit_length() - 1), 1
        return (n if self.redop == "none" else min(n, _WINDOW)), min(limit, 2**20)

    def _draw(self, rank, position: np.ndarray, top: int) -> np.ndarray:
        mixed = (position * 7919 + (rank + 1) * 104729) % _MIX
        return (mixed * mixed + rank) % _MIX % (top + 1)

    def _first_of_window(self, position: np.ndarray) -> np.ndarray:
        # A prime above any world size: within world_size positions the window begins once at each rank.
        return (position * _MIX + position // 257) % self.world_size

    def _positions(self, start: int, count: int) -> np.ndarray:
        return (start + np.arange(min(count, PERIOD), dtype=np.int64)) % PERIOD

    def sent(self, rank: int, start: int, count: int) -> np.ndarray:
        """The first min(count, PERIOD) values that `rank` sends from position `start` on, encoded in the dtype."""
        position = self._positions(start, count)
        window, top = self._window_and_top()
        value = self._draw(rank, position, top)
        if window < self.world_size:
            neutral = top if self.redop == "min" else 0
            value = np.where((rank - self._first_of_window(position)) % self.world_size < window, value, neutral)
        if self.redop == "prod":
            value = value + 1
        if self.redop == "avg":
            value = value * self.world_size
        return encode(value, self.dtype)

    def reduced(self, start: int, count: int) -> np.ndarray:
        """The first min(count, PERIOD) values of the reduction over all ranks, encoded in the dtype."""
        position = self._positions(start, count)
        window, top = self._window_and_top()
        first = self._first_of_window(position) if window < self.world_size else np.zeros_like(position)
        drawn = (self._draw((first + k) % self.world_size, position, top) for k in range(window))
        total = next(drawn)
        for value in drawn:
            if self.redop in ("sum", "avg"):
                total = total + value
            elif self.redop == "prod":
                total = total + value  # counts the factors of 2
            elif self.redop == "min":
                total = np.minimum(total, value)
            else:
                total = np.maximum(total, value)
        if self.redop == "prod":
            total = 2**total
        return encode(total, self.dtype)

    def tolerance(self) -> float:
        """The relative error allowed. Zero but for avg, which some libraries take as a product with a rounded 1/n."""
        if self.redop != "avg" or not self.dtype.is_float or self.world_size & (self.world_size - 1) == 0:
            return 0.0
        return {8: 2.0**-50, 4: 2.0**-21, 2: 2.0**-7 if self.dtype.name == "bfloat16" else 2.0**-9, 1: 0.25}[
            self.dtype.itemsize
        ]

    def values(self, segment: Segment) -> np.ndarray:
        """One period (or less) of what `segment` must hold."""
        if len(segment.ranks) == 1:
            return self.sent(segment.ranks[0], segment.start, segment.count)
        return self.reduced(segment.start, segment.count)


def fill(buffer, pattern: Pattern, rank: int, count: int) -> None:
    """Write the first `count` elements that `rank` sends into `buffer`."""
    period = pattern.sent(rank, 0, count)
    size = pattern.dtype.itemsize
    for first in range(0, count, PERIOD):
        buffer.write(first * size, period[: count - first])


def count_wrong(buffer, pattern: Pattern, segments) -> tuple[int, float]:
    """How many elements of `buffer` differ from `segments`, and the largest absolute error among all of them."""
    wrong, error_max = 0, 0.0
    size, dtype, tolerance = pattern.dtype.itemsize, pattern.dtype, pattern.tolerance()
    for segment in segments:
        period = pattern.values(segment)
        for first in range(0, segment.count, PERIOD):
            wanted = period[: segment.count - first]
            found = buffer.read((segment.at + first) * size, wanted.size * size).view(dtype.storage)
            if np.array_equal(found.view(np.uint8), wanted.view(np.uint8)):
                continue
            error = np.abs(decode(found, dtype) - decode(wanted, dtype))
            error = np.where(np.isnan(error), np.inf, error)
            wrong += int(np.count_nonzero(error > tolerance * np.abs(decode(wanted, dtype))))
            error_max = max(error_max, float(error.max()))
    return wrong, error_max
