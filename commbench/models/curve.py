"""The curve of one series on one world size: affine pieces over the message size, with what they rest on."""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import stdtrit

from commbench.errors import MeasureError
from commbench.models.checked import LARGEST, count, each, maybe, number, word
from commbench.models.launches import Interval, fit_launches, interval_of
from commbench.models.model import Parameter
from commbench.models.pieces import Pieces, fit_pieces, predict, repeat_noise
from commbench.models.prediction import HALF_MOST
from commbench.models.table import Table

SIZES_LEAST = 3
SPAN_MOST = 4.0  # a cost per byte that may be as much more or less is not determined
HELD_OUT = 3  # the largest sizes, left out once to see how far the curve carries


@dataclass(frozen=True)
class Curve:
    """Time on `ranks` ranks and `nodes` nodes, from `points` sizes in `launches` launches.

    pieces: the affine pieces and the medians they were fitted to. parameters: latency_us (the first piece at size zero)
    and beta_us_per_byte (the last piece), with intervals. mape: mean error in the sample; holdout_mape: at the largest
    three sizes by a fit to the others, None where too few are left. residual_log_95, launch_sd_log: the 95th percentile
    of |log(measured / curve)|, and the standard deviation of log(time) between launches.
    """

    ranks: int
    nodes: int
    points: int
    launches: int
    pieces: Pieces
    parameters: tuple[Parameter, ...]
    mape: float
    holdout_mape: float | None
    residual_log_95: float
    launch_sd_log: float | None

    @property
    def size_bytes(self) -> tuple[float, float]:
        return float(self.pieces.size_bytes[0]), float(self.pieces.size_bytes[-1])

    def time_us(self, size_bytes) -> np.ndarray:
        """Microseconds for sizes in bytes."""
        return predict(self.pieces, size_bytes)

    def interval_us(self, size_bytes) -> tuple[np.ndarray, np.ndarray]:
        """The 95 % interval of one more measurement: its launch, and the curve's own error, which doubles with each
        octave outside the measured sizes."""
        half = self.residual_log_95 * 2 ** np.minimum(self.octaves_outside(size_bytes), 60)
        if self.launch_sd_log is not None:
            spread = stdtrit(self.launches - 1, 0.975) * self.launch_sd_log * np.sqrt(1 + 1 / self.launches)
            half = np.sqrt(half**2 + spread**2)
        half = np.minimum(half, HALF_MOST)
        time_us = self.time_us(size_bytes)
        return time_us * np.exp(-half), time_us * np.exp(half)

    def octaves_outside(self, size_bytes) -> np.ndarray:
        """How many doublings a size lies outside the measured ones."""
        size_bytes = np.asarray(size_bytes, float)
        low, high = self.size_bytes
        return np.maximum(np.maximum(np.log2(low / size_bytes), np.log2(size_bytes / high)), 0)

    def to_json(self) -> dict:
        pieces = {name: getattr(self.pieces, name) for name in _PIECES}
        pieces = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in pieces.items()}
        if not np.isfinite(self.pieces.noise):
            pieces["noise"] = None
        own = {name: getattr(self, name) for name in _NUMBERS}
        return own | {"pieces": pieces, "parameters": [asdict(p) for p in self.parameters]}

    @staticmethod
    def from_json(data: dict) -> "Curve":
        """Of to_json's dictionary; KeyError, TypeError or ValueError for another one."""
        parameters = each(Parameter.from_json, data["parameters"])
        if tuple(p.name for p in parameters) != PARAMETERS:
            raise ValueError(f"a curve has the parameters {' and '.join(PARAMETERS)}")
        numbers = {name: number(data[name]) for name in ("mape", "residual_log_95")}
        numbers |= {name: maybe(data[name]) for name in ("holdout_mape", "launch_sd_log")}
        whole = {name: count(data[name], 1) for name in ("ranks", "nodes", "points", "launches")}
        if whole["nodes"] > whole["ranks"] or (whole["launches"] == 1 and numbers["launch_sd_log"] is not None):
            raise ValueError("a curve whose ranks, nodes or launches cannot be")
        return Curve(pieces=_pieces(data["pieces"]), parameters=parameters, **numbers | whole)


_PIECES = ("size_bytes", "time_us", "first", "intercept_us", "beta_us_per_byte", "tail", "noise", "remark")
PARAMETERS = ("latency_us", "beta_us_per_byte")
_NUMBERS = (
    "ranks", "nodes", "points", "launches", "mape", "holdout_mape", "residual_log_95", "launch_sd_log",
)  # fmt: skip


def _pieces(given: dict) -> Pieces:
    """Of the dictionary in to_json's; ValueError where its lines belong to no points, or tell a time that is none."""
    first = np.array(each(count, given["first"]), int)
    arrays = {name: np.array(each(number, given[name])) for name in ("size_bytes", "time_us", "beta_us_per_byte")}
    arrays["intercept_us"] = np.array(each(number, given["intercept_us"], -LARGEST))
    sizes, lines = arrays["size_bytes"], len(arrays["intercept_us"])
    intercept_us, slope = number(given["tail"][0], -LARGEST), number(given["tail"][1])
    sound = (
        len(first) == lines == len(arrays["beta_us_per_byte"]) and len(sizes) == len(arrays["time_us"]) and lines > 0
        and first[0] == 0 and np.all(np.diff(first) > 0) and first[-1] < len(sizes) and np.all(np.diff(sizes) > 0)
        and sizes[0] >= 1 and np.all(arrays["time_us"] > 0) and arrays["intercept_us"][0] >= 0
        and len(given["tail"]) == 2 and intercept_us + slope * sizes[-1] > 0
    )  # fmt: skip
    noise = np.nan if given["noise"] is None else number(given["noise"])
    pieces = Pieces(first=first, tail=(intercept_us, slope), noise=noise, remark=word(given["remark"]), **arrays)
    with np.errstate(invalid="ignore", divide="ignore"):
        if not sound or not np.all(predict(pieces, sizes) > 0):
            raise ValueError("a curve whose pieces are none")
    return pieces


