"""The size at which one way of doing it becomes faster than another, with an interval.

At each size the ratio of both times is known once per launch; a t interval of its logarithm either decides who is
faster there or does not. A crossover is a stretch of undecided sizes between two winners: that stretch is its interval.
This is Fieller's construction, the test turned round, and stays right where the crossover as a ratio of differences has
no finite spread (two nearly equal slopes).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from commbench.models.launches import NO_INTERVAL, WITHIN, jackknife_error

PER_OCTAVE = 64


class Affine(NamedTuple):
    """time(size) = alpha_us + beta_us_per_byte * size, of which crossings are known in closed form."""

    alpha_us: float
    beta_us_per_byte: float

    def __call__(self, size_bytes):
        return self.alpha_us + self.beta_us_per_byte * np.asarray(size_bytes, float)


class Crossing(NamedTuple):
    """below and above: who is faster on the smaller, on the larger side. low and high are None without an interval."""

    size_bytes: float
    low_bytes: float | None
    high_bytes: float | None
    below: str
    above: str


@dataclass(frozen=True)
class Crossover:
    """verdict: "crossover", "NAME always" or "not determined". regions: (low_bytes, high_bytes, who is faster, or None
    where the data do not decide), ascending. label: what it rests on."""

    verdict: str
    crossings: tuple[Crossing, ...]
    regions: tuple[tuple[float, float, str | None], ...]
    label: str


def crossings(first: Callable, second: Callable, low_bytes: float, high_bytes: float) -> list[float]:
    """All sizes from low to high where the faster of two times changes. Times take an array of sizes, all positive."""
    if isinstance(first, Affine) and isinstance(second, Affine):
        slope = second.beta_us_per_byte - first.beta_us_per_byte
        size = (first.alpha_us - second.alpha_us) / slope if slope else np.inf
        return [size] if low_bytes < size < high_bytes else []
    return _roots(lambda size: np.log(first(size) / second(size)), _grid(low_bytes, high_bytes)).tolist()


def crossover(
    first: Sequence[Callable],
    second: Sequence[Callable],
    low_bytes: float,
    high_bytes: float,
    names: tuple[str, str] = ("ring", "tree"),
    level: float = 0.95,
    left_out: tuple[Sequence[Callable], Sequence[Callable]] = ((), ()),
) -> Crossover:
    """Who is faster where, from one time(size) per launch of each. Launches are paired in their order.

    With one launch `left_out` holds each one's fits with one size left out (jackknife) and the label is "within-launch
    only"; without it the sizes are given without an interval.
    """
    launches = min(len(first), len(second))
    sizes = _grid(low_bytes, high_bytes)

    def apart(size):
        return np.array([np.log(a(size) / b(size)) for a, b in zip(first, second)])

    middle = np.mean(apart(sizes), axis=0)
    error, df, label = np.zeros_like(middle), 1, NO_INTERVAL
    if launches > 1:
        error = np.std(apart(sizes), axis=0, ddof=1) / np.sqrt(launches)
        df, label = launches - 1, f"{launches} launches"
    elif all(len(fits) > 1 for fits in left_out):
        errors = [jackknife_error(np.log([time(sizes) for time in fits])) for fits in left_out]
        error, df, label = np.hypot(*errors), min(len(fits) for fits in left_out) - 1, WITHIN
    half = student.ppf((1 + level) / 2, df) * error
    winner = np.where(middle + half < 0, 0, np.where(middle - half > 0, 1, -1))

    if launches == 1:
        roots = np.array(crossings(first[0], second[0], low_bytes, high_bytes))
    else:
        roots = _roots(lambda size: np.mean(apart(size), axis=0), sizes)
    found = tuple(_between_winners(winner, sizes, roots, names, label != NO_INTERVAL))
    decided = {int(w) for w in winner} - {-1}
    verdict = "crossover" if found else "not determined"
    if len(decided) == 1 and not np.any(winner == -1):
        verdict = f"{names[decided.pop()]} always"
    return Crossover(verdict, found, tuple(_regions(winner, sizes, names)), label)


def _grid(low_bytes, high_bytes):
    low_bytes = max(low_bytes, 1.0)
    return np.geomspace(low_bytes, high_bytes, max(2, int(np.ceil(PER_OCTAVE * np.log2(high_bytes / low_bytes))) + 1))


def _roots(difference, sizes):
    """Sizes where difference changes its sign, by halving in log size to 1e-8 (a jump is a root too)."""
    sign = np.sign(difference(sizes))
    signed = np.flatnonzero(sign)
    turn = np.flatnonzero(sign[signed[:-1]] != sign[signed[1:]])
    low, high, below = np.log(sizes[signed[turn]]), np.log(sizes[signed[turn + 1]]), sign[signed[turn]]
    for _ in range(26 if len(turn) else 0):
        middle = (low + high) / 2
        same = np.sign(difference(np.exp(middle))) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.exp((low + high) / 2)


def _between_winners(winner, sizes, roots, names, interval):
    decided = np.flatnonzero(winner >= 0)
    for left, right in zip(decided[:-1], decided[1:]):
        if winner[left] == winner[right]:
            continue
        low, high = float(sizes[left]), float(sizes[right])
        inside = roots[(roots >= low) & (roots <= high)]
        size = float(inside[len(inside) // 2])
        limits = (low, high) if interval else (None, None)
        yield Crossing(size, *limits, names[winner[left]], names[winner[right]])


def _regions(winner, sizes, names):
    edges = [0, *(np.flatnonzero(np.diff(winner)) + 1), len(winner)]
    for begin, end in zip(edges[:-1], edges[1:]):
        who = int(winner[begin])
        yield float(sizes[begin]), float(sizes[min(end, len(sizes) - 1)]), None if who < 0 else names[who]
