"""A run held against a profile: rows -> a verdict for each rule and node, rail, link or world."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from commbench.acceptance import metrics
from commbench.acceptance.again import command_of, command_of_rule
from commbench.acceptance.bounds import above_the_rate, above_the_wire, hidden_notes
from commbench.acceptance.hints import Facts, facts_of, first_things
from commbench.acceptance.levels import level
from commbench.acceptance.parts import guilty_ranks, judge_parts
from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import UNSEEN, Row, rows_of
from commbench.acceptance.rule import Rule
from commbench.acceptance.select import best, described, selects, series, size_of
from commbench.acceptance.shapes import dips, spreads
from commbench.acceptance.verdict import WORDS, Judgement, Verdict
from commbench.acceptance.whole import judge_whole, links_of_nodes
from commbench.acceptance.wording import folded
from commbench.errors import MeasureError
from commbench.results.metrics import disturbances
from commbench.results.store import Run, is_running, own_exit_code
from commbench.units import format_size

_UNKNOWN = {"nic_GBps": "the algorithm was not observed", "tail": "a p99 needs 100 samples"}


class Case(NamedTuple):
    """What every verdict is about. `facts`: what the run says of itself; `guilty`: for each scope {rank: host} of the
    nodes that slow such rows down."""

    run: Run
    profile: Profile
    facts: Facts = Facts()
    guilty: dict[str, dict[int, str]] = {}


def judge(run: Run, profile: Profile, topology: Path | None = None) -> Judgement:
    """The verdicts of `profile` on a finished run of our own or an imported one, and those on its parts beside one
    another. `topology`: a file that names the leaf switches.

    Raises MeasureError for a run that goes on, and for one in which nothing went over a link; UsageError for a topology
    file that cannot be used.
    """
    rows = judged_rows(run, profile)
    parts, told, found = judge_parts(run, topology)
    verdicts = judge_rules(rows, Case(run, profile, facts_of(run), guilty_ranks(run, found)))
    notes = [*hidden_notes(profile, verdicts), *_remarks(rows, verdicts, profile), *told]
    code, reason = own_exit_code(run)
    return Judgement(str(run.path), profile.name, tuple(verdicts), tuple(notes), code, reason, tuple(parts), found)


def judged_rows(run: Run, profile: Profile) -> list[Row]:
    """The rows that can be judged. Raises as `judge` does."""
    if is_running(run.path):
        raise MeasureError(f"{run.path} is still being measured; judge it when `commbench status` says that it is done")
    rows = rows_of(run, profile.per_node)
    if not rows and not links_of_nodes(run):
        raise MeasureError(_nothing(run))
    return rows


def judge_rules(rows: list[Row], case: Case) -> list[Verdict]:
    """The verdicts of the profile's rules alone."""
    verdicts = []
    for rule in case.profile.rule:
        if metrics.METRICS[rule.metric].of_rows:
            verdicts += _judge_rows(rule, rows, case)
        else:
            verdicts += judge_whole(rule, case.run, case.profile)
    return verdicts


def _remarks(rows: list[Row], verdicts: list[Verdict], profile: Profile) -> list[str]:
    told = []
    if all(verdict.word == "skip" for verdict in verdicts):
        points = [row.sample.point for row in rows if row.sample.status != "skip"]
        held = sorted({f"{point.op} of {point.ranks or 'unknown'} ranks over {point.backend}" for point in points})
        told.append(f"the run holds {', '.join(held) or 'skipped rows'}; profile {profile.name} has no rule for it")
    if any(verdict.word == "error" and verdict.subject == "the run" for verdict in verdicts):
        told.append("`commbench run ladder` with --profile and this profile measures all that it judges")
    if any(row.assumed for row in rows):
        told.append(f"the run names no hosts, so its nodes are taken from its ranks, {profile.per_node} a node")
    return told


def _nothing(run: Run) -> str:
    samples = run.samples()
    if not samples:
        return f"{run.path} holds no rows, so there is nothing to judge"
    return (
        f"{run.path} is a run of 1 rank, in which nothing goes over a link, so that busbw does not exist; if more "
        "ranks were meant, each formed a world of its own: `commbench doctor` shows what the launcher tells its ranks"
    )


