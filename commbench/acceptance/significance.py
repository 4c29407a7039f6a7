"""Do two samples differ: Welch's t, and what remains of it when many are compared."""

import numpy as np
from scipy.stats import t as student

LEVEL = 0.05  # the rate of false discoveries that is put up with


def welch(a: np.ndarray, b: np.ndarray) -> tuple[float, float | None, float | None]:
    """(mean of b - mean of a, standard error, degrees of freedom) by Welch & Satterthwaite; None, None where one side
    has a single value."""
    difference = float(np.mean(b) - np.mean(a))
    if min(len(a), len(b)) < 2:
        return difference, None, None
    errors = np.var(a, ddof=1) / len(a), np.var(b, ddof=1) / len(b)
    error = float(np.sqrt(sum(errors)))
    if error == 0:
        return difference, 0.0, float(len(a) + len(b) - 2)
    return difference, error, float(sum(errors) ** 2 / sum(e**2 / (len(x) - 1) for e, x in zip(errors, (a, b))))


def p_value(difference: float, error: float, df: float) -> float:
    """Two-sided."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * student.sf(abs(difference) / error, df))


def benjamini_hochberg(p_values: list[float]) -> list[float]:
    """Each p adjusted for how many there are: rejecting those below LEVEL keeps the false discovery rate there."""
    order = np.argsort(p_values)[::-1]  # the largest first
    ranks = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum.accumulate(np.asarray(p_values)[order] * len(p_values) / ranks)
    found = np.empty(len(p_values))
    found[order] = adjusted
    return np.minimum(found, 1.0).tolist()
