"""From a table to what is kept of it: first whether it may be fitted, then a curve per world size, then the family."""

import numpy as np

from commbench.errors import CommbenchError, MeasureError
from commbench.models.curve import fit_curve
from commbench.models.equations import EQUATIONS
from commbench.models.family import fit_equation, fit_family
from commbench.models.loggp import fit_loggp, pair_series
from commbench.models.model import Model
from commbench.models.model_file import SeriesModel
from commbench.models.stability import check_stability
from commbench.models.table import Table, without_outpaced
from commbench.ops import OPS

ERROR_MOST = 0.2  # a curve that misses its own points by more describes nothing; steady ones here miss by up to 0.04


def fit_tables(tables: list[Table]) -> list[SeriesModel]:
    """Every series fitted, or with the sentences that say why not; after them LogGP of the point-to-point series."""
    steady = {}
    models = []
    for table in tables:
        model = fit_series(table)
        models.append(model)
        if model.kind != "none":
            steady[id(table)] = table
    for latency, windows in pair_series([t for t in tables if id(t) in steady]):
        models += _loggp(latency, windows)
    return models


def fit_series(table: Table) -> SeriesModel:
    """One series. kind "none" and `faults` where it is unstable or has too little to fit."""
    stability = check_stability(table)
    warnings = [*table.notes, *stability.warnings, *_unknown_op(table.label["op"])]
    if not stability.stable:
        return _model(table, "none", faults=stability.faults, warnings=tuple(warnings))
    table, unsteady = _steady_worlds(table)
    table = without_outpaced(table)
    curves, missing = _curves(table)
    missing = unsteady + missing
    if not curves:
        return _model(table, "none", faults=tuple(missing), warnings=tuple(warnings))
    warnings += missing
    family = None
    if len(set(table.ranks[table.ranks > 1].tolist())) > 1:
        try:
            family = _family(table)
            warnings += family.notes
        except CommbenchError as error:
            warnings.append(f"no equation over ranks: {error}")
    if family is None:
        worlds = ", ".join(f"{c.ranks} ranks on {c.nodes} node(s)" for c in curves)
        warnings.append(f"valid for the measured world size only: {worlds}")
    return _model(table, "family" if family else "pieces", curves=curves, family=family, warnings=tuple(warnings))


def _unknown_op(op: str) -> list[str]:
    return [] if op in OPS else [f"{op} is no operation of commbench's, so it has no bus bandwidth"]


def _steady_worlds(table: Table) -> tuple[Table, list[str]]:
    """Without the world sizes that are unstable taken for themselves, and a sentence on each of them."""
    worlds = sorted(set(zip(table.ranks.tolist(), table.nodes.tolist())))
    steady, said = np.ones(len(table), bool), []
    for ranks, nodes in worlds if len(worlds) > 1 else ():
        mine = (table.ranks == ranks) & (table.nodes == nodes)
        faults = check_stability(table.select(mine)).faults
        if faults:
            steady &= ~mine
            said.append(f"{ranks} ranks on {nodes} node(s) left out: {faults[0]}")
    return table.select(steady), said


def _curves(table: Table):
    """(a curve for each world size that has enough sizes, sentences on those that have not)."""
    curves, missing = [], []
    for ranks, nodes in sorted(set(zip(table.ranks.tolist(), table.nodes.tolist()))):
        try:
            curve = fit_curve(table.select((table.ranks == ranks) & (table.nodes == nodes)))
        except MeasureError as error:
            missing.append(str(error))
            continue
        if curve.mape > ERROR_MOST:
            missing.append(
                f"{ranks} ranks on {nodes} node(s): no curve accepted, the best one misses its own points by "
                f"{100 * curve.mape:.0f} %"
            )
        else:
            curves.append(curve)
    return tuple(curves), missing


def _family(table: Table) -> Model:
    """The model over ranks: the equation of the algorithm where one was forced, or the library's choice; where both
    can be fitted, the one with the smaller error on held-out rank counts."""
    op, algorithm = table.label["op"], table.label.get("algorithm", "library")
    plain = algorithm.removeprefix("own:").lower().replace("-", "_")
    protocol = {p.lower(): p for p in ("LL", "LL128", "Simple")}.get(table.label.get("protocol", "").lower(), "")
    if plain not in EQUATIONS.get(op, {}):
        return fit_family(table)
    found = [fit_equation(table, op, plain, protocol)]
    try:
        found.append(fit_family(table))
    except CommbenchError:
        pass  # the equation stands alone
    return min(found, key=_error)


def _error(model: Model) -> float:
    """The mean error on rank counts that were held out, or in the fit where none could be."""
    unseen = [r.holdout_mape for r in model.regimes if r.holdout_mape is not None]
    return float(np.mean(unseen or [r.mape for r in model.regimes]))


def _loggp(latency: Table | None, windows: list[Table]) -> list[SeriesModel]:
    tables = [t for t in (latency, *windows) if t is not None]
    label = {key: value for key, value in tables[0].label.items() if key != "window"} | {"op": "LogGP"}
    models = []
    for found in fit_loggp(latency, windows):
        own = label | {"pair": "within a node" if found.nodes == 1 else "between nodes"}
        models.append(
            SeriesModel(
                label=own,
                name=", ".join(v for k, v in own.items() if v not in ("default", "none", "all", "-1", "no", "max")),
                kind="loggp",
                points=found.points,
                launches=max(t.launches for t in tables),
                ranks=(2,),
                nodes=(found.nodes,),
                loggp=found,
            )
        )
    return models


def _model(table: Table, kind: str, **fitted) -> SeriesModel:
    return SeriesModel(
        label=table.label,
        name=table.name,
        kind=kind,
        points=table.points,
        launches=table.launches,
        ranks=tuple(sorted(set(table.ranks.tolist()))),
        nodes=tuple(sorted(set(table.nodes.tolist()))),
        left_out=table.left_out,
        **fitted,
    )