def _judge_rows(rule: Rule, rows: list[Row], case: Case) -> list[Verdict]:
    chosen = [row for row in rows if selects(rule, row, case.profile)]
    if not chosen:
        return [_none(rule, case.profile, "skip", f"the run holds no {described(rule)}")]
    if all(row.sample.status == "skip" for row in chosen):
        return [_none(rule, case.profile, "skip", f"the run skipped it: {chosen[0].sample.reason}")]
    if rule.check == "spread" and len({row.subject for row in chosen}) < 2:
        told = f"the run holds one {described(rule)}, and nothing to compare it with"
        return [_none(rule, case.profile, "skip", told)]
    at = [row for row in chosen if rule.size is None or rule.holds_size(size_of(row))]
    if not at:
        held = sorted({size_of(row) for row in chosen})
        span = " to ".join(dict.fromkeys(format_size(size) for size in (held[0], held[-1])))
        span = span if held[-1] else "an unknown size"
        told = f"judged at {rule.sizes_text}, and the run holds {described(rule)} of {span} only"
        return [_none(rule, case.profile, "error", told)]
    if rule.check != "value":
        curves = series(at, rule, case.profile)
        if not curves:
            return [_none(rule, case.profile, "error", f"no row of {described(rule)} is ok: {at[0].sample.reason}")]
        found = dips(rule, curves) if rule.check == "dip" else spreads(rule, curves)
        return [_finish(rule, verdict, row, case) for verdict, row in found]
    of_subject = defaultdict(list)
    for row in at:
        of_subject[row.subject].append(row)
    return [_judge_subject(rule, found, case) for found in of_subject.values()]


def _none(rule: Rule, profile: Profile, word: str, note: str) -> Verdict:
    return Verdict(
        rule.name, "the run", word, rule.metric, rule.source, rule.check, expected=rule.reference, note=note,
        warn_at=rule.warn_at, fail_at=rule.fail_at, two_sided=rule.two_sided, op=rule.op or "",
        again=command_of_rule(rule, profile),
    )  # fmt: skip


def _judge_subject(rule: Rule, rows: list[Row], case: Case) -> Verdict:
    """The worst of the points that a rule is about: sizes, placements."""
    of_point = defaultdict(list)
    for row in rows:
        of_point[row.sample.point.id].append(row)
    judged = [_judge_point(rule, repeats, case) for repeats in of_point.values()]

    def badness(verdict):
        share = (verdict.measured or 0) / (verdict.expected or verdict.fail_at)
        return WORDS.index(verdict.word), share if metrics.METRICS[rule.metric].higher_is_better else -share

    return min(judged, key=badness)


def _judge_point(rule: Rule, repeats: list[Row], case: Case) -> Verdict:
    wrong = [row for row in repeats if row.sample.status == "wrong"]
    ok = [row for row in repeats if row.sample.status == "ok"]
    if wrong or not ok:
        row = (wrong or repeats)[-1]
        told = f"wrong data: {row.sample.wrong} elements differ" if wrong else row.sample.reason or row.sample.status
        word = "fail" if wrong else "skip" if row.sample.status == "skip" else "error"
        blank = Verdict(rule.name, row.subject, word, rule.metric, rule.source, note=told)
        return _finish(rule, blank, row, case)
    figure, row, count = best(ok, rule, case.profile)
    beyond = above_the_wire(row, case.profile)
    if beyond:
        word, notes = "error", [beyond]
    elif figure is None:
        why = _UNKNOWN.get(rule.metric, "the row does not tell it")
        word, notes = "error", [f"{rule.metric} is not known here: {why}"]
    else:
        word, notes = level(rule, figure), [_other_algorithm(rule, row), above_the_rate(row, case.profile)]
    if len(ok) < len(repeats):
        reason = next(row for row in repeats if row.sample.status != "ok").sample.reason
        notes.append(f"{len(repeats) - len(ok)} more of its launches did not come out: {reason}")
    note = "; ".join(filter(None, [*notes, *disturbances(row.sample)]))
    told = Verdict(rule.name, row.subject, word, rule.metric, rule.source, measured=figure, repeats=count, note=note)
    return _finish(rule, told, row, case)


def _other_algorithm(rule: Rule, row: Row) -> str:
    other = rule.expects and row.algorithm not in (rule.expects, UNSEEN)
    return f"ran by {row.algorithm}, where {rule.expects} is expected" if other else ""


def _finish(rule: Rule, verdict: Verdict, row: Row, case: Case) -> Verdict:
    """A verdict with all that its row and its rule tell: levels, algorithm, size, command, first things to look at."""
    point = row.sample.point
    told = {
        "check": rule.check, "expected": rule.reference, "warn_at": rule.warn_at, "fail_at": rule.fail_at,
        "two_sided": rule.two_sided, "op": point.op, "algorithm": row.algorithm, "ranks": point.ranks,
        "size_bytes": size_of(row), "nodes": row.nodes, "again": command_of(row),
    }  # fmt: skip
    if verdict.word in ("warn", "fail"):
        told["look_at"] = first_things(rule, row, verdict, case.facts, case.profile)
        guilty = case.guilty.get(row.scope, {})
        held = folded(dict.fromkeys(guilty[rank] for rank in point.members if rank in guilty))
        told["note"] = "; ".join(filter(None, [f"holds {held}, slow beside the others" if held else "", verdict.note]))
    return replace(verdict, **told)
