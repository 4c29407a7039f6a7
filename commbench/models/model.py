"""A fitted model as plain data, and the time it says.

A Model is one operation of one library on one machine. Its regimes are fitted apart: all ranks in one node, and several
nodes with g ranks each, since links, channels and the library's switches differ between them. A regime is made of
pieces: an algorithm with its parameters over a range of step sizes.
"""

from dataclasses import asdict, dataclass, field

import numpy as np

from commbench.models import equations
from commbench.models.checked import LARGEST, count, each, maybe, named, number, word
from commbench.models.identify import columns_of

CHOICES = ("switch", "minimum", "overlap")


@dataclass(frozen=True)
class Parameter:
    """One parameter as it is told: `value` with its 95 % interval, or None where it is not determined, and why.

    `where`: "one node" or "several nodes", between which bases and links differ."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    where: str = ""

    @staticmethod
    def from_json(data: dict) -> "Parameter":
        """Of asdict's dictionary; KeyError, TypeError or ValueError for another one. Intervals may reach below zero."""
        numbers = {name: maybe(data[name], -LARGEST) for name in ("value", "low", "high")}
        return Parameter(word(data["name"]), **numbers, note=word(data["note"]), where=word(data["where"]))


@dataclass(frozen=True)
class Piece:
    """An algorithm between two step sizes: time = columns of `names` times `values`.

    Step sizes are bytes of one message (equations.step_bytes); [from, to) with 0 and None at the ends."""

    algorithm: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    from_step_bytes: float = 0.0
    to_step_bytes: float | None = None


@dataclass(frozen=True)
class Regime:
    """A part of the measurements with its own fit.

    choice   "switch": the library's choice by step size, and between two algorithms by bytes per rank (the first below
             `split_bytes_per_rank`, the second from there on); "minimum": the fastest piece; "overlap": the two phases
             of one algorithm, of which the share `overlap` runs at the same time
    chosen_by  how this form was found best; `holdout_mape` is its error on rank counts that it had not seen
    residual_log_95, holdout_log_95  per piece, what 95 % of |log(measured / model)| stay below, in the fit and held
             out; the latter at up to `holdout_factor` times the ranks of its training
    replicates  the values of all pieces with one rank count (or size) left out each time
    """

    per_node: tuple[int, ...]
    one_node: bool
    choice: str
    pieces: tuple[Piece, ...]
    split_bytes_per_rank: float | None = None
    overlap: float = 0.0
    protocol: str = ""
    ranks: tuple[int, ...] = ()
    size_bytes: tuple[float, float] = (0.0, 0.0)
    points: int = 0
    launches: int = 1
    chosen_by: str = ""
    mape: float = 0.0
    residual_log_95: tuple[float, ...] = ()
    holdout_mape: float | None = None
    holdout_log_95: tuple[float, ...] = ()
    holdout_factor: float = 1.0
    launch_sd_log: float | None = None
    replicate_of: str = ""
    replicates: tuple[tuple[float, ...], ...] = ()

    @property
    def name(self) -> str:
        if self.one_node:
            return f"one node, {self.ranks[0]} ranks" if len(self.ranks) == 1 else "one node"
        return " or ".join(map(str, self.per_node)) + " ranks per node"


