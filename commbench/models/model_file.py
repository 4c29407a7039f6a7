"""Fitted models on the disk: one JSON document, plain numbers and names, read back with every value checked.

Schema history
1  first version
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from commbench import __version__
from commbench.errors import UsageError
from commbench.models.checked import count, each, named, word
from commbench.models.contest import SeriesCrossover
from commbench.models.curve import Curve
from commbench.models.loggp import LogGP
from commbench.models.model import Model, times_us

SCHEMA = 1
KINDS = ("pieces", "family", "loggp", "none")
_COUNTED = ("points", "launches", "ranks", "nodes", "left_out")
_WORDS = ("label", "name", "kind", "faults", "warnings")
_LIMIT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class SeriesModel:
    """What was fitted to one series.

    kind: "pieces" (a curve per measured world size), "family" (these, and equations over ranks), "loggp", or "none"
    where `faults` say why nothing was fitted. label, points, launches, ranks, nodes, left_out: of the measurements.
    """

    label: dict[str, str]
    name: str
    kind: str
    points: int
    launches: int
    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    left_out: dict[str, int] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()
    family: Model | None = None
    loggp: LogGP | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelFile:
    """All series of one fit, where they came from, and who is faster where among algorithms of one operation."""

    series: tuple[SeriesModel, ...]
    sources: tuple[str, ...] = ()
    crossovers: tuple[SeriesCrossover, ...] = ()
    created_at: str = ""


def save_models(models: ModelFile, path: Path) -> None:
    """Write `models` as JSON. Raises UsageError when the file cannot be written."""
    document = {
        "schema": SCHEMA,
        "kind": "commbench models",
        "made_by": f"commbench {__version__}",
        "created_at": models.created_at,
        "sources": models.sources,
        "crossovers": [asdict(crossover) for crossover in models.crossovers],
        "series": [_to_json(series) for series in models.series],
    }
    text = json.dumps(document, allow_nan=False, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose another --out") from None


def load_models(path: Path) -> ModelFile:
    """The models in a file that save_models wrote. Raises UsageError for any other file, saying what it is."""
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(f"{path} {found}; wanted is the model file that `commbench fit --out` wrote")
    if path.stat().st_size > _LIMIT_BYTES:
        raise UsageError(f"{path} has over 256 MiB, which no model file has")
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no JSON; wanted is the model file that `commbench fit --out` wrote") from None
    if not isinstance(data, dict) or data.get("kind") != "commbench models":
        raise UsageError(f"{path} holds no models; wanted is the file that `commbench fit --out` wrote")
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path} has schema {data.get('schema')!r}; this commbench reads schema {SCHEMA}: fit again")
    try:
        return ModelFile(
            series=each(_series, data["series"]),
            sources=each(word, data["sources"]),
            crossovers=each(SeriesCrossover.from_json, data["crossovers"]),
            created_at=word(data["created_at"]),
        )
    except KeyError as error:
        raise UsageError(f"{path} lacks {error.args[0]!r}; it is no model file that commbench wrote") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError, IndexError) as error:
        raise UsageError(f"{path} is no model file that commbench wrote: {error}") from None


def _no_number(text: str):
    raise ValueError(f"{text} is no JSON")


def _to_json(series: SeriesModel) -> dict:
    own = {name: getattr(series, name) for name in (*_COUNTED, *_WORDS)}
    return own | {
        "curves": [curve.to_json() for curve in series.curves],
        "family": None if series.family is None else series.family.to_json(),
        "loggp": None if series.loggp is None else asdict(series.loggp),
    }


def _series(data: dict) -> SeriesModel:
    if data["kind"] not in KINDS:
        raise ValueError(f"kind {data['kind']!r} is none of {', '.join(KINDS)}")
    series = SeriesModel(
        label=named(word, data["label"]),
        name=word(data["name"]),
        kind=data["kind"],
        points=count(data["points"], 1),
        launches=count(data["launches"], 1),
        ranks=each(count, data["ranks"], 1),
        nodes=each(count, data["nodes"], 1),
        left_out=named(count, data["left_out"]),
        curves=each(Curve.from_json, data["curves"]),
        family=None if data["family"] is None else Model.from_json(data["family"]),
        loggp=None if data["loggp"] is None else LogGP.from_json(data["loggp"]),
        faults=each(word, data["faults"]),
        warnings=each(word, data["warnings"]),
    )
    _check_whole(series)
    return series


def _check_whole(series: SeriesModel) -> None:
    """ValueError unless the series has what its kind is made of, for the operation that its label names."""
    fitted = {"pieces": series.curves, "family": series.curves and series.family, "loggp": series.loggp}
    if not series.label.get("op") or not fitted.get(series.kind, series.faults):
        raise ValueError(f"a series of kind {series.kind!r} without what that is made of")
    if series.family is not None:
        if series.family.op != series.label["op"]:
            raise ValueError(f"equations of {series.family.op!r} in a series of {series.label['op']!r}")
        _check_times(series.family)


def _check_times(model: Model) -> None:
    """ValueError unless each regime says a time above zero for what it was measured on."""
    for regime in model.regimes:
        ranks = np.array([regime.ranks[0], regime.ranks[-1]], int)
        nodes = np.ones(2, int) if regime.one_node else ranks // regime.per_node[0]
        times = times_us(model.op, regime, ranks, nodes, np.array(regime.size_bytes, float))
        if not np.all(np.isfinite(times) & (times > 0)):
            raise ValueError(f"the regime {regime.name} says no time above 0")
