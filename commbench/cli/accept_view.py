"""Verdicts on a terminal: what is not a pass first and in full, what passed in a line for each rule."""

from commbench.acceptance.verdict import Judgement, Verdict
from commbench.acceptance.verdict_text import sentence
from commbench.results.nccl_tests import one_line

_MOST = 40  # verdicts of one word that are told in full; --json holds all
_LISTED = 20  # rules that the run holds nothing for


def lines(judgement: Judgement) -> list[str]:
    """The judgement, line by line; the last one is what it amounts to."""
    told = []
    for word in ("fail", "error", "warn"):
        found = [verdict for verdict in judgement.verdicts if verdict.word == word]
        for verdict in found[:_MOST]:
            told += _in_full(verdict)
        if len(found) > _MOST:
            told.append(f"{word}   and {len(found) - _MOST} more; --json, --junit or --report hold all")
    told += _passed(judgement)
    skipped = list(dict.fromkeys(verdict.rule for verdict in judgement.verdicts if verdict.word == "skip"))
    if skipped:
        more = f" and {len(skipped) - _LISTED} more" if len(skipped) > _LISTED else ""
        told.append(f"skip   not in the run: {'; '.join(skipped[:_LISTED])}{more}")
    told += [f"note   {one_line(note)}" for note in judgement.notes]
    counted = ", ".join(f"{count} {word}" for word, count in judgement.counts.items())
    reason = f": {one_line(judgement.reason)}" if judgement.reason else ""
    return [*told, f"{judgement.word}, exit code {judgement.code} ({counted}) by profile {judgement.profile}{reason}"]


def _in_full(verdict: Verdict) -> list[str]:
    told = [f"{verdict.word:5}  {verdict.rule}, {one_line(verdict.subject)}: {one_line(sentence(verdict))}"]
    told.append(f"       source: {verdict.source}")
    told += [f"       check: {one_line(thing)}" for thing in verdict.look_at]
    return told + [f"       again: {one_line(verdict.again)}"] * bool(verdict.again)


def _passed(judgement: Judgement) -> list[str]:
    by_rule = {}
    for verdict in judgement.verdicts:
        if verdict.word == "pass":
            by_rule.setdefault(verdict.rule, []).append(verdict)
    told = []
    for rule, found in by_rule.items():
        first, figures = found[0], sorted(verdict.measured for verdict in found)
        if len(found) == 1:
            told.append(f"pass   {rule}, {one_line(first.subject)}: {one_line(sentence(first))}")
        else:
            span = f"{figures[0]:.4g} to {figures[-1]:.4g} {first.unit}, {first.tolerance}"
            told.append(f"pass   {rule}, {len(found)} of them: {span}")
    return told


def which_lines(machine, judgements: dict[str, Judgement]) -> list[str]:
    """What tells the machines apart, and which one it is."""
    told = [f"{name}: {judgement.word}" for name, judgement in judgements.items()]
    told += [
        f"{one.what}: {one.measured:.4g}, expected "
        + ", ".join(f"{value:.4g} ({name})" for name, value in one.expected.items())
        + f"; nearest {one.nearest or 'none'}"
        for one in machine.evidence
    ]
    return [*map(one_line, told), f"machine: {machine.name or 'not determined'}; {one_line(machine.reason)}", ""]
