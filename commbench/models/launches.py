"""The launch is the unit of repetition: each launch is fitted by itself, the interval is that of the fits.

Within one launch a curve repeats far better than the next launch agrees with it: with 3 % between launches a nominal
95 % interval from pooled residuals holds the truth in a fifth of the cases (on launches as the unit: Hoefler & Belli,
SC'15; Hunold & Carpen-Amarie, arXiv 1505.07734).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from commbench.models.huber import fit_many

WITHIN = "within-launch only"
NO_INTERVAL = "one launch, no interval"


class Interval(NamedTuple):
    """low and high are None where the data allow none. df: degrees of freedom. label: what the interval rests on."""

    estimate: float
    low: float | None
    high: float | None
    df: int
    label: str


@dataclass(frozen=True)
class LaunchFits:
    """values (launches, p): the parameters of each launch. left_out (rows, p): with one launch, the parameters when one
    row is left out, for each row in turn; empty otherwise."""

    launches: np.ndarray
    values: np.ndarray
    left_out: np.ndarray


def fit_launches(terms, time_us, launch, weights=None) -> LaunchFits:
    """Fit terms (rows, p) @ values to time_us (rows,) in each launch by itself; `launch` (rows,) tells the launch."""
    terms, time_us, launch = np.asarray(terms, float), np.asarray(time_us, float), np.asarray(launch)
    weights = np.ones(len(time_us)) if weights is None else np.asarray(weights, float)
    launches = np.unique(launch)
    rows, used = _rows_by_launch(launch)
    values = fit_many(terms[rows], time_us[rows], weights[rows] * used)[0]
    left_out = np.empty((0, terms.shape[1]))
    if len(launches) == 1 and len(time_us) > terms.shape[1]:
        left_out = _fit_subsets(terms, time_us, weights * ~np.eye(len(time_us), dtype=bool))
    return LaunchFits(launches, values, left_out)


def interval_of(fits: LaunchFits, figure: Callable, level: float = 0.95) -> Interval:
    """The interval of figure(values), for example one parameter or a predicted time."""
    left_out = [figure(values) for values in fits.left_out]
    return interval_over_launches([figure(values) for values in fits.values], level, left_out)


def interval_over_launches(values, level: float = 0.95, left_out=()) -> Interval:
    """The t interval of one figure's values per launch: of their logarithms where all are above zero (the estimate is
    then the geometric mean), else of the values, cut at zero where none is below.

    With one launch the interval is the jackknife's over `left_out` (the figure with one size left out, each in turn).
    It says nothing about the next launch; its label is "within-launch only". Without left_out there is none.
    """
    values, left_out = np.asarray(values, float), np.asarray(left_out, float)
    every = np.concatenate([values, left_out])
    positive = bool(np.all(every > 0))
    scaled, scaled_out = (np.log(values), np.log(left_out)) if positive else (values, left_out)
    middle, count = float(np.mean(scaled)), len(values)
    if count > 1:
        error, df, label = np.std(scaled, ddof=1) / np.sqrt(count), count - 1, f"{count} launches"
    elif len(left_out) > 1:
        error, df, label = jackknife_error(scaled_out), len(left_out) - 1, WITHIN
    else:
        return Interval(float(values[0]), None, None, 0, NO_INTERVAL)
    half = float(student.ppf((1 + level) / 2, df) * error)
    low, high = middle - half, middle + half
    if positive:
        return Interval(float(np.exp(middle)), float(np.exp(low)), float(np.exp(high)), df, label)
    return Interval(middle, max(low, 0.0) if np.all(every >= 0) else low, high, df, label)


def jackknife_error(left_out, axis: int = 0):
    """The standard error of a figure from its values with one row left out (Efron & Stein, Ann. Statist. 1981)."""
    count = np.shape(left_out)[axis]
    return np.sqrt((count - 1) * np.var(left_out, axis=axis))


def _rows_by_launch(launch):
    """Row numbers (launches, most rows of one), and which of them are no padding."""
    _, place, count = np.unique(launch, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    start, column = np.cumsum(count) - count, np.arange(count.max())
    used = column < count[:, None]
    return order[np.where(used, start[:, None] + column, start[:, None])], used


def _fit_subsets(terms, time_us, weights):
    """Values (subsets, p) of the same rows under each line of weights (subsets, rows)."""
    subsets = len(weights)
    many = np.broadcast_to(terms, (subsets, *terms.shape)), np.broadcast_to(time_us, (subsets, len(time_us)))
    return fit_many(*many, weights)[0]