def fit_curve(table: Table) -> Curve:
    """The curve of a table with one value of ranks and of nodes. Raises MeasureError below three sizes."""
    middle = table.medians()
    where = f"{middle.ranks[0]} ranks on {middle.nodes[0]} node(s)"
    if len(middle) < SIZES_LEAST:
        raise MeasureError(
            f"{where}: {len(middle)} size(s) measured, which any line fits; measure {SIZES_LEAST} or more (4 for each "
            "piece of a curve with breaks)"
        )
    noise = None if middle.second_us is None else repeat_noise(middle.time_us, middle.second_us)
    pieces = fit_pieces(middle.size_bytes, middle.time_us, noise)
    residual = np.log(middle.time_us / predict(pieces, middle.size_bytes))
    free = 2 * len(pieces.first)
    spare = np.sqrt(len(middle) / max(1, len(middle) - free))  # residuals are smaller than errors by what was fitted
    off = float(spare * np.quantile(np.abs(residual), 0.95))
    return Curve(
        ranks=int(middle.ranks[0]),
        nodes=int(middle.nodes[0]),
        points=len(middle),
        launches=table.launches,
        pieces=pieces,
        parameters=_parameters(table, middle, pieces, off),
        mape=pieces.mape,
        holdout_mape=_held_out(middle, noise),
        residual_log_95=off,
        launch_sd_log=_launch_sd_log(table),
    )


def _held_out(middle: Table, noise) -> float | None:
    if len(middle) < HELD_OUT + SIZES_LEAST + 1:
        return None
    seen, unseen = middle.select(slice(None, -HELD_OUT)), middle.select(slice(-HELD_OUT, None))
    pieces = fit_pieces(seen.size_bytes, seen.time_us, noise)
    return float(np.mean(np.abs(predict(pieces, unseen.size_bytes) / unseen.time_us - 1)))


def _launch_sd_log(table: Table) -> float | None:
    """The standard deviation of log(time) between launches of a point, pooled over points."""
    if table.launches < 2:
        return None
    _, group = np.unique(table.size_bytes, return_inverse=True)
    count = np.bincount(group)
    log = np.log(table.time_us)
    apart = log - (np.bincount(group, log) / count)[group]
    free = int(np.sum(count - 1))
    return float(np.sqrt(np.sum(apart**2) / free)) if free else None


def _parameters(table: Table, middle: Table, pieces: Pieces, off: float) -> tuple[Parameter, ...]:
    """Latency and cost per byte with intervals over launches, or within the only one. `off`: what most points are off
    their curve, which a growth with the size must exceed to be seen."""
    first = middle.select(slice(0, pieces.first[1] if len(pieces.first) > 1 else None))
    last = middle.select(slice(pieces.first[-1], None))
    low = 0.0 if len(pieces.first) == 1 else float(last.size_bytes[0])
    latency, slope = _interval(table, first, 0.0, 0), _interval(table, last, low, 1)
    told = (
        _told("latency_us", latency, latency.estimate / first.time_us[0]),
        _told("beta_us_per_byte", slope, slope.estimate * last.size_bytes[-1] / last.time_us[-1]),
    )
    unsure = _unsure(slope, slope.estimate * (last.size_bytes[-1] - low) / last.time_us[-1], off)
    if told[1].value is not None and unsure:
        told = told[0], Parameter("beta_us_per_byte", None, note=f"not determined: {unsure}")
    return told


def _unsure(slope: Interval, growth: float, off: float) -> str:
    """Why a slope is no figure of the machine ("" where it is one): times that scatter have a slope by chance."""
    if slope.low is None:
        return "these sizes allow no interval"
    if not 0 < slope.high <= SPAN_MOST * slope.low:
        return f"its interval, {slope.low:.3g} to {slope.high:.3g}, spans more than a factor of {SPAN_MOST:.0f}"
    if growth < off:
        return f"the time grows by {100 * growth:.0f} % with the size, and points are {100 * off:.0f} % off their curve"
    return ""


def _told(name: str, found: Interval, share: float) -> Parameter:
    if found.estimate <= 0:
        return Parameter(name, None, note="not determined: zero fits best, so it is below what these sizes show")
    if share < 0.05:
        return Parameter(name, None, note=f"not determined: at most {100 * share:.0f} % of the time at any size")
    return Parameter(name, found.estimate, found.low, found.high, found.label)


def _interval(table: Table, rows: Table, low: float, column: int) -> Interval:
    """The line through the sizes of `rows` in each launch: its height at size `low` (column 0) or its slope (1)."""
    own = table.select(np.isin(table.size_bytes, rows.size_bytes))
    terms = np.column_stack([np.ones(len(own)), own.size_bytes - low])
    return interval_of(fit_launches(terms, own.time_us, own.launch), lambda values: values[column])
