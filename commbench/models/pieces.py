"""Breaks in the size axis: time as pieces intercept + slope * size, found by an exact dynamic program.

A library changes its protocol with the size and a curve jumps or bends there, so one line misses by tens of per cent.
All places for the breaks are tried (Bellman's segmented least squares, relative errors), the number of pieces is the
one with the least BIC at the noise of the curve: RSS / noise^2 + (3 pieces - 1) log(sizes). Where no noise is given it
is read off the curve: three neighbours against a line through them, lower quartile, since breaks and bends only add.
Each piece is then fitted with the Huber loss on log residuals (huber.py) at that noise; where times stand out from
their piece by a quarter, breaks are sought once more with those counting little.
"""

from dataclasses import dataclass

import numpy as np

from commbench.models.huber import HUBER_K, fit_many

MIN_POINTS = 4  # two parameters and two points that can contradict them
NOISE_FLOOR = 1e-3  # no clock on a machine in use repeats better
STANDS_OUT = np.log(1.25)  # a time a quarter off its piece is an outlier rather than a shape
CHI2_LOWER_QUARTILE = 0.10153  # of one degree of freedom: three points against a line
CHUNK = 256  # curves at once: keeps the n x n sums in the cache


@dataclass(frozen=True)
class Pieces:
    """A curve in pieces. size_bytes and time_us: the points fitted, one per size, ascending. first: index of each
    piece's first point. intercept_us: where the line of a piece meets size zero; no latency (it may be negative) but
    for the first piece. tail: (intercept_us, us_per_byte) beyond the largest size. noise: relative, as used."""

    size_bytes: np.ndarray
    time_us: np.ndarray
    first: np.ndarray
    intercept_us: np.ndarray
    beta_us_per_byte: np.ndarray
    tail: tuple[float, float]
    noise: float
    remark: str

    @property
    def breaks(self) -> list[tuple[float, float]]:
        """Each break as (largest size of the piece below, smallest size of the piece above), in bytes."""
        return [(float(self.size_bytes[i - 1]), float(self.size_bytes[i])) for i in self.first[1:]]

    @property
    def latency_us(self) -> float:
        """The time of nothing: the first piece at size zero, never negative."""
        return float(self.intercept_us[0])

    @property
    def mape(self) -> float:
        """Mean of |model / measured - 1| over the points fitted, as a fraction."""
        return float(np.mean(np.abs(predict(self, self.size_bytes) / self.time_us - 1)))


def fit_pieces(size_bytes, time_us, noise: float | None = None, min_points: int = MIN_POINTS) -> Pieces:
    """The pieces of one curve. Several times of one size count as their median. `noise`: the relative standard
    deviation of a time where repeats tell it (repeat_noise); `min_points`: the least in a piece, two or more."""
    return fit_curves([(size_bytes, time_us)], [noise], min_points)[0]


def fit_curves(curves, noises=None, min_points: int = MIN_POINTS) -> list[Pieces]:
    """fit_pieces for many (size_bytes, time_us) at once; curves of one length are worked on together."""
    merged = [_merge(*curve) for curve in curves]
    noises = [None] * len(merged) if noises is None else noises
    lengths = np.array([len(size) for size, _ in merged])
    found = [None] * len(merged)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for chunk in np.split(same, range(CHUNK, len(same), CHUNK)):
            sizes, times = (np.array([merged[i][part] for i in chunk]) for part in (0, 1))
            given = np.array([np.nan if noises[i] is None else noises[i] for i in chunk])
            for i, pieces in zip(chunk, _fit_same_length(sizes, times, given, min_points)):
                found[i] = pieces
    return found


def predict(pieces: Pieces, size_bytes) -> np.ndarray:
    """Times in us. Between two pieces, where the break may be anywhere, a straight line in log size and log time;
    beyond the largest size the tail."""
    asked = np.asarray(size_bytes, float)
    last = np.append(pieces.first[1:], len(pieces.size_bytes)) - 1
    starts = pieces.size_bytes[pieces.first]
    piece = np.maximum(np.searchsorted(starts, asked, side="right") - 1, 0)
    time_us = pieces.intercept_us[piece] + pieces.beta_us_per_byte[piece] * asked
    for k, (low, high) in enumerate(pieces.breaks):
        ends = [_at(pieces, k, low), _at(pieces, k + 1, high)]
        gap = (asked > low) & (asked < high)
        time_us = np.where(
            gap, np.exp(np.interp(np.log(np.maximum(asked, low)), np.log([low, high]), np.log(ends))), time_us
        )
    beyond = asked > pieces.size_bytes[last[-1]]
    return np.where(beyond, pieces.tail[0] + pieces.tail[1] * asked, time_us)


