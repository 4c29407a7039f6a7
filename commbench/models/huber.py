"""The estimator: Huber loss on log residuals, parameters not below zero.

time = terms @ values, values >= 0. The loss sees log(time / model), so one per cent counts alike in a short time and in
a long one, and a time that is ten times too long counts little (Huber, k = 1.345, scale by the median absolute residual
as in MATLAB's robustfit: the p - 1 smallest are left out, since p parameters can make them zero).
Solved by Gauss-Newton steps, each a non-negative least-squares problem, so that a parameter at zero is exactly zero.
Start: relative weighted least squares.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

HUBER_K = 1.345  # 95 % efficiency under normal noise
SCALE_FLOOR = 1e-6  # a millionth of a time is below what any clock here tells
STEPS, TOLERANCE = 60, 1e-8  # of the log residuals


@dataclass(frozen=True)
class TermFit:
    """values: one per term, in its unit, >= 0. residual_log: log(measured / model) per row. scale: the robust relative
    standard deviation of the residuals. at_floor: which values are zero because less would have fitted better."""

    values: np.ndarray
    residual_log: np.ndarray
    scale: float
    at_floor: np.ndarray

    @property
    def mape(self) -> float:
        """Mean of |model / measured - 1|, as a fraction."""
        return float(np.mean(np.abs(np.expm1(-self.residual_log))))


def fit_terms(terms, time_us, weights=None) -> TermFit:
    """Fit time_us (rows,) as terms (rows, p) @ values. `weights` multiply the loss of a row (None: all alike).

    Callers see to it that times and at least one term of each row are positive and finite.
    """
    terms, time_us = np.asarray(terms, float), np.asarray(time_us, float)
    weights = np.ones(len(time_us)) if weights is None else np.asarray(weights, float)
    values, residual, scale = fit_many(terms[None], time_us[None], weights[None])
    return TermFit(values[0], residual[0], float(scale[0]), values[0] == 0)


def fit_many(terms, time_us, weights, scale=None):
    """The same for many curves at once: terms (curves, rows, p), time_us and weights (curves, rows).

    A weight of zero takes a row out, so curves of unequal length are padded (times of padding must be positive).
    `scale` (curves,): the noise where it is known, otherwise it is taken from the residuals.
    Returns values (curves, p), log residuals (curves, rows; zero for padding) and scales (curves,).
    """
    used, parameters = weights > 0, terms.shape[2]
    values = _start(terms, time_us, weights)
    residual = _residual(terms, values, time_us, used)
    known = scale is not None
    scale = np.array(scale, float) if known else _scale(residual, used, parameters)
    active = np.arange(len(values))
    for _ in range(STEPS):
        t, y, w, u, now, s = (each[active] for each in (terms, time_us, weights, used, values, scale))
        old = residual[active]
        huber = np.minimum(1, HUBER_K * s[:, None] / np.maximum(np.abs(old), 1e-12))
        relative = np.where(u[..., None], t / np.where(u, _model(t, now), 1)[..., None], 0)
        target = _non_negative(relative, 1 + old, w * huber)
        values[active] = _descend(now, target, t, y, w, u, s[:, None])
        residual[active] = _residual(t, values[active], y, u)
        if not known:
            scale[active] = _scale(residual[active], u, parameters)
        active = active[np.max(np.abs(residual[active] - old), axis=1) > TOLERANCE]
        if not len(active):
            break
    return values, residual, scale


def _start(terms, time_us, weights):
    """Relative weighted least squares; where that leaves a row without time, halfway to an even share of all terms."""
    values = _non_negative(terms / time_us[..., None], np.ones_like(time_us), weights)
    empty = np.any((weights > 0) & (_model(terms, values) < 1e-3 * time_us), axis=1)
    if empty.any():
        present = (terms[empty] > 0) & (weights[empty] > 0)[..., None]
        share = np.where(present, time_us[empty][..., None] / np.where(present, terms[empty], 1), np.nan)
        values[empty] = (values[empty] + np.nan_to_num(np.nanmedian(share, axis=1)) / terms.shape[2]) / 2
    return values


def _descend(start, target, terms, time_us, weights, used, scale):
    """From start towards target, by halves for the curves whose loss would not fall."""
    before = _loss(_residual(terms, start, time_us, used), weights, scale)
    step = np.ones(len(start))
    for _ in range(12):
        new = start + step[:, None] * (target - start)
        worse = _loss(_residual(terms, new, time_us, used), weights, scale) > before
        if not worse.any():
            return new
        step[worse] /= 2
    return np.where(worse[:, None], start, new)


def _model(terms, values):
    return np.einsum("crp,cp->cr", terms, values)


def _residual(terms, values, time_us, used):
    with np.errstate(divide="ignore"):  # a model of zero is infinitely wrong, and no step goes there
        return np.where(used, np.log(time_us / np.where(used, _model(terms, values), 1)), 0.0)


def _loss(residual, weights, scale):
    size = np.abs(residual) / scale
    return np.sum(weights * np.where(size <= HUBER_K, size**2 / 2, HUBER_K * (size - HUBER_K / 2)), axis=1)


def _scale(residual, used, parameters):
    """Median absolute residual / 0.6745, without the p - 1 smallest and without padding."""
    size = np.sort(np.where(used, np.abs(residual), np.inf), axis=1)
    rows = used.sum(axis=1)
    skip = np.minimum(parameters - 1, rows - 1)
    left, right = skip + (rows - skip - 1) // 2, skip + (rows - skip) // 2
    line = np.arange(len(size))
    return np.maximum((size[line, left] + size[line, right]) / 2 / 0.6745, SCALE_FLOOR)


def _non_negative(terms, target, weights):
    """Weighted non-negative least squares per curve; closed form for one and two terms."""
    root = np.sqrt(weights)
    a, y = terms * root[..., None], target * root
    length = np.sqrt(np.sum(a**2, axis=1))
    length = np.where(length > 0, length, 1)
    a = a / length[:, None, :]
    if terms.shape[2] > 2:
        return np.array([nnls(rows, column)[0] for rows, column in zip(a, y)]) / length
    along = np.maximum(np.einsum("crp,cr->cp", a, y), 0)
    if terms.shape[2] == 1:
        return along / length
    p, q = np.einsum("crp,cr->pc", a, y)
    cosine = np.einsum("cr,cr->c", a[..., 0], a[..., 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.stack([p - cosine * q, q - cosine * p], axis=1) / (1 - cosine**2)[:, None]
    inside = np.all(both > 0, axis=1) & (cosine < 1 - 1e-12)
    alone = np.where((p >= q)[:, None], [1.0, 0.0], [0.0, 1.0]) * along
    return np.where(inside[:, None], both, alone) / length
