"""Which rows a rule is about, and the figures of them that it judges."""

from collections import defaultdict

from commbench.acceptance import metrics
from commbench.acceptance.metrics import REPORTED
from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import Row
from commbench.acceptance.rule import SAME, Rule, within

MOST_REPEATS = 3  # a bar is met by the best of three; the best of forty would meet any


def selects(rule: Rule, row: Row, profile: Profile) -> bool:
    """Whether a rule is about a row, leaving its size aside."""
    point = row.sample.point
    for key in SAME:
        asked = getattr(rule, key)
        if key == "backend" and asked is None:
            asked = profile.backend
        if asked is not None and asked != (row.scope if key == "scope" else getattr(point, key)):
            return False
    if rule.metric == "tail" and "soak_s" not in point.params:
        return False
    if rule.metric in REPORTED and rule.metric not in row.sample.reported:
        return False
    if rule.window is not None and point.params.get("window") != rule.window:
        return False
    return within(row.nodes, rule.nodes) and within(point.ranks, rule.ranks)


def described(rule: Rule) -> str:
    where = {"intra": " within a node", "inter": " of one rank a node", "mixed": " over nodes"}.get(rule.scope, "")
    ranks = f" on {rule.ranks} ranks" if isinstance(rule.ranks, int) else ""
    nodes = f", {rule.nodes} nodes" if isinstance(rule.nodes, int) and rule.scope != "intra" else ""
    return f"{rule.op}{where}{ranks}{nodes}" + (f" by {rule.algorithm}" if rule.algorithm != "library" else "")


def size_of(row: Row) -> int:
    """The size that was asked for: 1G is 1G, though 24 ranks share out a few bytes less."""
    asked = row.sample.point.params.get("requested_bytes")
    return asked if type(asked) is int else row.sample.point.size_bytes


def value(row: Row, metric: str, profile: Profile) -> float | None:
    """The figure of a row that `metric` names; None where the row has none."""
    if metric == "nic_GBps":
        return metrics.nic_GBps(row.sample, row.algorithm, row.nodes, profile.links)
    return getattr(metrics, metric)(row.sample)


def best(rows: list[Row], rule: Rule, profile: Profile) -> tuple[float | None, Row, int]:
    """(best figure of the first MOST_REPEATS launches of one point, its row, how many there were)."""
    rows = sorted((row for row in rows if row.sample.status == "ok"), key=lambda row: row.sample.launch)[:MOST_REPEATS]
    found = [(value(row, rule.metric, profile), row) for row in rows]
    known = [(figure, row) for figure, row in found if figure is not None]
    if not known:
        return None, rows[0], len(rows)
    higher = metrics.METRICS[rule.metric].higher_is_better
    figure, row = (max if higher else min)(known, key=lambda pair: pair[0])
    return figure, row, len(known)


def series(rows: list[Row], rule: Rule, profile: Profile) -> dict:
    """{(subject, what else a series differs in): {size_bytes: (best figure, row, repeats)}} of the rows that are ok."""
    by_point = defaultdict(list)
    for row in rows:
        if row.sample.status == "ok":
            by_point[row.subject, row.sample.point.id].append(row)
    made = defaultdict(dict)
    for repeats in by_point.values():
        figure, row, count = best(repeats, rule, profile)
        if figure is not None:
            point = row.sample.point
            way = point.dtype, point.redop, point.in_place, point.timing, point.backend, point.params.get("window")
            made[row.subject, (*way, point.ranks)][size_of(row)] = figure, row, count
    return made
