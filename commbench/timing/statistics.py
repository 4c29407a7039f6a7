"""Statistics of raw samples. Nothing is dropped: outliers are what a fabric does."""

from math import comb

import numpy as np


def median_interval(samples, confidence: float = 0.95) -> tuple[float, float] | None:
    """The non-parametric confidence interval of the median, from order statistics.

    The interval between the k-th smallest and the k-th largest of n samples holds the median with probability
    1 - 2 P(Binomial(n, 1/2) < k) (Le Boudec, Performance Evaluation of Computer and Communication Systems, 2.2.2).
    None below 6 samples, where no 95 % interval exists.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    n = ordered.size
    k = _order(n, confidence)
    return None if k == 0 else (float(ordered[k - 1]), float(ordered[n - k]))


def _order(n: int, confidence: float) -> int:
    """The largest k for which [k-th smallest, k-th largest] still has the wanted confidence; 0 where there is none."""
    tail = (1 - confidence) / 2
    if n > 200:  # the normal approximation of the same binomial, as in the book's table
        from statistics import NormalDist

        return int(n / 2 - NormalDist().inv_cdf(1 - tail) * n**0.5 / 2)
    k, below = 0, 0.0
    while True:
        below += comb(n, k) / 2**n
        if below > tail:
            return k
        k += 1


def relative_half_width(samples) -> float | None:
    """Half the width of the median's 95 % interval over the median; None where there is no interval."""
    interval = median_interval(samples)
    middle = float(np.median(samples)) if len(samples) else 0.0
    return None if interval is None or middle <= 0 else (interval[1] - interval[0]) / 2 / middle


def percentile(samples, percent: float) -> float | None:
    """Nearest-rank percentile, at 50 the median as everywhere else; None for p99 and above below 100 samples, where it
    would be the maximum in disguise."""
    if not len(samples) or (percent >= 99 and len(samples) < 100):
        return None
    if percent == 50:
        return float(np.median(samples))
    ordered = np.sort(np.asarray(samples, dtype=float))
    return float(ordered[max(0, int(np.ceil(percent * ordered.size / 100)) - 1)])
