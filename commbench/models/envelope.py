"""The lower envelope: a library (or a person who forces each) that always takes the fastest of several algorithms and
protocols. T = min over components, each with its own parameters.

Fitted in the logarithms of the parameters, which keeps them positive, by a Huber-like loss on log residuals with the
analytic Jacobian d log T / d log p = term / T of the component that is the fastest, from several starts. Components of
one algorithm are ordered from the highest beta (and lowest latency) to the lowest, so that a refit names them alike.
"""

import numpy as np
from scipy.optimize import least_squares

from commbench.models.identify import columns_of
from commbench.models.model import Piece
from commbench.models.switches import non_negative_from_sums

STARTS = 8
LOSS_SCALE = 0.05  # log residuals above it count linearly
_LEAST_SHARE = 1e-4  # a parameter starts at no less than this share of the time, else its logarithm has no slope


def fit_minimum(op, table, components, seed: int = 0, starts: int = STARTS, protocol: str = "") -> tuple[Piece, ...]:
    """The pieces of the lower envelope of `components`, each (algorithm, names of its parameters), with repeats for
    several protocols of one algorithm."""
    log_time = np.log(table.time_us)
    columns = [columns_of(op, algorithm, names, table.ranks, table.nodes, table.size_bytes, protocol)
               for algorithm, names in components]  # fmt: skip
    ends = np.cumsum([0] + [c.shape[1] for c in columns])
    rng = np.random.default_rng(seed)

    def parts(logs):
        return [c * np.exp(logs[a:b]) for c, a, b in zip(columns, ends, ends[1:])]

    def residual(logs):
        return np.log(np.min([part.sum(axis=1) for part in parts(logs)], axis=0)) - log_time

    def jacobian(logs):
        told = parts(logs)
        totals = np.array([part.sum(axis=1) for part in told])
        fastest = totals.argmin(axis=0)
        return np.hstack([part / totals[k][:, None] * (fastest == k)[:, None] for k, part in enumerate(told)])

    def solve(logs, steps):
        return least_squares(residual, logs, jacobian, loss="soft_l1", f_scale=LOSS_SCALE, x_scale=1.0,
                             bounds=(logs - 12, logs + 12), max_nfev=steps)  # fmt: skip

    tried = [solve(_start(rng, columns, table, n), 12) for n in range(starts)]
    best = min((solve(found.x, 60) for found in sorted(tried, key=lambda f: f.cost)[:2]), key=lambda f: f.cost)
    pieces = [
        Piece(algorithm, names, tuple(np.exp(best.x[a:b]).tolist()))
        for (algorithm, names), a, b in zip(components, ends, ends[1:])
    ]
    first = {algorithm: i for i, (algorithm, _) in reversed(list(enumerate(components)))}
    return tuple(sorted(pieces, key=lambda piece: (first[piece.algorithm], -piece.values[-1])))


def _start(rng, columns, table, number):
    """Logarithms of parameters: the sizes cut at random into as many ranges as there are components, each component
    fitted to its own (the first start: equal ranges)."""
    k = len(columns)
    cuts = np.arange(1, k) / k if number == 0 else np.sort(rng.random(k - 1))
    owner = np.searchsorted(
        np.quantile(np.log(table.size_bytes / table.ranks), cuts), np.log(table.size_bytes / table.ranks)
    )
    logs = []
    for i, own in enumerate(columns):
        rows = owner == i if (owner == i).sum() > own.shape[1] else np.full(len(owner), True)
        relative = np.column_stack([own, np.ones(len(own)) * table.time_us])[rows] / table.time_us[rows, None]
        _, values = non_negative_from_sums((relative.T @ relative)[None])
        largest = np.max(own / table.time_us[:, None], axis=0)
        logs.append(np.log(np.maximum(values[0], _LEAST_SHARE / np.maximum(largest, 1e-300))))
    return np.concatenate(logs)
