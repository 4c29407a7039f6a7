"""Whether a series is steady enough to be fitted. What is not is named in a sentence, and no model stands for it.

Tests on the samples of a row (stationarity): the first half against the second (Mann-Whitney), a trend (Mann-Kendall),
and the lag-1 autocorrelation, which says how many independent samples there are. Tests between repetitions of a point:
two placements or several launches that disagree. Tests on the curve: a latency that no network has, times that fall.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from commbench.models.table import OUTPACED, Table, outpaced
from commbench.models.units_check import unit_fault
from commbench.units import format_size

DISAGREE = 1.25  # two measurements of one point that differ by more than this factor
DISAGREE_SMALL = 2.0  # the same where latency rules: small sizes are 15 to 35 % noise on a healthy fabric (Perlmutter)
SHARE = 0.2  # of the points that may do so
SHARE_OUTPACED = 0.15  # of the sizes that may take longer than a larger one; healthy curves here have up to 0.05
ABSURD_US = 100e3
P_VALUE = 0.001  # one in a thousand steady points is called unsteady: series have up to hundreds of points
FEW_SAMPLES = 8
FALLING = 8  # sizes: noise alone puts as many in order once in 40,000


@dataclass(frozen=True)
class Stability:
    """faults: why no model may be fitted (none for a steady series). warnings: what a reader of the fit should know."""

    faults: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def stable(self) -> bool:
        return not self.faults


def check_stability(table: Table) -> Stability:
    """All tests on one series, before anything is left out of it."""
    tests = [
        unit_fault(table, list(_curves(table))),
        _absurd_latency(table),
        _falls(table),
        _placements(table),
        _launches(table),
        _drift(table),
        _jagged(table),
        _outpaced(table),
    ]
    return Stability(tuple(filter(None, tests)), tuple(filter(None, [_correlation(table)])))


def _curves(table: Table):
    """Ranks, nodes and medians of each world size, these in order of size."""
    middle = table.medians()
    for ranks, nodes in sorted(set(zip(middle.ranks.tolist(), middle.nodes.tolist()))):
        yield ranks, nodes, middle.select((middle.ranks == ranks) & (middle.nodes == nodes))


def _small(table: Table) -> np.ndarray:
    """Rows in which latency rules: at most three times the typical of the shortest quarter of the same ranks."""
    place = table.ranks * (table.nodes.max() + 1) + table.nodes
    small = np.zeros(len(table), bool)
    for p in np.unique(place):
        times = np.sort(table.time_us[place == p])
        small |= (place == p) & (table.time_us <= 3 * np.median(times[: -(-len(times) // 4)]))
    return small


def _many(bad: np.ndarray) -> bool:
    return bad.sum() > max(1, SHARE * len(bad))


def _absurd_latency(table: Table) -> str:
    """A time of 100 ms that hardly grows while the size does fourfold: a timeout or a broken fabric, no latency."""
    for ranks, _, curve in _curves(table):
        first_size, first_us = curve.size_bytes[0], curve.time_us.min()
        later = curve.time_us[curve.size_bytes >= 4 * first_size]
        if first_us >= ABSURD_US and len(later) and later.min() < 1.5 * curve.time_us[0]:
            return (
                f"absurd latency: on {ranks} ranks even {format_size(int(first_size))} takes {first_us / 1e3:.0f} ms, "
                "and larger sizes hardly more; that is a timeout or a broken fabric, not the time of a message"
            )
    return ""


def _falls(table: Table) -> str:
    """The largest sizes take less time than the smallest, and not by chance; or each size less than the one before."""
    for ranks, _, curve in _curves(table):
        falling = _longest_fall(curve.time_us)
        if falling >= max(FALLING, len(curve) / 2):
            return (
                f"the time falls with size on {ranks} ranks, at {falling} sizes one after the other of {len(curve)}; "
                "look for a column of another unit, or a disturbed measurement"
            )
        third = max(1, len(curve) // 3)
        first, last = np.median(curve.time_us[:third]), np.median(curve.time_us[-third:])
        if len(curve) < 2 or first <= DISAGREE * last:
            continue
        trend = stats.kendalltau(curve.size_bytes, curve.time_us)
        if np.all(np.diff(curve.time_us) < 0) or (trend.statistic < 0 and trend.pvalue < 0.01):
            return (
                f"the time falls with size on {ranks} ranks, from {first:.4g} us at the smallest sizes to "
                f"{last:.4g} us at the largest; look for a column of another unit, or a disturbed measurement"
            )
    return ""


def _longest_fall(time_us: np.ndarray) -> int:
    """The most sizes in a row of which each is faster than the one before."""
    longest = run = 1
    for falls in np.diff(time_us) < 0:
        run = run + 1 if falls else 1
        longest = max(longest, run)
    return longest


def _outpaced(table: Table) -> str:
    """More sizes than a few that a larger one outpaces threefold, wherever they are: not to be left out unsaid."""
    for ranks, _, curve in _curves(table):
        count = int(outpaced(curve.time_us, OUTPACED).sum())
        if count > max(2, SHARE_OUTPACED * len(curve)):
            return (
                f"unstable: on {ranks} ranks {count} of {len(curve)} sizes take over {OUTPACED:.0f} times as long as a "
                "larger size; look for a column of another unit, or measure again"
            )
    return ""


def _jagged(table: Table) -> str:
    """Sizes that take over a quarter longer than a larger one, other than those at the very start of the curve.

    There small sizes may be coarse, where times come from bandwidths of two decimals; without_outpaced sees to them.
    """
    for ranks, _, curve in _curves(table):
        late = np.where(_small(curve), outpaced(curve.time_us, OUTPACED), outpaced(curve.time_us, DISAGREE))
        leading = int(np.argmin(late)) if not late.all() else len(late)
        late = late[leading:]
        if late.sum() > max(2, SHARE_OUTPACED * len(curve)):
            return (
                f"unstable: on {ranks} ranks {late.sum()} of {len(curve)} sizes take over "
                f"{100 * (DISAGREE - 1):.0f} % longer than a larger size; measure again when the fabric is quiet"
            )
    return ""


def _placements(table: Table) -> str:
    """In-place and out-of-place times of the same points, taken one after the other, must agree."""
    if table.second_us is None:
        return ""
    both = table.select(~np.isnan(table.second_us))
    if not len(both):
        return ""
    ratio = both.second_us / both.time_us
    bad = ratio > np.where(_small(both), DISAGREE_SMALL, DISAGREE)
    return _disagreement("in-place and out-of-place times", bad, ratio) if _many(bad) else ""


def _launches(table: Table) -> str:
    """Launches must agree, or be enough of them to know the typical time within a quarter.

    Per point: the typical (median) ratio of two launches, and the half width of the t-interval of the mean log time.
    """
    if table.launches < 2:
        return ""
    keys, group = np.unique(np.column_stack([table.ranks, table.nodes, table.size_bytes]), axis=0, return_inverse=True)
    small = _small(table)
    ratios, bad = [], []
    for g in range(len(keys)):
        rows = np.flatnonzero(group.ravel() == g)
        if len(rows) < 2:
            continue
        log = np.log(table.time_us[rows])
        pairs = np.abs(log[:, None] - log)[np.triu_indices(len(log), 1)]
        typical = float(np.median(pairs))
        half_width = stats.t.ppf(0.975, len(log) - 1) * log.std(ddof=1) / np.sqrt(len(log))
        allowed = np.log(DISAGREE_SMALL if small[rows].any() else DISAGREE)
        ratios.append(np.exp(typical))
        bad.append(typical > allowed and half_width > allowed)
    bad = np.array(bad, bool)
    return _disagreement(f"{table.launches} launches", bad, np.array(ratios)) if _many(bad) else ""


def _disagreement(what: str, bad: np.ndarray, ratio: np.ndarray) -> str:
    return (
        f"unstable: {what} disagree by over {100 * (DISAGREE - 1):.0f} % (small sizes: by over a factor of "
        f"{DISAGREE_SMALL:.0f}) at {bad.sum()} of {len(bad)} points, by up to a factor of {ratio.max():.1f}; measure "
        "again when the fabric is quiet"
    )


def _drift(table: Table) -> str:
    """Samples whose halves differ, or that have a trend, and by more than a quarter."""
    rows = [np.asarray(s) for s in table.samples if len(s) >= FEW_SAMPLES]
    bad = np.array([_drifts(s) for s in rows], bool)
    if not _many(bad):
        return ""
    return (
        f"not stationary: at {bad.sum()} of {len(bad)} points the first half of the samples and the second differ by "
        f"over {100 * (DISAGREE - 1):.0f} %; more warm-up is needed, or something else was running"
    )


def _drifts(samples: np.ndarray) -> bool:
    half = len(samples) // 2
    first, second = np.median(samples[:half]), np.median(samples[half:])
    if max(first, second) <= DISAGREE * min(first, second):
        return False  # significant or not, it is too little to matter
    if stats.mannwhitneyu(samples[:half], samples[half:]).pvalue < P_VALUE:
        return True
    return stats.kendalltau(np.arange(len(samples)), samples).pvalue < P_VALUE


def _correlation(table: Table) -> str:
    rows = [np.asarray(s) for s in table.samples if len(s) >= FEW_SAMPLES]
    shares = [effective_samples(s) / len(s) for s in rows]
    if not shares or np.median(shares) >= 0.5:
        return ""
    return (
        f"samples of a point are correlated: typically {100 * np.median(shares):.0f} % of them are independent, so "
        "intervals within one launch are too narrow"
    )


def effective_samples(samples) -> float:
    """How many independent samples carry as much: n (1 - r) / (1 + r), r the lag-1 autocorrelation of the ranks, >= 0.

    Ranks, so that one outlier does not decide it.
    """
    order = stats.rankdata(samples)
    order = order - order.mean()
    power = np.dot(order, order)
    r = 0.0 if power == 0 else max(0.0, float(np.dot(order[1:], order[:-1]) / power))
    return len(order) * (1 - r) / (1 + r)
