"""The answers of `commbench plan` as JSON: times in us, sizes in bytes, shares of 1."""

import json

from commbench.planning.advice import LayoutAdvice, SearchAdvice
from commbench.planning.judged import JudgedRun, Verdict
from commbench.planning.layout import describe


def advice_json(told: LayoutAdvice | SearchAdvice) -> str:
    """The same as JSON: times in us, sizes in bytes, shares of 1."""
    if isinstance(told, LayoutAdvice):
        return json.dumps(_layout_data(told), indent=1)
    data = {
        "best": _layout_data(told.best),
        "looked_at": told.search.looked_at,
        "left_out": told.search.unmeasured,
        "fit": len(told.search.candidates),
        "runners_up": [
            {
                "layout": describe(one.layout),
                "step_us": one.account.step_us,
                "times_best": [against.times, against.low, against.high],
                "distinguishable": against.distinguishable,
                "lost_us": dict(against.by),
            }
            for one, against in told.runners_up
        ],
        "best_of_tp": {
            tp: {"layout": describe(c.layout), "step_us": c.account.step_us} for tp, c in told.of_tp.items()
        },
    }
    if told.break_even:
        data["break_even"] = [
            {"ratio": ratio, "tp_below": below, "tp_above": above} for ratio, below, above in told.break_even.changes
        ]
    return json.dumps(data, indent=1)


def published_json(rows: list[JudgedRun], verdict: Verdict) -> str:
    """The published table as JSON: percent of MFU."""
    runs = [
        {
            "name": row.run.name, "gpus": row.run.job.gpus, "layout": describe(row.run.layout), "role": row.role,
            "printed": row.run.measured, "mfu_percent": row.mfu, "hfu_percent": row.hfu,
            "predicted_percent": row.predicted, "low": row.low, "high": row.high,
            "fits": row.ledger.fits, "suspicion": row.suspicion, "source": row.run.source, "note": row.run.note,
        }
        for row in rows
    ]  # fmt: skip
    held = {"rows": verdict.rows, "error_points": verdict.error, "naive_points": verdict.naive}
    constants = {kind: vars(one) for kind, one in verdict.efficiencies.items()}
    return json.dumps({"runs": runs, "held_out": held, "efficiency": constants}, indent=1)


def _layout_data(told: LayoutAdvice) -> dict:
    account = told.prediction.account
    return {
        "model": told.shape.name,
        "layout": vars(told.layout),
        "job": vars(told.job),
        "gpu": told.machine.gpu.name,
        "links": told.machine.links.source,
        "memory_bytes": {
            "items": told.ledger.items, "total": told.ledger.total, "capacity": told.ledger.capacity,
            "fits": told.ledger.fits, "first_too_much": told.ledger.first_too_much, "stage": told.ledger.stage,
        },
        "step_us": {"terms": account.terms, "total": account.step_us, "low": told.prediction.low_us,
                    "high": told.prediction.high_us},
        "moved_by_us": told.prediction.moved_by,
        "dominant": told.prediction.dominant,
        "tokens_per_s_per_gpu": account.tokens_per_s_per_gpu,
        "mfu": told.mfu,
        "hfu": told.hfu,
        "assumptions": vars(told.assume),
        "efficiency": {"value": told.machine.efficiency, "low": told.machine.efficiency_low,
                       "high": told.machine.efficiency_high, "source": told.machine.efficiency_source},
        "goodput": vars(told.goodput),
        "notes": told.notes,
    }  # fmt: skip
