"""The plan page: the ledger, the account of a step, the break-even curve, and published runs beside predictions."""

from pathlib import Path

from commbench.planning.advice import LayoutAdvice, SearchAdvice
from commbench.planning.judged import JudgedRun, Verdict
from commbench.planning.layout import describe
from commbench.reports.document import render, save
from commbench.reports.plan_figures import account_figure, break_even_figure, memory_figure, published_figure
from commbench.shapes.counts import in_words, parameters


def write_plan_page(
    told: LayoutAdvice | SearchAdvice | None, rows: list[JudgedRun], verdict: Verdict, path: Path
) -> Path:
    """Write the page of an answer (None: published runs only) to the file `path` and return it.

    Raises OSError when it cannot be written there."""
    return save(plan_page(told, rows, verdict), path)


def plan_page(told: LayoutAdvice | SearchAdvice | None, rows: list[JudgedRun], verdict: Verdict) -> str:
    """The page as HTML."""
    search = told if isinstance(told, SearchAdvice) else None
    best = search.best if search else told
    curve = search.break_even if search else None
    return render(
        "plan.html",
        best=best,
        layout=describe(best.layout) if best else "",
        parameters=in_words(parameters(best.shape)) if best else "",
        search=search,
        runners_up=[(describe(one.layout), one, against) for one, against in search.runners_up] if search else [],
        curve=curve,
        memory=memory_figure(best) if best else None,
        account=account_figure(told) if told else None,
        break_even=break_even_figure(curve) if curve else None,
        rows=rows,
        verdict=verdict,
        published=published_figure(rows),
    )
