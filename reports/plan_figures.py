"""Figures of the plan page as plain data: the ledger, the account of a step, the break-even curve, published runs."""

import math
from collections.abc import Sequence

from commbench.fabrics import load_fabric
from commbench.planning.advice import LayoutAdvice, SearchAdvice
from commbench.planning.break_even import BreakEven
from commbench.planning.judged import JudgedRun
from commbench.planning.layout import describe
from commbench.planning.ledger import ledgers
from commbench.planning.links import fabric_links
from commbench.reports.looks import text
from commbench.reports.rows import figure

# One colour a part, the same on every page; what is no useful work is grey or warm.
_MEMORY = {
    "reserved": "#9aa5b1", "weights": "#20639b", "gradients": "#3d9bd1", "optimizer": "#7a5bb5",
    "gathered layers": "#12a3a8", "activations": "#e08a1e", "layer recomputed": "#d9b44a", "logits": "#c2557f",
}  # fmt: skip
_TIME = {
    "matmul": "#2e9e6b", "memory-bound": "#8fc9a3", "recompute": "#d9b44a", "TP": "#20639b", "CP": "#3d9bd1",
    "EP": "#7a5bb5", "stage imbalance": "#b8c0c9", "PP bubble": "#8b96a3", "PP send": "#5f6c7b", "DP": "#e08a1e",
    "optimizer": "#c2557f",
}  # fmt: skip
_DEGREES = ("#2e9e6b", "#3d85c6", "#7a5bb5", "#e08a1e", "#c2557f", "#12a3a8", "#8c564b", "#5f6c7b")
_KINDS = {"fits": "circle-open", "judges": "circle", "shown": "x"}
_MARKED = ("h800-8x400g", "h100-8x400g", "b200-8x400g", "gb200-nvl72")
_BARS_MOST = 64


