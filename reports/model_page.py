"""The report of a fit: measurements beside models, residuals, parameters, held-out points, and who is faster where."""

from collections.abc import Sequence
from pathlib import Path

from commbench.models.model_file import ModelFile, SeriesModel
from commbench.models.table import Table, without_outpaced
from commbench.reports.document import render, save
from commbench.reports.looks import algorithm_colours, colours
from commbench.reports.model_figures import fit_figure
from commbench.reports.model_heldout import ranks_figure, sizes_figure
from commbench.reports.model_maps import curves_figure, map_figure
from commbench.reports.model_reach import reach_figure
from commbench.reports.model_rivals import Rivals, chosen, crossings, fastest, rivals_of
from commbench.reports.model_tables import (
    crossovers_table,
    curves_table,
    kind,
    parameters_table,
    percent,
    pieces_table,
    regimes_table,
)
from commbench.reports.model_unseen import unseen_ranks, unseen_sizes
from commbench.reports.model_worlds import World, band_name, in_panels, worlds_of


def write_model_report(tables: Sequence[Table], models: ModelFile, path: Path) -> Path:
    """Write the page of `models`, which were fitted to `tables`, to the file `path` and return it.

    Raises OSError when it cannot be written there."""
    return save(model_page(tables, models), path)


def model_page(tables: Sequence[Table], models: ModelFile) -> str:
    """The page of `models`, which were fitted to `tables` (series without a table get no figures), as HTML."""
    by_label = {tuple(table.label.items()): table for table in tables}
    fitted, sections, unseen = [], [], []
    for series in models.series:
        table = by_label.get(tuple(series.label.items()))
        worlds = worlds_of(series, table) if table and series.kind in ("pieces", "family") else []
        if worlds:
            fitted.append((series, table, worlds))
            unseen += unseen_sizes(series, worlds)
        if series.kind != "none":
            sections.append(_section(series, table, worlds))
    rivals = rivals_of(fitted)
    return render(
        "model.html",
        models=models,
        tables=tables,
        ops=list(dict.fromkeys(table.label["op"] for table in tables)),
        sections=sections,
        faults=[series for series in models.series if series.kind == "none"],
        rivals=[_rivalry(one, _colour_of(rivals)) for one in rivals],
        unseen=sizes_figure(unseen) if unseen else None,
        launches=sorted({series.launches for series in models.series}),
        percent=percent,
    )


def _section(series: SeriesModel, table: Table | None, worlds: list[World]) -> dict:
    op = series.label["op"]
    choice = chosen(series, worlds)
    held_out = unseen_ranks(series, without_outpaced(table)) if worlds else []
    told = series.loggp or series.family
    return {
        "series": series,
        "kind": kind(series),
        "band": band_name([world.launches for world in worlds]) if worlds else "",
        "figures": [(name, fit_figure(panel)) for name, panel in in_panels(worlds)] if worlds else [],
        "curves": curves_table(op, series.curves) if series.curves else None,
        "pieces": pieces_table(op, series.curves) if series.curves else None,
        "regimes": regimes_table(series.family) if series.family else None,
        "parameters": parameters_table(told.parameters) if told else None,
        "held_out": ranks_figure(held_out) if held_out else None,
        "reach": reach_figure(series.family, worlds) if series.family else None,
        "choice": map_figure(choice, [], algorithm_colours(list(dict.fromkeys(s.who for s in choice))))
        if choice
        else None,
        "error": _mean(curve.mape for curve in series.curves),
        "error_ranks": _mean(r.holdout_mape for r in series.family.regimes) if series.family else None,
        "error_sizes": _mean(curve.holdout_mape for curve in series.curves),
    }


def _mean(errors) -> float | None:
    known = [error for error in errors if error is not None]
    return sum(known) / len(known) if known else None


def _colour_of(rivals: Sequence[Rivals]) -> dict[str, str]:
    """One colour for each algorithm, over all operations."""
    return algorithm_colours(list(dict.fromkeys(name for one in rivals for name in one.worlds if name != "library")))


def _rivalry(rivals: Rivals, colour: dict[str, str]) -> dict:
    colour = colour | {"library": colours([rivals.backend])[rivals.backend]}
    drawn = fastest(rivals)
    common = _common(rivals)
    return {
        "name": rivals.name,
        "map": map_figure(drawn, list(crossings(rivals, drawn)), colour) if drawn else None,
        "pairs": crossovers_table(rivals.found),
        "where": next(iter(common.values())).name if common else "",
        "curves": curves_figure(rivals.op, common, colour) if common else None,
    }


def _common(rivals: Rivals) -> dict[str, World]:
    """The rivals on the world size that most of them were fitted on; of several the largest."""
    places = {}
    for name, worlds in rivals.worlds.items():
        for world in worlds:
            if world.told:
                places.setdefault((world.ranks, world.nodes), {})[name] = world
    return max(places.items(), key=lambda place: (len(place[1]), place[0]), default=(None, {}))[1]
