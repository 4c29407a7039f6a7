"""The links of a run: ratios beside the datasheet's, the matrix of pairs, rails as strips."""

import statistics

import numpy as np

from commbench.lab.told import lab_of, set_ratio
from commbench.models.ratio import datasheet, gpus_of, ratios
from commbench.reports.matrix import CLASSES, SLOW, Matrix, matrices, slow_links, slow_ranks
from commbench.reports.rows import figure
from commbench.results.metrics import busbw_GBps
from commbench.results.records import Sample
from commbench.results.store import Run
from commbench.units import rank_spans

_NAMED = 8
_SCALE = [[0, "#b42318"], [0.35, "#e08a1e"], [0.7, "#f5e9c8"], [0.8333, "#dbe9f6"], [1, "#1d4e89"]]
_TOP = 1.2  # end of the colour scale: 1, the best tenth, is at 0.8333 of it


def links_section(run: Run) -> dict | None:
    """What the page shows of links: `cards`, `classes`, `matrices`, `rails`; None where the run measured none of it."""
    samples, headers = run.samples(), [launch.header for launch in run.launches]
    sheet, of_lab = datasheet(gpus_of(run)), set_ratio(lab_of(run))
    cards = [{"ratio": ratio, "sheet": sheet, "of_lab": of_lab} for ratio in ratios(samples)]
    drawn = [{"matrix": m, "figure": matrix_figure(m), "caption": _caption(m)} for m in matrices(samples)]
    rails = rails_figures(samples)
    classes = _classes(headers)
    return {"cards": cards, "classes": classes, "matrices": drawn, "rails": rails} if cards or drawn or rails else None


def _classes(headers: list[dict]) -> list[str]:
    """What the links of a GPU run are made of, as its headers tell: "within a node: NVLink 4 x 18"."""
    told = [header.get("link_classes") for header in headers]
    known = [(name, of[name]) for of in told if isinstance(of, dict) for name in CLASSES if of.get(name)]
    return list(dict.fromkeys(f"{CLASSES[name]}: {text}" for name, text in known))


def _caption(matrix: Matrix) -> str:
    told = [
        f"{CLASSES[name]}: median {figure(median)}, best tenth {figure(best)} GB/s"
        for name, (median, best) in matrix.reached.items()
    ]
    ranks = slow_ranks(matrix)
    for name in CLASSES:
        named = [rank for rank, of in ranks if of == name]
        if named:
            told.append(f"nearly all links {CLASSES[name]} of ranks {rank_spans(named, ', ')} are slow")
    left = [link for link in slow_links(matrix) if not {(link[0], link[4]), (link[1], link[4])} & set(ranks)]
    for a, b, rate, share, scope in left[:_NAMED]:
        told.append(f"slow: {a} to {b} with {figure(rate)} GB/s, {share:.0%} of the best {CLASSES[scope]}")
    if len(left) > _NAMED:
        told.append(f"and {len(left) - _NAMED} more")
    if not left and not ranks:
        told.append(f"no link is below {SLOW:.0%} of the best of its class")
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}."


def matrix_figure(matrix: Matrix) -> dict:
    """The matrix as a heat map of shares of the best tenth of a class, with the medians of its rows and columns."""
    n, share = len(matrix.ranks), matrix.share
    labels = [str(rank) for rank in matrix.ranks]
    hover = [
        [
            "" if np.isnan(rate) else f"{a} to {b}: {figure(float(rate))} GB/s, {part:.0%} of the best"
            for b, rate, part in zip(labels, rates, parts)
        ]
        for a, rates, parts in zip(labels, matrix.rate_GBps, share)
    ]  # fmt: skip
    edge = 0.04 if n > 12 else 0.08
    look = {
        "type": "heatmap", "zmin": 0, "zmax": _TOP, "colorscale": _SCALE, "hoverinfo": "text",
        "xgap": 1 if n <= 64 else 0, "ygap": 1 if n <= 64 else 0,
    }  # fmt: skip
    rows, columns = _medians(share, 1), _medians(share, 0)
    step = max(1, n // 16)
    ticks = {"tickvals": list(range(0, n, step)), "ticktext": labels[::step], "zeroline": False, "showgrid": False}
    side = {"zeroline": False, "showgrid": False, "showticklabels": False}
    return {
        "data": [
            look | {"z": _cells(share), "hovertext": hover, "colorbar": {
                "title": {"text": "of the<br>best of<br>its class"}, "thickness": 12, "tickformat": ".0%",
            }},
            look | {"z": [[value] for value in rows], "xaxis": "x2", "showscale": False,
                    "hovertext": [[_told(f"from {a}", v)] for a, v in zip(labels, rows)]},
            look | {"z": [columns], "yaxis": "y2", "showscale": False,
                    "hovertext": [[_told(f"to {b}", v) for b, v in zip(labels, columns)]]},
        ],
        "layout": {
            "height": 150 + min(max(n * 22, 160), 620),
            "margin": {"l": 60, "r": 14, "t": 24, "b": 46},
            "xaxis": {"title": {"text": "to rank"}, "domain": [0, 0.98 - edge], "anchor": "y2"} | ticks,
            "yaxis": {"title": {"text": "from rank"}, "autorange": "reversed", "domain": [0.02 + edge, 1]} | ticks,
            "xaxis2": side | {"domain": [1 - edge, 1], "anchor": "y"},
            "yaxis2": side | {"domain": [0, edge], "anchor": "x"},
        },
    }  # fmt: skip


def _medians(share: np.ndarray, axis: int) -> list[float | None]:
    lines = share if axis == 1 else share.T
    return [float(np.median(line[np.isfinite(line)])) if np.isfinite(line).any() else None for line in lines]


def _cells(share: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else round(float(value), 4) for value in row] for row in share]


def _told(what: str, value: float | None) -> str:
    return "" if value is None else f"{what}: median {value:.0%} of the best"


def rails_figures(samples: list[Sample]) -> list[dict]:
    """A strip for each backend: the bus bandwidth of every rail while all were at work, at the largest size."""
    found = {}
    for sample in samples:
        point, rate = sample.point, busbw_GBps(sample)
        if point.op == "all_gather" and point.group.startswith("rail #") and sample.status == "ok" and rate:
            rails = found.setdefault((point.backend, point.size_bytes), {})
            rails.setdefault(int(point.group.rpartition("#")[2]), []).append(rate)
    made = []
    for backend in dict.fromkeys(backend for backend, _ in found):
        several = {size: rails for (b, size), rails in found.items() if b == backend and len(rails) > 1}
        if several:
            size = max(several)
            rates = {rail: statistics.median(values) for rail, values in sorted(several[size].items())}
            made.append({"backend": backend, "size_bytes": size, "figure": _strip(rates), "rates": rates})
    return made


def _strip(rates: dict[int, float]) -> dict:
    middle = statistics.median(rates.values())
    colours = ["#b42318" if rate < SLOW * middle else "#3d85c6" for rate in rates.values()]
    return {
        "data": [{
            "type": "bar", "x": list(rates), "y": list(rates.values()), "marker": {"color": colours},
            "hoverinfo": "text", "width": 0.6,
            "hovertext": [f"rail {i}: {figure(r)} GB/s, {r / middle:.0%} of the median" for i, r in rates.items()],
        }],
        "layout": {
            "height": 210,
            "margin": {"l": 64, "r": 14, "t": 14, "b": 46},
            "xaxis": {"title": {"text": "rail"}, "dtick": 1 if len(rates) <= 16 else 8, "zeroline": False},
            "yaxis": {"title": {"text": "busbw, GB/s"}, "rangemode": "tozero"},
        },
    }  # fmt: skip