def memory_figure(told: LayoutAdvice) -> dict:
    """Stacked bars, one for each pipeline rank, against the card's memory."""
    every = ledgers(told.shape, told.layout, told.job, told.machine.gpu)
    every = every[:: -(-len(every) // _BARS_MOST)]
    names = [name for name in _MEMORY if any(one.items.get(name) for one in every)]
    x = [f"{one.stage}" for one in every]
    data = [
        {
            "type": "bar", "name": name, "x": x, "y": [one.items.get(name, 0) / 1e9 for one in every],
            "marker": {"color": _MEMORY[name]},
            "hovertemplate": f"{name} %{{y:.1f}} GB<extra>pipeline rank %{{x}}</extra>",
        }
        for name in names
    ]  # fmt: skip
    card = every[0].capacity / 1e9
    most = max(card, *(one.total / 1e9 for one in every))
    layout = _layout(360) | {
        "barmode": "stack",
        "xaxis": {"title": {"text": "pipeline rank"}, "type": "category"},
        "yaxis": {"title": {"text": "GB on a GPU"}, "range": [0, 1.12 * most]},
        "shapes": [_across("y", card, "#b42318")],
        "annotations": [{
            "xref": "paper", "x": 1, "y": card, "text": f"{told.machine.gpu.name}: {card:.1f} GB", "showarrow": False,
            "xanchor": "right", "yanchor": "bottom", "font": {"color": "#b42318"},
        }],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def account_figure(told: LayoutAdvice | SearchAdvice) -> dict:
    """Stacked bars of one step: the layout's, or the best's and the runners-up's, the fastest on top."""
    if isinstance(told, SearchAdvice):
        accounts = [(describe(told.best.layout), told.best.prediction.account)]
        accounts += [(describe(one.layout), one.account) for one, _ in told.runners_up]
    else:
        accounts = [(describe(told.layout), told.prediction.account)]
    accounts.reverse()
    names = [name for name in _TIME if any(one.terms.get(name, 0) > 0 for _, one in accounts)]
    y = [text(name, 90) for name, _ in accounts]
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": y,
            "x": [one.terms[name] / 1e6 for _, one in accounts],
            "marker": {"color": _TIME[name]}, "hoverinfo": "text", "textposition": "none",
            "hovertext": [f"<b>{name}</b> {one.terms[name] / 1e3:.1f} ms, {100 * one.terms[name] / one.step_us:.1f} %"
                          for _, one in accounts],
        }
        for name in names
    ]  # fmt: skip
    best = told.best if isinstance(told, SearchAdvice) else told
    low, high, middle = (
        us / 1e6 for us in (best.prediction.low_us, best.prediction.high_us, best.prediction.account.step_us)
    )
    data.append({
        "type": "scatter", "mode": "markers", "x": [middle], "y": [y[-1]], "name": "95 % interval",
        "marker": {"color": "#1f2933", "size": 1}, "showlegend": False, "hoverinfo": "skip",
        "error_x": {"type": "data", "symmetric": False, "array": [high - middle], "arrayminus": [middle - low],
                    "color": "#1f2933", "thickness": 1.5},
    })  # fmt: skip
    widest = max(len(name) for name in y)
    layout = _layout(170 + 30 * len(accounts)) | {
        "barmode": "stack",
        "xaxis": {"title": {"text": "one step, s"}, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "tickfont": {"size": 10 if widest > 40 else 12}},
    }
    return {"data": data, "layout": layout}


def break_even_figure(told: BreakEven) -> dict:
    """The best step time of each tp over the ratio of the links, over the best of all at that ratio."""
    best = [min(times[i] for times in told.step_us.values()) for i in range(len(told.ratio))]
    data = []
    for i, (tp, times) in enumerate(told.step_us.items()):
        share = [float(us / least) for us, least in zip(times, best)]
        data.append({
            "type": "scatter", "mode": "lines", "name": f"tp {tp}", "x": told.ratio.tolist(), "y": share,
            "line": {"color": _DEGREES[i % len(_DEGREES)], "width": 2}, "hoverinfo": "text",
            "hovertext": [f"<b>tp {tp}</b> at NVLink : NIC {r:.1f}: {figure(us / 1e6)} s, {s:.3f} times the best"
                          for r, us, s in zip(told.ratio, times, share)],
        })  # fmt: skip
    marks = {}
    for name in _MARKED:
        links = fabric_links(load_fabric(name))
        marks.setdefault(round(links.ratio, 1), []).append(
            "NVL72" if name == "gb200-nvl72" else name.split("-")[0].upper()
        )
    ticks = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    layout = _layout(400) | {
        "xaxis": {"title": {"text": "NVLink : NIC, measured payload one way"}, "type": "log", "tickvals": ticks,
                  "ticktext": [str(t) for t in ticks]},
        "yaxis": {"title": {"text": "step time over the best"}, "range": [0.98, 1.6]},
        "shapes": [_across("x", ratio, "#8b96a3") for ratio in marks],
        "annotations": [
            {"x": math.log10(ratio), "yref": "paper", "y": 1, "text": f"{', '.join(names)} {ratio:g}",
             "showarrow": False, "xanchor": "left", "yanchor": "top", "textangle": 90, "font": {"size": 11}}
            for ratio, names in marks.items()
        ],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def published_figure(rows: Sequence[JudgedRun]) -> dict:
    """Predicted MFU with its interval against the measured one."""
    drawn = [row for row in rows if row.predicted is not None]
    data = []
    for i, kind in enumerate(dict.fromkeys(row.run.gpu.name for row in drawn)):
        for role, symbol in _KINDS.items():
            own = [row for row in drawn if (row.run.gpu.name, row.role) == (kind, role)]
            if not own:
                continue
            colour = _DEGREES[i]
            data.append({
                "type": "scatter", "mode": "markers", "name": f"{kind}, {role}",
                "x": [row.mfu for row in own], "y": [row.predicted for row in own],
                "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"width": 2, "color": colour}},
                "error_y": {"type": "data", "symmetric": False, "color": colour, "thickness": 1,
                            "array": [row.high - row.predicted for row in own],
                            "arrayminus": [row.predicted - row.low for row in own]},
                "hoverinfo": "text",
                "hovertext": [f"<b>{text(row.run.name)}</b><br>measured {row.mfu:.1f} %, "
                              f"predicted {row.predicted:.1f} % ({row.low:.1f} – {row.high:.1f})" for row in own],
            })  # fmt: skip
    ends = [min(min(r.mfu, r.low) for r in drawn) - 2, max(max(r.mfu, r.high) for r in drawn) + 2]
    data.append({"type": "scatter", "mode": "lines", "x": ends, "y": ends, "showlegend": False, "hoverinfo": "skip",
                 "line": {"color": "#8b96a3", "width": 1, "dash": "dot"}})  # fmt: skip
    axis = {"range": ends}
    return {
        "data": data,
        "layout": _layout(460)
        | {
            "xaxis": axis | {"title": {"text": "measured MFU, %"}},
            "yaxis": axis | {"title": {"text": "predicted MFU, %"}},
        },
    }


def _layout(height: int) -> dict:
    return {
        "height": height,
        "margin": {"l": 64, "r": 20, "t": 44, "b": 56},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }


def _across(axis: str, value: float, colour: str) -> dict:
    """A line over the whole figure at a value of an axis."""
    other = "y" if axis == "x" else "x"
    return {
        "type": "line", f"{axis}0": value, f"{axis}1": value, f"{axis}ref": axis, f"{other}0": 0, f"{other}1": 1,
        f"{other}ref": "paper", "line": {"color": colour, "width": 1.5, "dash": "dot"},
    }  # fmt: skip
