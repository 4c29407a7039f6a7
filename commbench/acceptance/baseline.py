"""A profile of a site's own machine: of each thing that good runs measured, the median over good nodes and launches.

Levels are prediction limits for one more launch: a good machine is warned of in one case of fifty and fails in one of
a thousand, and neither level is closer than the 3.5 % and 7 % that others use. The spread is that of launches and
nodes on logarithms, pooled over the sizes of one operation; a single launch of a single node has none, and a few
launches tell it badly: then levels are set wide.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from commbench.acceptance import metrics
from commbench.acceptance.profile import check_profile
from commbench.acceptance.rows import Row, rows_of
from commbench.acceptance.select import size_of
from commbench.acceptance.toml_text import printable, to_toml
from commbench.errors import MeasureError
from commbench.ops import OPS
from commbench.results.metrics import disturbances
from commbench.results.store import Run
from commbench.units import format_size

CLOSEST = {"warn": 0.035, "fail": 0.07}  # ai-infrastructure-on-azure
ONCE = {"warn": 0.1, "fail": 0.2}  # one launch of one node: launches differ by 10 to 39 % on shared machines
RISK = {"warn": 0.02, "fail": 0.001}
FEW = 4  # degrees of freedom below which a prediction limit is wide beyond use, and so many spreads are taken
SPREADS = {"warn": 2.5, "fail": 4.0}
WIDEST = 0.5  # a bar that half of the usual rate passes is none
BAD = 0.9  # of the median over nodes, below which a node is not one of the good
_OWN = ("op", "algorithm", "protocol", "backend", "dtype", "redop", "in_place", "timing")


@dataclass(frozen=True)
class Baseline:
    """The profile as TOML; `left_out`: sentences on nodes and rows that were not taken for good."""

    toml: str
    rules: int
    left_out: tuple[str, ...]


def baseline(runs: list[Run], name: str) -> Baseline:
    """The profile that `runs` of the same machine make. Raises MeasureError when they hold nothing to expect."""
    rows = [row for run in runs for row in rows_of(run, None)]
    good, left_out = _good([row for row in rows if row.sample.status == "ok" and _figure(row) is not None])
    if not good:
        raise MeasureError(
            "the runs hold no row of more than one rank that is ok, so nothing can be expected of the machine"
        )
    by_series = defaultdict(lambda: defaultdict(list))  # what: size: values
    for row in good:
        by_series[_series(row)][size_of(row)].append(_figure(row))
    rules = []
    for series, by_size in by_series.items():
        reach = _reach(_spread(by_size.values()), min(map(len, by_size.values())))
        if reach["fail"] > WIDEST:
            left_out.append(_too_wide(series, by_size))
        else:
            rules += [_rule(series, size, values, reach) for size, values in sorted(by_size.items())]
    if not rules:
        raise MeasureError(f"no bar can be drawn: {left_out[-1]}")
    bad = sum(row.sample.status not in ("ok", "skip") for row in rows)
    left_out += [f"{bad} row(s) that are not ok"] * bool(bad)
    disturbed = sum(bool(disturbances(row.sample)) for row in good)
    words = "row(s) were taken though other work disturbed them: oversubscribed or busy cores"
    left_out += [f"{disturbed} {words}"] * bool(disturbed)
    told = "; ".join(f"{run.path.name} of {run.plan.created_at[:10]}" for run in runs[:3])
    told += "; ..." * (len(runs) > 3)
    tables = {"name": name, "about": printable(f"median of {len(runs)} run(s) of this machine: {told}"), "rule": rules}
    check_profile(tables, "the profile made of these runs")
    return Baseline(to_toml(tables), len(rules), tuple(left_out))


def _metric(row: Row) -> str:
    """Bandwidth where there is one and it is what one asks for; else the time."""
    op = OPS.get(row.sample.point.op)
    return "time_us" if op is None or not op.sized or row.sample.point.op == "p2p_latency" else "busbw_GBps"


def _figure(row: Row) -> float | None:
    return getattr(metrics, _metric(row))(row.sample) if row.sample.point.op in OPS else None


def _series(row: Row) -> tuple:
    """What a rule names, but the size."""
    point = row.sample.point
    own = tuple((key, getattr(point, key)) for key in _OWN)
    return (
        _metric(row),
        *own,
        ("scope", row.scope),
        ("nodes", row.nodes),
        ("ranks", point.ranks),
        ("window", point.params.get("window")),
    )


def _good(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows without those of nodes, rails and links that are slow beside the others in most of what they did."""
    values = defaultdict(lambda: defaultdict(list))
    for row in rows:
        values[_series(row), size_of(row)][row.subject].append(_figure(row))
    slow, seen = defaultdict(int), defaultdict(int)
    for (series, _), by_subject in values.items():
        middles = {subject: float(np.median(found)) for subject, found in by_subject.items()}
        if len(middles) < 3:
            continue
        middle, better = float(np.median(list(middles.values()))), 1 if series[0] != "time_us" else -1
        for subject, figure in middles.items():
            seen[subject] += 1
            slow[subject] += (figure / middle) ** better < BAD
    bad = {subject for subject in seen if slow[subject] > seen[subject] / 2}
    told = [
        f"{subject}: below {BAD:.0%} of the median of the others in {slow[subject]} of {seen[subject]} rows"
        for subject in sorted(bad)
    ]
    return [row for row in rows if row.subject not in bad], told


