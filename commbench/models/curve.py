"""The curve of one series on one world size: affine pieces over the message size, with what they rest on."""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import stdtrit

from commbench.errors import MeasureError
from commbench.models.launches import Interval, fit_launches, interval_of
from commbench.models.model import Parameter
from commbench.models.pieces import Pieces, fit_pieces, predict, repeat_noise
from commbench.models.table import Table

SIZES_LEAST = 3
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
        half = self.residual_log_95 * 2 ** self.octaves_outside(size_bytes)
        if self.launch_sd_log is not None:
            spread = stdtrit(self.launches - 1, 0.975) * self.launch_sd_log * np.sqrt(1 + 1 / self.launches)
            half = np.sqrt(half**2 + spread**2)
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
        given = data["pieces"]
        first = np.array(given["first"])
        arrays = {
            name: np.array(given[name], float) for name in ("size_bytes", "time_us", "intercept_us", "beta_us_per_byte")
        }
        sizes = arrays["size_bytes"]
        sound = (
            first.dtype.kind == "i" and len(first) == len(arrays["intercept_us"]) == len(arrays["beta_us_per_byte"])
            and len(sizes) == len(arrays["time_us"]) and first[0] == 0 and np.all(np.diff(first) > 0)
            and first[-1] < len(sizes) and np.all(np.diff(sizes) > 0) and sizes[0] > 0
            and all(np.all(np.isfinite(values)) for values in arrays.values())
        )  # fmt: skip
        tail = tuple(map(float, given["tail"]))
        noise = np.nan if given["noise"] is None else float(given["noise"])
        pieces = Pieces(first=first, tail=tail, noise=noise, remark=str(given["remark"]), **arrays)
        with np.errstate(invalid="ignore", divide="ignore"):
            if not sound or len(tail) != 2 or not np.all(predict(pieces, sizes) > 0):
                raise ValueError("a curve whose pieces are none")
        parameters = tuple(Parameter(**parameter) for parameter in data["parameters"])
        numbers = {name: None if data[name] is None else float(data[name]) for name in _NUMBERS}
        whole = {name: int(data[name]) for name in ("ranks", "nodes", "points", "launches")}
        return Curve(pieces=pieces, parameters=parameters, **numbers | whole)


_PIECES = ("size_bytes", "time_us", "first", "intercept_us", "beta_us_per_byte", "tail", "noise", "remark")
_NUMBERS = (
    "ranks", "nodes", "points", "launches", "mape", "holdout_mape", "residual_log_95", "launch_sd_log",
)  # fmt: skip


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
    return Curve(
        ranks=int(middle.ranks[0]),
        nodes=int(middle.nodes[0]),
        points=len(middle),
        launches=table.launches,
        pieces=pieces,
        parameters=_parameters(table, middle, pieces),
        mape=pieces.mape,
        holdout_mape=_held_out(middle, noise),
        residual_log_95=float(spare * np.quantile(np.abs(residual), 0.95)),
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


def _parameters(table: Table, middle: Table, pieces: Pieces) -> tuple[Parameter, ...]:
    """Latency and cost per byte with intervals over launches, or within the only one."""
    first = middle.select(slice(0, pieces.first[1] if len(pieces.first) > 1 else None))
    last = middle.select(slice(pieces.first[-1], None))
    low = 0.0 if len(pieces.first) == 1 else float(last.size_bytes[0])
    latency, slope = _interval(table, first, 0.0, 0), _interval(table, last, low, 1)
    return (
        _told("latency_us", latency, latency.estimate / first.time_us[0]),
        _told("beta_us_per_byte", slope, slope.estimate * last.size_bytes[-1] / last.time_us[-1]),
    )


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
