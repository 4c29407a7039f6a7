"""The report of a run."""

import statistics
from pathlib import Path

from commbench.reports.definitions import FACTORS
from commbench.reports.document import render, save
from commbench.reports.dots import overview_figure, variants_figure
from commbench.reports.facts import facts
from commbench.reports.figures import line_figure
from commbench.reports.kernels import kernels_section
from commbench.reports.layers import layer_sections
from commbench.reports.links import links_section
from commbench.reports.looks import colours, names, painter
from commbench.reports.moe import moe_section
from commbench.reports.rows import Row, rows_of
from commbench.reports.schedules import schedule_sections
from commbench.reports.series import Panel, panels, same
from commbench.reports.table import slowest, table
from commbench.reports.verdict import verdict
from commbench.results.store import Run


def write_report(run: Run, path: Path) -> Path:
    """Write the page of `run` to the file `path` and return it. Raises OSError when it cannot be written there."""
    return save(page(run), path)


def page(run: Run) -> str:
    """The page of `run` as HTML."""
    rows = rows_of(run.samples())
    drawn = panels([row for row in rows if row.point.kind not in ("layer", "kernel")])
    backends = list(dict.fromkeys([*(p.backend for p in run.plan.points()), *(row.point.backend for row in rows)]))
    colour = colours(backends)
    return render(
        "page.html",
        run=run,
        verdict=verdict(run, rows),
        facts=facts(run),
        backends=[(backend, colour[backend]) for backend in backends],
        links=links_section(run),
        moe=moe_section(run),
        layers=layer_sections(run),
        kernels=kernels_section(run),
        overview=overview_figure(drawn, colour),
        sections=_sections(drawn, colour),
        schedules=schedule_sections([row.point for row in rows if row.ok]),
        undrawn=_undrawn(rows, drawn),
        launches=len({row.sample.launch for row in rows}),
        table=table(rows),
        slowest=slowest,
        factors=FACTORS,
    )


def _sections(drawn: list[Panel], colour: dict[str, str]) -> list[dict]:
    """A section for each operation, with the figures of each of its panels."""
    sections, paint = {}, painter(drawn, colour)
    for panel in drawn:
        sections.setdefault(panel.op, []).append({
            "panel": panel,
            "same": same(panel.lines or panel.variants),
            "same_of_variants": same(panel.variants),
            "lines": line_figure(panel, paint) if panel.lines else None,
            "variants": variants_figure(panel, colour) if panel.variants else None,
            "lagging": _lagging(panel),
        })  # fmt: skip
    return [{"op": op, "panels": of_op} for op, of_op in sections.items()]


def _lagging(panel: Panel) -> list[dict]:
    """Where many groups share a style: for each backend and way of measuring the slowest group at the largest size."""
    if not panel.many_groups:
        return []
    found = {}
    for series, name in zip(panel.lines, names(panel, panel.lines), strict=True):
        if series.spots:
            key = (name, series.spots[-1].size_bytes)
            found.setdefault(key, []).append((series.spots[-1].time_us, series.group))
    largest = max((size for _, size in found), default=0)
    return [
        {
            "name": name,
            "size": size,
            "groups": len(times),
            "slowest": max(times),
            "median_us": statistics.median(time_us for time_us, _ in times),
        }
        for (name, size), times in found.items()
        if size == largest and len(times) > 1
    ]


def _undrawn(rows: list[Row], drawn: list[Panel]) -> list[str]:
    """Operations that stand in the table only, since nothing of them could be drawn."""
    wanted = {row.point.op for row in rows if row.point.kind not in ("layer", "kernel")}
    return sorted(wanted - {panel.op for panel in drawn})
