"""The page of a verdict: who is guilty, what was judged, by what, and what to do about it."""

from pathlib import Path

from commbench.acceptance.verdict import WORDS, Judgement
from commbench.acceptance.which import Machine
from commbench.reports.accept_ports import tables_of
from commbench.reports.document import render, save

LISTED = 2000  # verdicts on the page, the worst first; 1,024 nodes by one rule fit
_SHOWN = 12  # of one rule and word, in full


def write_accept_page(judgement: Judgement, path: Path, machine: Machine | None = None) -> Path:
    """Write the page to the file `path` and return it. Raises OSError when it cannot be written there."""
    return save(accept_page(judgement, machine), path)


def accept_page(judgement: Judgement, machine: Machine | None = None) -> str:
    """The page as HTML; it holds no script and no figure, so that it can be mailed."""
    ordered = sorted(judgement.all, key=lambda verdict: WORDS.index(verdict.word))
    return render(
        "accept.html", judgement=judgement, machine=machine, groups=_groups(judgement), verdicts=ordered[:LISTED],
        left_out=max(0, len(ordered) - LISTED), ports=tables_of(judgement.found),
    )  # fmt: skip


def _groups(judgement: Judgement) -> list[tuple]:
    """(the verdicts of one rule and word that are shown, how many more there are) of what is no pass."""
    found = {}
    for word in ("fail", "error", "warn"):
        for verdict in judgement.all:
            if verdict.word == word:
                found.setdefault((word, verdict.rule), []).append(verdict)
    return [(verdicts[:_SHOWN], len(verdicts[_SHOWN:])) for verdicts in found.values()]