def refine_sizes(pieces: Pieces) -> list[int]:
    """Sizes a quarter of an octave apart within each break that were not measured: what tells where the break is.
    Multiples of what the smaller size is a multiple of, down to a sixteenth of it, so that elements divide them."""
    sizes = set()
    for low, high in pieces.breaks:
        grain = int(low) & -int(low) if low >= 1 else 1
        grain = max(1, min(grain, int(low) // 16))
        steps = np.arange(1, int(np.ceil(4 * np.log2(high / low))))
        sizes |= {int(round(low * 2 ** (step / 4) / grain)) * grain for step in steps}
    return sorted(sizes - set(pieces.size_bytes.astype(int).tolist()))


def repeat_noise(first_us, second_us) -> float | None:
    """The relative noise of a time, from two measurements of each size; None where fewer than four sizes have both."""
    apart = np.log(np.asarray(first_us, float) / np.asarray(second_us, float))
    apart = apart[np.isfinite(apart)]
    return float(1.4826 * np.median(np.abs(apart)) / np.sqrt(2)) if len(apart) >= 4 else None


def _at(pieces: Pieces, piece: int, size: float) -> float:
    return pieces.intercept_us[piece] + pieces.beta_us_per_byte[piece] * size


def _merge(size_bytes, time_us):
    size_bytes, time_us = np.asarray(size_bytes, float), np.asarray(time_us, float)
    sizes = np.unique(size_bytes)
    if len(sizes) == len(size_bytes):
        order = np.argsort(size_bytes)
        return sizes, time_us[order]
    return sizes, np.array([np.median(time_us[size_bytes == size]) for size in sizes])


def _fit_same_length(sizes, times, given_noise, min_points):
    curves, length = sizes.shape
    noise, remark = np.full(curves, np.nan), ""
    starts = [np.array([0])] * curves
    if length < 2 * min_points:
        remark = f"one piece: {length} sizes, and a break needs {2 * min_points}"
    else:
        cost = segment_costs(sizes, times)
        noise = np.maximum(np.where(np.isnan(given_noise), _noise_of(cost), given_noise), NOISE_FLOOR)
        starts = _least_bic(cost / noise[:, None, None] ** 2, min_points)
    lines = _lines(sizes, times, starts, noise)
    if not remark:
        off = np.array([np.abs(np.log(times[i] / _on_lines(lines[i], starts[i], sizes[i]))) for i in range(curves)])
        again = np.flatnonzero(np.any(off > STANDS_OUT, axis=1))
        if len(again):
            known = noise[again, None]
            weights = np.where(off[again] > STANDS_OUT, HUBER_K * known / np.maximum(off[again], STANDS_OUT), 1)
            cost = segment_costs(sizes[again], times[again], np.minimum(weights, 1))
            found = _least_bic(cost / known[..., None] ** 2, min_points)
            for i, start, line in zip(again, found, _lines(sizes[again], times[again], found, noise[again])):
                starts[i], lines[i] = start, line
    last = np.array([start[-1] for start in starts])
    tails = _robust(sizes, times, last, np.full(curves, length), _low(sizes, last), noise, 2)
    for i in range(curves):
        tail = tuple(tails[i].tolist())
        yield Pieces(sizes[i], times[i], starts[i], lines[i][:, 0], lines[i][:, 1], tail, float(noise[i]), remark)


def _lines(sizes, times, starts, noise):
    """Per curve (pieces, 2): intercept and slope of each piece."""
    counts = [len(start) for start in starts]
    curve, begin = np.repeat(np.arange(len(sizes)), counts), np.concatenate(starts)
    end = np.concatenate([np.append(start[1:], sizes.shape[1]) for start in starts])
    values = _robust(sizes[curve], times[curve], begin, end, _low(sizes[curve], begin), noise[curve], 0)
    return np.split(values, np.cumsum(counts)[:-1])


def _low(sizes, begin):
    """Where a line must not be negative: at the smallest size of its piece, for the first piece at size zero."""
    return np.where(begin == 0, 0.0, sizes[np.arange(len(sizes)), begin])


def _on_lines(lines, starts, sizes):
    piece = np.searchsorted(starts, np.arange(len(sizes)), side="right") - 1
    return lines[piece, 0] + lines[piece, 1] * sizes


def _robust(sizes, times, begin, end, low, noise, power):
    """(intercept, slope) per row of sizes, from its points begin..end - 1. Neither the line at `low` nor its slope may
    be negative, so no time within or beyond the piece is. `power` 2 weighs by size^2: errors then count in microseconds
    and the slope is that of the largest sizes, which is what lies beyond them."""
    place = np.arange(sizes.shape[1])
    used = (place >= begin[:, None]) & (place < end[:, None])
    unit = np.maximum(sizes[:, -1:], 1.0)
    terms = np.stack([np.ones_like(sizes), np.where(used, (sizes - low[:, None]) / unit, 0)], axis=2)
    weights = used * np.maximum(sizes / unit, 1e-6) ** power
    values = np.empty((len(sizes), 2))
    known = ~np.isnan(noise)
    for group, scale in ((known, noise[known]), (~known, None)):
        if group.any():
            values[group] = fit_many(terms[group], times[group], weights[group], scale)[0]
    slope = values[:, 1] / unit[:, 0]
    return np.stack([values[:, 0] - slope * low, slope], axis=1)


def segment_costs(sizes, times, weights=None):
    """Sum of weights * (model / time - 1)^2 for each curve and each segment of points i..j: (curves, n, n).

    Closed form over running sums from each start i, so that no large sum is ever subtracted from another.
    """
    place = np.arange(sizes.shape[1])
    segment = place[None, :] >= place[:, None]
    low = np.where(place == 0, 0.0, sizes)
    root = np.where(segment, 1.0 if weights is None else np.sqrt(weights)[:, None, :], 0.0)
    one, size = root / times[:, None, :], root * (sizes[:, None, :] - low[:, :, None]) / times[:, None, :]
    total = np.cumsum(root * root, axis=-1)
    length, width = (np.sqrt(np.cumsum(x * x, axis=2)) for x in (one, size))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(length > 0, np.cumsum(root * one, axis=2) / length, 0)
        q = np.where(width > 0, np.cumsum(root * size, axis=2) / width, 0)
        cosine = np.where(width > 0, np.cumsum(one * size, axis=2) / (length * width), 0)
        both = (p * p + q * q - 2 * cosine * p * q) / (1 - cosine**2)
    inside = (p > cosine * q) & (q > cosine * p) & (cosine < 1 - 1e-12)
    return np.maximum(total - np.where(inside, both, np.maximum(p, q) ** 2), 0)


def _noise_of(cost):
    start = np.arange(cost.shape[1] - 2)
    return np.sqrt(np.quantile(cost[:, start, start + 2], 0.25, axis=1) / CHI2_LOWER_QUARTILE)


def _least_bic(cost, min_points):
    """Per curve the index of the first point of each piece. cost: RSS over noise squared."""
    curves, length, _ = cost.shape
    line = np.arange(curves)
    best = cost[:, 0, :].copy()
    best[:, : min_points - 1] = np.inf
    totals, begins = [best[:, -1]], []
    for pieces in range(2, length // min_points + 1):
        longer, begin = np.full((curves, length), np.inf), np.zeros((curves, length), int)
        for end in range(pieces * min_points - 1, length):
            start = np.arange((pieces - 1) * min_points, end - min_points + 2)
            tried = best[:, start - 1] + cost[:, start, end]
            choice = np.argmin(tried, axis=1)
            longer[:, end], begin[:, end] = tried[line, choice], start[choice]
        best = longer
        totals.append(best[:, -1])
        begins.append(begin)
    bic = np.stack(totals, axis=1) + (3 * np.arange(1, len(totals) + 1) - 1) * np.log(length)
    return [_trace([begin[i] for begin in begins], count, length) for i, count in enumerate(np.argmin(bic, axis=1))]


def _trace(begins, breaks, length):
    starts, end = [], length - 1
    for level in range(breaks - 1, -1, -1):
        starts.append(begins[level][end])
        end = starts[-1] - 1
    return np.array([0, *reversed(starts)])