def _spread(of_sizes) -> tuple[float, int] | None:
    """(standard deviation of logarithms, degrees of freedom) pooled over sizes; None where nothing was repeated."""
    squares, df = 0.0, 0
    for values in of_sizes:
        logs = np.log(values)
        squares += float(np.sum((logs - logs.mean()) ** 2))
        df += len(values) - 1
    return (float(np.sqrt(squares / df)), df) if df else None


def _reach(spread: tuple[float, int] | None, count: int) -> dict[str, float]:
    """How far below the median a figure may be before it warns and before it fails, as shares of the median."""
    if spread is None:
        return ONCE
    sd, df = spread
    if df < FEW:
        return {word: max(ONCE[word], 1 - float(np.exp(-times * sd))) for word, times in SPREADS.items()}
    widen = np.sqrt(1 + 1 / count) * sd
    return {word: max(CLOSEST[word], 1 - float(np.exp(-student.ppf(1 - RISK[word], df) * widen))) for word in CLOSEST}


def _too_wide(series: tuple, by_size: dict) -> str:
    what, (sd, _) = dict(series[1:]), _spread(by_size.values())
    return (
        f"{what['op']} over {what['backend']} on {what['ranks']} ranks: launches differ by {sd:.0%}, so that half of "
        "the usual rate could pass; measure on an idle machine, with more launches"
    )


def _rule(series: tuple, size: int, values: list[float], reach: dict[str, float]) -> dict:
    metric, *what = series
    what = {key: value for key, value in what if value is not None and (key != "protocol" or value != "default")}
    expected = float(np.median(values))
    # Of a time more is worse: the same distance on the other side.
    levels = {w: 1 / (1 - distance) if metric == "time_us" else 1 - distance for w, distance in reach.items()}
    rule = {"name": _name(what, size), "metric": metric, **what}
    if OPS[what["op"]].sized:
        rule["size"] = size
    levels = {word: float(f"{level:.4g}") for word, level in levels.items()}
    source = f"own baseline: median of {len(values)} value(s) over launches and good parts, {_told(values)}"
    return {**rule, "expected": float(f"{expected:.5g}"), **levels, "source": source}


def _told(values: list[float]) -> str:
    if len(values) < 2:
        return "one launch of one node, so the spread is not known"
    return f"spread {np.std(np.log(values), ddof=1):.1%}"


def _name(what: dict, size: int) -> str:
    usual = {"algorithm": "library", "dtype": "float32", "timing": "isolated", "in_place": False}
    told = [
        what["op"],
        format_size(size) if size else "",
        what["backend"],
        f"{what['ranks']} ranks on {what['nodes']} node(s)",
    ]
    if what["scope"] == "inter" and what["ranks"] != what["nodes"]:
        told.append("between nodes")
    told += [
        "in place" if key == "in_place" else str(what[key]) for key, common in usual.items() if what[key] != common
    ]
    told += [what["redop"]] * (what["redop"] not in ("none", "sum"))
    told += [f"{key} {what[key]}" for key in ("window", "protocol") if key in what]
    return ", ".join(filter(None, told))
