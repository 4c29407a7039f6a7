"""The library's choice: one algorithm below a number of bytes per rank, another above it, each in pieces by step size.

A library changes protocol, channels and algorithm by its own tables, and often later or earlier than the faster choice,
so the curve is not the minimum of its parts: it jumps. The break points are found exactly, by dynamic programming over
all ways to cut the measured step sizes into pieces and over all places for the change of algorithm. A piece costs its
relative squared error under non-negative least squares, in closed form from sums of products, all pieces at once.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from commbench.models import equations
from commbench.models.huber import fit_terms
from commbench.models.identify import columns_of
from commbench.models.model import Piece, Regime, columns_for, piece_of, values_of

ROWS_PER_TERM = 2  # a piece has at least twice as many rows as parameters


def switch_forms(op, table, first, second, most_first: int, most_second: int) -> dict[tuple[int, int], tuple]:
    """(pieces of `first`, pieces of `second`) -> (Piece tuple, split_bytes_per_rank) that fits the table best.

    `first` and `second` are (algorithm, names of its parameters); (0, k) and (k, 0) are one algorithm alone.
    """
    share, shares = _levels(table.size_bytes / table.ranks)
    sides = [_Side(op, algorithm, names, table, share, len(shares), below)
             for (algorithm, names), below in ((first, True), (second, False))]  # fmt: skip
    costs = [side.solve(most) for side, most in zip(sides, (most_first, most_second))]
    found = {}
    for k in range(most_first + 1):
        for m in range(most_second + 1):
            total = costs[0][k] + costs[1][m]
            at = int(np.argmin(total)) if k + m else 0
            if k + m and np.isfinite(total[at]):
                split = np.sqrt(shares[at - 1] * shares[at]) if k and m else None
                found[k, m] = sides[0].pieces(k, at) + sides[1].pieces(m, at), split
    return found


def refitted(op: str, regime: Regime, table) -> Regime:
    """The same pieces and switches with values by the Huber estimator on each piece's rows; a piece with too few rows
    keeps its values."""
    owner = piece_of(op, regime, table.ranks, table.nodes, table.size_bytes)
    pieces = []
    for i, piece in enumerate(regime.pieces):
        rows = table.select(owner == i)
        if len(rows) > len(piece.names):
            columns = columns_for(op, regime, piece, piece.values, rows.ranks, rows.nodes, rows.size_bytes)
            values = fit_terms(columns, rows.time_us).values
            if values.any():
                piece = replace(piece, values=tuple(float(v) for v in values))
        pieces.append(piece)
    return replace(regime, pieces=tuple(pieces))


def left_one_out(op: str, regime: Regime, table) -> Regime:
    """The regime with its replicates: refitted without one rank count each time, or without one size where there are
    fewer than three rank counts (the jackknife)."""
    over, name = (table.ranks, "rank count") if len(set(table.ranks.tolist())) > 2 else (table.size_bytes, "size")
    values = [refitted(op, regime, table.select(over != left)) for left in np.unique(over)]
    return replace(regime, replicate_of=name, replicates=tuple(tuple(values_of(r).tolist()) for r in values))


def _levels(values):
    """Each value's place among the different ones, and these."""
    different, place = np.unique(values, return_inverse=True)
    return place.ravel(), different


class _Side:
    """One algorithm on the rows below (or from) every possible place of the change: cost[at, i, j] of one piece over
    step sizes i..j-1 if the change is before share `at`. A cut among steps without rows is the same cut."""

    def __init__(self, op, algorithm, names, table, share, shares, below):
        self.algorithm, self.names = algorithm, names
        step, self.steps = _levels(equations.step_bytes(op, algorithm, table.ranks, table.size_bytes))
        columns = columns_of(op, algorithm, names, table.ranks, table.nodes, table.size_bytes) / table.time_us[:, None]
        length = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        rows = np.column_stack([columns / length, np.ones(len(columns))])
        cells = np.zeros((shares + 1, len(self.steps) + 1, rows.shape[1], rows.shape[1]))
        np.add.at(cells, (share + 1, step + 1), rows[:, :, None] * rows[:, None, :])
        sums = cells.cumsum(0).cumsum(1)
        if not below:
            sums = sums[-1:] - sums
        self.empty = np.rint(sums[:, -1, -1, -1]) == 0
        places = len(self.steps) + 1
        i, j = np.triu_indices(places, 1)
        inside = sums[:, j] - sums[:, i]
        enough = np.rint(inside[..., -1, -1]) >= ROWS_PER_TERM * len(names)
        cost, values = non_negative_from_sums(inside[enough])
        self.cost = np.full((shares + 1, places, places), np.inf)
        self.values = np.zeros((shares + 1, places, places, len(names)))
        at, pair = np.nonzero(enough)
        self.cost[at, i[pair], j[pair]] = cost
        self.values[at, i[pair], j[pair]] = values / length

    def solve(self, most: int):
        """Least cost [pieces][at]; no pieces is free where there are no rows, else impossible."""
        best = np.full((most + 1, *self.cost.shape[:2]), np.inf)
        best[0, :, 0] = 0
        self.before = np.zeros(best.shape, int)
        for k in range(1, most + 1):
            through = best[k - 1][:, :, None] + self.cost
            self.before[k] = through.argmin(axis=1)
            best[k] = through.min(axis=1)
        total = best[:, :, -1]
        total[0] = np.where(self.empty, 0, np.inf)
        total[1:, self.empty] = np.inf
        return total

    def pieces(self, count: int, at: int) -> tuple[Piece, ...]:
        ends = [len(self.steps)]
        for k in range(count, 0, -1):
            ends.insert(0, int(self.before[k, at, ends[0]]))
        edges = [0.0, *np.sqrt(self.steps[1:] * self.steps[:-1]).tolist(), None]
        return tuple(
            Piece(self.algorithm, self.names, tuple(self.values[at, i, j].tolist()), edges[i], edges[j])
            for i, j in zip(ends, ends[1:])
        )


def non_negative_from_sums(sums):
    """Non-negative least squares from sums of products of (columns, target): (..., p+1, p+1) -> error, values (..., p).

    Exact: the best of all subsets of columns whose own solution is non-negative.
    """
    p = sums.shape[-1] - 1
    a, b, c = sums[..., :p, :p], sums[..., :p, p], sums[..., p, p]
    diagonal = np.sqrt(np.maximum(np.einsum("...ii->...i", a), 0))
    diagonal = np.where(diagonal > 0, diagonal, 1)
    a = a / diagonal[..., :, None] / diagonal[..., None, :]
    b = b / diagonal
    best, values = np.array(c, float), np.zeros(b.shape)
    for size in range(1, p + 1):
        for chosen in map(list, combinations(range(p), size)):
            gram = a[..., chosen, :][..., :, chosen] + 1e-9 * np.eye(size)
            solution = np.linalg.solve(gram, b[..., chosen, None])[..., 0]
            error = c - np.sum(solution * b[..., chosen], axis=-1)
            better = np.all(solution >= 0, axis=-1) & (error < best * (1 - 1e-9))
            best = np.where(better, error, best)
            values[better] = 0
            values[..., chosen] = np.where(better[..., None], solution, values[..., chosen])
    return np.maximum(best, 0), values / diagonal
