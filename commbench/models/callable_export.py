"""A fitted series as one Python file that needs nothing but the standard library: time_us(ranks, nodes, size_bytes).

The equations stand in it as they stand in equations.py, over single numbers; every value and every text is written with
repr, so nothing that a file or a host name brought along is ever code.
"""

import inspect

from commbench import __version__
from commbench.errors import MeasureError
from commbench.models import equations
from commbench.models.model import Model
from commbench.models.model_file import SeriesModel
from commbench.models.pieces import Pieces
from commbench.models.priors import NCCL_TREE_CORRECTION

_HEAD = '''"""Microseconds of one operation, as commbench fitted them to what SERIES and POINTS say."""

import math

MADE_BY = {made_by!r}
SERIES = {series!r}
POINTS = {points!r}
OP = {op!r}

# (ranks, nodes): pieces over the size, (from bytes, to bytes, us at size 0, us per byte), and the line beyond them
CURVES = {curves}

'''
_NO_EQUATIONS = '''
def time_us(ranks, nodes, size_bytes):
    """The time on a measured world size; ValueError for any other one, about which these measurements say nothing."""
    if not size_bytes > 0:
        raise ValueError("size_bytes is above 0")
    pieces = CURVES.get((ranks, nodes))
    if pieces is None:
        raise ValueError(f"measured were (ranks, nodes) {sorted(CURVES)}, not {(ranks, nodes)}")
    return _on_curve(pieces, size_bytes)
'''
_ON_CURVE = """
def _on_curve(curve, size_bytes):
    pieces, (alpha, beta) = curve
    if size_bytes > pieces[-1][1]:
        return alpha + beta * size_bytes
    for number, (_, to, alpha, beta) in enumerate(pieces):
        if size_bytes <= to:
            return alpha + beta * size_bytes
        begin, _, next_alpha, next_beta = pieces[number + 1]
        if size_bytes < begin:
            low, high = math.log(alpha + beta * to), math.log(next_alpha + next_beta * begin)
            return math.exp(low + (high - low) * math.log(size_bytes / to) / math.log(begin / to))

"""
_SHIM = '''
class Number(float):
    """A single number with what the equations below ask of an array."""

    shape = ()

    def max(self):
        return self


class np:
    """What the equations below take from numpy, for single numbers."""

    minimum, maximum = min, max

    @staticmethod
    def log2(x):
        return Number(math.log2(x))

    @staticmethod
    def floor(x):
        return Number(math.floor(x))

    @staticmethod
    def ceil(x):
        return Number(math.ceil(x))

    @staticmethod
    def where(condition, yes, no):
        return Number(yes if condition else no)

    @staticmethod
    def full(shape, value):
        return Number(value)

    @staticmethod
    def zeros(shape):
        return Number(0)


'''
_TIMES = '''
def _columns(piece, regime, ranks, nodes, size_bytes):
    named = EQUATIONS[piece["algorithm"]](OP, Number(ranks), Number(nodes), Number(size_bytes))
    if piece["algorithm"] == "tree" and regime["tree_correction"]:
        slot = math.floor(math.log2(max(size_bytes, 1) / FIRST_CORRECTED_BYTES))
        if 0 <= slot < len(regime["tree_correction"]):
            named["beta_us_per_byte"] = named["beta_us_per_byte"] / regime["tree_correction"][slot]
    told = []
    for name in piece["names"]:
        plain, _, g = name.partition("[g=")
        if plain == "latency_us":
            told.append(1.0)
        elif g and ranks // nodes != int(g[:-1]):
            told.append(0.0)
        else:
            told.append(named["alpha_inter_us" if plain == "alpha_node_us" else plain])
    return told


def _piece_time(piece, regime, ranks, nodes, size_bytes):
    parts = {"sum": 0.0, "intra": 0.0, "inter": 0.0}
    for kind, column, value in zip(piece["phases"], _columns(piece, regime, ranks, nodes, size_bytes), piece["values"]):
        parts[kind] += column * value
    intra, inter = parts["intra"], parts["inter"]
    return parts["sum"] + max(intra, inter) + (1 - regime["overlap"]) * min(intra, inter)


def _regime_time(regime, ranks, nodes, size_bytes):
    pieces = regime["pieces"]
    if regime["choice"] == "minimum":
        return min(_piece_time(piece, regime, ranks, nodes, size_bytes) for piece in pieces)
    split, chosen = regime["split_bytes_per_rank"], pieces[0]
    for piece in pieces:
        below = split is not None and size_bytes / ranks < split
        mine = split is None or below == (piece["algorithm"] == pieces[0]["algorithm"])
        if mine and size_bytes / (ranks if piece["shared"] else 1) >= piece["from_step_bytes"]:
            chosen = piece
    return _piece_time(chosen, regime, ranks, nodes, size_bytes)


def time_us(ranks, nodes, size_bytes):
    """The time on a measured world size by its own curve, on any other one by the fitted equations.

    ValueError where nothing was measured that says anything about it.
    """
    if not size_bytes > 0:
        raise ValueError("size_bytes is above 0")
    if (ranks, nodes) in CURVES:
        return _on_curve(CURVES[ranks, nodes], size_bytes)
    if not 1 <= nodes <= ranks or ranks < 2 or ranks % nodes:
        raise ValueError("ranks are 2 or more, and lie evenly on the nodes")
    for regime in REGIMES:
        if regime["one_node"] == (nodes == 1) and (nodes == 1 or ranks // nodes in regime["per_node"]):
            if regime["only_measured_ranks"] and ranks not in regime["ranks"]:
                break
            return _regime_time(regime, ranks, nodes, size_bytes)
    raise ValueError(f"nothing was measured that says anything about {ranks} ranks on {nodes} nodes")
'''


