"""A judgement as a monitoring plugin prints it: a line with figures; 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

from commbench.acceptance.verdict import Judgement, Verdict
from commbench.acceptance.verdict_text import sentence

_STATES = {"pass": (0, "OK"), "warn": (1, "WARNING"), "fail": (2, "CRITICAL"), "error": (3, "UNKNOWN")}
_MOST = 20  # figures behind the bar; plugins' output is cut at 4 KiB


def nagios(judgement: Judgement) -> tuple[int, str]:
    """(exit code, the line). Wrong data is critical. Within the text there is no bar, which begins the figures."""
    code, state = _STATES[judgement.word]
    counted = ", ".join(f"{count} {word}" for word, count in judgement.counts.items()) or "nothing judged"
    worst = next((v for word in ("fail", "error", "warn") for v in judgement.all if v.word == word), None)
    told = f"; {worst.rule} of {worst.subject}: {sentence(worst)}" if worst else ""
    own = f"; {judgement.run_reason}" if judgement.run_code and judgement.run_reason else ""
    line = f"COMMBENCH {state} - {judgement.profile}: {counted}{told}{own}".replace("|", "/")
    judged = [v for v in (*judgement.verdicts, *judgement.parts) if v.measured is not None]
    figures = [_figure(v) for v in judged[:_MOST]]
    return code, line[:1500] + (" | " + " ".join(figures) if figures else "")


def _figure(verdict: Verdict) -> str:
    """'label'=value;warn;crit, the ranges being those that are good: "442:" is from 442 up."""
    label = "".join(" " if c in "'=|" else c for c in f"{verdict.rule} {verdict.subject}")
    return f"'{label}'={verdict.measured:.6g};{_range(verdict, verdict.warn_at)};{_range(verdict, verdict.fail_at)}"


def _range(verdict: Verdict, level: float | None) -> str:
    if level is None:
        return ""
    if verdict.two_sided:
        return f"{level:.6g}:{verdict.expected**2 / level:.6g}"
    return f"{level:.6g}:" if verdict.higher_is_better else f"{level:.6g}"
