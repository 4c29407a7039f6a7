"""The page of `commbench simulate --pipeline`: each schedule drawn, under a table of their bubbles."""

from pathlib import Path

from commbench.reports.document import render, save
from commbench.reports.gantt import simulated_figure


def write_gantt_page(rows: list[dict], timelines: list, costs: str, path: Path) -> Path:
    """Write the page to the file `path` and return it. rows: of cli/simulate_pipeline.py, one for each of `timelines`;
    `costs`: in words. Raises OSError when it cannot be written there."""
    figures = [simulated_figure(timeline, "in the unit of F, B and W") for timeline in timelines]
    return save(render("gantt.html", drawn=list(zip(rows, figures, strict=True)), rows=rows, costs=costs), path)