def python_callable(series: SeriesModel) -> str:
    """The text of the file. Raises MeasureError for a series without a fitted time."""
    if not series.curves and series.family is None:
        raise MeasureError(f"{series.name} has no fitted time to write; {'; '.join(series.faults) or series.kind}")
    head = _HEAD.format(
        made_by=f"commbench {__version__}",
        series=series.name,
        points=f"{series.points} points, {series.launches} launches, ranks {', '.join(map(str, series.ranks))}",
        op=series.label["op"],
        curves=_literal({(c.ranks, c.nodes): _lines(c.pieces) for c in series.curves}),
    )
    if series.family is None:
        return head + _ON_CURVE + _NO_EQUATIONS
    return head + _ON_CURVE + _SHIM + _equations(series.family) + _TIMES


def _literal(mapping: dict) -> str:
    lines = [f"    {key!r}: {value!r}," for key, value in mapping.items()]
    return "\n".join(["{", *lines, "}"])


def _lines(pieces: Pieces) -> tuple:
    """(first size, last size, intercept, slope) of each piece, and the line beyond the last."""
    last = [*pieces.first[1:], len(pieces.size_bytes)]
    lines = [
        tuple(map(float, (pieces.size_bytes[i], pieces.size_bytes[j - 1], alpha, beta)))
        for i, j, alpha, beta in zip(pieces.first, last, pieces.intercept_us, pieces.beta_us_per_byte)
    ]
    return lines, tuple(map(float, pieces.tail))


def _equations(model: Model) -> str:
    """The equations that the model uses, from their own source, and its regimes."""
    algorithms = sorted({piece.algorithm for regime in model.regimes for piece in regime.pieces})
    functions = {name: equations.EQUATIONS[model.op][name] for name in algorithms}
    needed: dict[str, str] = {}
    for function in functions.values():
        _gather(function, needed)
    table = ", ".join(f"{name!r}: {function.__name__}" for name, function in functions.items())
    return "\n\n".join(
        [
            *needed.values(),
            f"EQUATIONS = {{{table}}}",
            f"FIRST_CORRECTED_BYTES = {NCCL_TREE_CORRECTION['first_size_bytes']!r}",
            f"REGIMES = {_regimes(model)!r}\n\n",
        ]
    )


def _gather(function, needed: dict[str, str]) -> None:
    """Add the source of a function of equations.py to `needed`, after that of everything there it uses."""
    for name in function.__code__.co_names:
        used = vars(equations).get(name)
        if inspect.isfunction(used):
            _gather(used, needed)
        elif name not in needed and name != "np" and used is not None:
            needed[name] = f"{name} = {used!r}"
    needed[function.__name__] = inspect.getsource(function)


def _regimes(model: Model) -> list[dict]:
    return [
        {
            "one_node": regime.one_node,
            "per_node": regime.per_node,
            "ranks": regime.ranks,
            "only_measured_ranks": any("latency_us" in piece.names for piece in regime.pieces),
            "choice": regime.choice,
            "split_bytes_per_rank": regime.split_bytes_per_rank,
            "overlap": regime.overlap,
            "tree_correction": NCCL_TREE_CORRECTION.get(regime.protocol, ()),
            "pieces": [
                {
                    "algorithm": piece.algorithm,
                    "names": piece.names,
                    "values": piece.values,
                    "from_step_bytes": piece.from_step_bytes,
                    "phases": equations.phases(model.op, piece.algorithm, piece.names)
                    if regime.choice == "overlap"
                    else ("sum",) * len(piece.names),
                    "shared": float(equations.step_bytes(model.op, piece.algorithm, 2, 1.0)) == 0.5,
                }
                for piece in regime.pieces
            ],
        }
        for regime in model.regimes
    ]