@dataclass(frozen=True)
class Model:
    """op, the label of the series, its regimes, and the machine's parameters as far as the measurements tell them."""

    op: str
    label: dict = field(default_factory=dict)
    regimes: tuple[Regime, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_json(data: dict) -> "Model":
        """The model of to_json's dictionary. KeyError, TypeError or ValueError for one that is none."""
        op, regimes = word(data["op"]), each(_regime, data["regimes"])
        if not regimes:
            raise ValueError("equations without a regime")
        for regime in regimes:
            _check(op, regime)
        parameters = each(Parameter.from_json, data["parameters"])
        return Model(op, named(word, data["label"]), regimes, parameters, each(word, data["notes"]))


def _regime(data: dict) -> Regime:
    """A regime from a file, each value checked by itself."""
    if data["choice"] not in CHOICES or type(data["one_node"]) is not bool:
        raise ValueError("a regime that is none")
    low, high = each(number, data["size_bytes"], 1)
    return Regime(
        per_node=each(count, data["per_node"], 1),
        one_node=data["one_node"],
        choice=data["choice"],
        pieces=each(_piece, data["pieces"]),
        split_bytes_per_rank=maybe(data["split_bytes_per_rank"]),
        overlap=number(data["overlap"], 0, 1),
        protocol=word(data["protocol"]),
        ranks=each(count, data["ranks"], 2),
        size_bytes=(low, high),
        points=count(data["points"], 1),
        launches=count(data["launches"], 1),
        chosen_by=word(data["chosen_by"]),
        mape=number(data["mape"]),
        residual_log_95=each(number, data["residual_log_95"]),
        holdout_mape=maybe(data["holdout_mape"]),
        holdout_log_95=each(number, data["holdout_log_95"]),
        holdout_factor=number(data["holdout_factor"], 1.001 if data["holdout_log_95"] else 1),
        launch_sd_log=maybe(data["launch_sd_log"]),
        replicate_of=word(data["replicate_of"]),
        replicates=each(_replicate, data["replicates"]),
    )


def _piece(data: dict) -> Piece:
    names, values = each(word, data["names"]), each(number, data["values"])
    ends = number(data["from_step_bytes"]), maybe(data["to_step_bytes"])
    return Piece(word(data["algorithm"]), names, values, *ends)


def _replicate(values) -> tuple[float, ...]:
    return each(number, values)


def _check(op: str, regime: Regime) -> None:
    """ValueError for a regime from a file whose numbers do not belong together or tell no time."""
    per_piece = (regime.residual_log_95, *([regime.holdout_log_95] if regime.holdout_log_95 else []))
    if list(regime.ranks) != sorted(set(regime.ranks)) or not regime.size_bytes[0] <= regime.size_bytes[1]:
        raise ValueError("ranks and sizes of a regime ascend")
    if not regime.one_node and not (regime.per_node and max(regime.per_node) <= regime.ranks[0]):
        raise ValueError("a regime of several nodes has ranks on each of them")
    if any(len(piece.names) != len(piece.values) for piece in regime.pieces) or not regime.pieces:
        raise ValueError("a piece needs one value per name")
    if any(len(bounds) != len(regime.pieces) for bounds in per_piece):
        raise ValueError("a regime needs one error bound per piece")
    if any(len(replicate) != len(values_of(regime)) for replicate in regime.replicates):
        raise ValueError("a replicate needs one value per parameter")
    ranks = np.array(regime.ranks)
    nodes = np.ones(len(ranks), int) if regime.one_node else ranks // regime.per_node[0]
    for size_bytes in regime.size_bytes:
        told = times_us(op, regime, ranks, nodes, np.full(len(ranks), size_bytes))
        if not (len(told) and np.all(np.isfinite(told)) and np.all(told > 0)):
            raise ValueError("a regime tells no times above 0")


def values_of(regime: Regime) -> np.ndarray:
    """All values of all pieces in one row, as the replicates have them."""
    return np.concatenate([piece.values for piece in regime.pieces])


def piece_of(op: str, regime: Regime, ranks, nodes, size_bytes, values=None) -> np.ndarray:
    """Which piece tells the time of each point (its number)."""
    if regime.choice == "minimum":
        return np.argmin(_each(op, regime, ranks, nodes, size_bytes, values), axis=0)
    ranks, size_bytes = np.asarray(ranks, float), np.asarray(size_bytes, float)
    first = regime.pieces[0].algorithm
    below = np.zeros(ranks.shape, bool)
    if regime.split_bytes_per_rank is not None:
        below = size_bytes / ranks < regime.split_bytes_per_rank
    found = np.zeros(ranks.shape, int)
    for i, piece in enumerate(regime.pieces):
        mine = below == (piece.algorithm == first) if regime.split_bytes_per_rank is not None else True
        found[mine & (equations.step_bytes(op, piece.algorithm, ranks, size_bytes) >= piece.from_step_bytes)] = i
    return found


def times_us(op: str, regime: Regime, ranks, nodes, size_bytes, values=None) -> np.ndarray:
    """The time that a regime says for points of its own kind; `values` stand in for those of the fit."""
    each = _each(op, regime, ranks, nodes, size_bytes, values)
    return np.take_along_axis(each, piece_of(op, regime, ranks, nodes, size_bytes, values)[None], axis=0)[0]


def _each(op, regime, ranks, nodes, size_bytes, values):
    """The time of every piece at every point: (pieces, points)."""
    values = values_of(regime) if values is None else np.asarray(values)
    told, start = [], 0
    for piece in regime.pieces:
        mine = values[start : start + len(piece.names)]
        start += len(piece.names)
        told.append(columns_for(op, regime, piece, mine, ranks, nodes, size_bytes) @ mine)
    return np.array(told)


def columns_for(op: str, regime: Regime, piece: Piece, values, ranks, nodes, size_bytes) -> np.ndarray:
    """The columns whose product with a piece's values is its time.

    Of two overlapping phases the shorter counts only with the share that does not overlap:
    sum + max(intra, inter) + (1 - overlap) min(intra, inter).
    """
    columns = columns_of(op, piece.algorithm, piece.names, ranks, nodes, size_bytes, regime.protocol)
    if regime.choice != "overlap":
        return columns
    kinds = np.array(equations.phases(op, piece.algorithm, piece.names))
    intra, inter = (columns[:, kinds == kind] @ np.asarray(values)[kinds == kind] for kind in ("intra", "inter"))
    shorter = ((intra < inter)[:, None] & (kinds == "intra")) | ((intra >= inter)[:, None] & (kinds == "inter"))
    return np.where(shorter, (1 - regime.overlap) * columns, columns)
