"""Verdicts on a terminal: the guilty parts first, then what else is no pass; what passed in a line for each rule."""

from commbench.acceptance.verdict import Judgement, Verdict
from commbench.acceptance.verdict_text import sentence
from commbench.results.nccl_tests import one_line

_MOST = 6  # verdicts of one rule and word that are told; --json holds all
_LISTED = 20  # rules that the run holds nothing for


def lines(judgement: Judgement) -> list[str]:
    """The judgement, line by line; the last one is what it amounts to."""
    told = []
    for word in ("fail", "error", "warn"):
        told += [line for found in _by_rule(judgement.all, word).values() for line in _in_full(found)]
    told += [_passed(found) for found in _by_rule(judgement.all, "pass").values()]
    skipped = list(_by_rule(judgement.all, "skip"))
    if skipped:
        more = f" and {len(skipped) - _LISTED} more" if len(skipped) > _LISTED else ""
        told.append(f"skip   not in the run: {'; '.join(skipped[:_LISTED])}{more}")
    told += [f"note   {one_line(note)}" for note in judgement.notes]
    counted = ", ".join(f"{count} {word}" for word, count in judgement.counts.items())
    reason = f": {one_line(judgement.reason)}" if judgement.reason else ""
    return [*told, f"{judgement.word}, exit code {judgement.code} ({counted}) by profile {judgement.profile}{reason}"]


def _by_rule(verdicts, word: str) -> dict[str, list[Verdict]]:
    found = {}
    for verdict in verdicts:
        if verdict.word == word:
            found.setdefault(verdict.rule, []).append(verdict)
    return found


def _in_full(found: list[Verdict]) -> list[str]:
    """The verdicts of one rule and word; what they have in common stands once, below them."""
    first = found[0]
    told = [f"{v.word:5}  {v.rule}, {one_line(v.subject)}: {one_line(sentence(v))}" for v in found[:_MOST]]
    if len(found) > _MOST:
        told.append(f"       and {len(found) - _MOST} more; --json, --junit or --report hold all")
    told.append(f"       source: {first.source}")
    told += [f"       check: {one_line(thing)}" for thing in first.look_at]
    return told + [f"       again: {one_line(first.again)}"] * bool(first.again)


def _passed(found: list[Verdict]) -> str:
    first = found[0]
    if len(found) == 1:
        return f"pass   {first.rule}, {one_line(first.subject)}: {one_line(sentence(first))}"
    figures = sorted(verdict.measured for verdict in found if verdict.measured is not None)
    if not figures:
        return f"pass   {first.rule}, {len(found)} of them: {one_line(first.note)}"
    span = f"{figures[0]:.4g} to {figures[-1]:.4g} {first.unit}, {first.tolerance}"
    return f"pass   {first.rule}, {len(found)} of them: {span}"


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
