"""The page of a verdict: what was judged, by what, and what to do about it."""

from pathlib import Path

from commbench.acceptance.verdict import WORDS, Judgement
from commbench.acceptance.which import Machine
from commbench.reports.document import render, save

LISTED = 2000  # verdicts on the page, the worst first; 1,024 nodes by one rule fit


def write_accept_page(judgement: Judgement, path: Path, machine: Machine | None = None) -> Path:
    """Write the page to the file `path` and return it. Raises OSError when it cannot be written there."""
    return save(accept_page(judgement, machine), path)


def accept_page(judgement: Judgement, machine: Machine | None = None) -> str:
    """The page as HTML; it holds no script and no figure, so that it can be mailed."""
    ordered = sorted(judgement.verdicts, key=lambda verdict: WORDS.index(verdict.word))
    bad = [verdict for verdict in ordered if verdict.word in ("error", "fail", "warn")]
    return render(
        "accept.html", judgement=judgement, machine=machine, bad=bad[:LISTED], verdicts=ordered[:LISTED],
        left_out=max(0, len(ordered) - LISTED),
    )  # fmt: skip
