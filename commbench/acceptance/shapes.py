"""Rules that compare a run with itself: its curve on the way to the plateau, its nodes with one another."""

from collections import defaultdict
from statistics import median

from commbench.acceptance.levels import level
from commbench.acceptance.rows import Row
from commbench.acceptance.rule import Rule
from commbench.acceptance.verdict import WORDS, Verdict
from commbench.units import format_size

CURVE = 3  # sizes from which on there is a curve


def dips(rule: Rule, series: dict) -> list[tuple[Verdict, Row]]:
    """For each subject its deepest dip below the largest figure of any smaller size.

    Against the size before only, as others do it, a stair of -4 % a step would pass.
    """
    found = defaultdict(list)
    for (subject, _), by_size in series.items():
        top, top_size, deepest = 0.0, 0, None
        for size, (figure, row, count) in sorted(by_size.items()):
            share = figure / top if top else 1.0
            if deepest is None or share < deepest[0]:
                deepest = (
                    share,
                    f"{figure:.4g} at {format_size(size)} after {top:.4g} at {format_size(top_size)}",
                    row,
                    count,
                )
            if figure > top:
                top, top_size = figure, size
        share, told, row, count = deepest
        if len(by_size) < CURVE:
            made = _verdict(rule, subject, "skip", None, count, f"{len(by_size)} sizes make no curve, {CURVE} do")
        else:
            made = _verdict(
                rule, subject, level(rule, min(share, 1.0)), min(share, 1.0), count, told if share < 1 else ""
            )
        found[subject].append((made, row))
    all_ = [min(judged, key=_badness) for judged in found.values()]
    return [judged for judged in all_ if judged[0].word != "skip"] or all_  # a soak has one size beside the sweeps


def spreads(rule: Rule, series: dict) -> list[tuple[Verdict, Row]]:
    """For each subject its smallest share of the median over all subjects, of the same thing at the same size."""
    of_way = defaultdict(dict)
    for (subject, way), by_size in series.items():
        for size, measured in by_size.items():
            of_way[way, size][subject] = measured
    found = defaultdict(list)
    for (_, size), by_subject in of_way.items():
        middle = median(figure for figure, _, _ in by_subject.values())
        for subject, (figure, row, count) in by_subject.items():
            if len(by_subject) == 1:
                made = _verdict(rule, subject, "skip", None, count, f"no other one was measured at {format_size(size)}")
            else:
                told = f"{figure:.4g} against the median {middle:.4g} of {len(by_subject)} at {format_size(size)}"
                made = _verdict(rule, subject, level(rule, figure / middle), figure / middle, count, told)
            found[subject].append((made, row))
    return [min(judged, key=_badness) for judged in found.values()]


def _verdict(rule: Rule, subject: str, word: str, share: float | None, count: int, note: str) -> Verdict:
    return Verdict(
        rule.name, subject, word, rule.metric, rule.source, rule.check, measured=share, repeats=count, note=note
    )


def _badness(judged: tuple[Verdict, Row]):
    verdict = judged[0]
    return WORDS.index(verdict.word), 1.0 if verdict.measured is None else verdict.measured
