"""What a judge says: a verdict for each rule and each thing it was held against, and what they amount to."""

from collections import Counter
from dataclasses import asdict, dataclass

from commbench.acceptance.accuse import Accusation
from commbench.acceptance.metrics import METRICS
from commbench.errors import BELOW, PASS, UNMEASURED, WRONG, worst

WORDS = ("error", "fail", "warn", "pass", "skip")  # the first one that a part has is the word of the whole
CODES = {"pass": PASS, "warn": PASS, "fail": BELOW, "error": UNMEASURED}


@dataclass(frozen=True)
class Verdict:
    """`word` on `subject` (a node, a rail, a link, the run) by a rule. Levels are in the unit of what was measured;
    `repeats` is how many launches the figure is the best of; `look_at`: the first things to check, `again`: the
    command that measures it again."""

    rule: str
    subject: str
    word: str
    metric: str
    source: str
    check: str = "value"
    measured: float | None = None
    expected: float | None = None
    warn_at: float | None = None
    fail_at: float | None = None
    two_sided: bool = False
    op: str = ""
    algorithm: str = ""
    size_bytes: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    repeats: int = 0
    note: str = ""
    look_at: tuple[str, ...] = ()
    again: str = ""

    @property
    def unit(self) -> str:
        of_check = {"dip": "of the maximum", "spread": "of the median", "inventory": ""}
        return METRICS[self.metric].unit if self.check == "value" else of_check[self.check]

    @property
    def higher_is_better(self) -> bool:
        return self.metric not in METRICS or METRICS[self.metric].higher_is_better

    @property
    def tolerance(self) -> str:
        """The levels in words: "warn below 458, fail below 442"."""
        if self.two_sided and self.fail_at == self.expected:
            return f"fail unless {self.expected:.4g}"
        beyond = "outside" if self.two_sided else "below" if self.higher_is_better else "above"

        def told(level):
            return f"{level:.4g} to {self.expected**2 / level:.4g}" if self.two_sided else f"{level:.4g}"

        levels = [("warn", self.warn_at), ("fail", self.fail_at)]
        return ", ".join(f"{word} {beyond} {told(level)}" for word, level in levels if level is not None)

    @property
    def repeated(self) -> str:
        return {0: "", 1: "measured once"}.get(self.repeats, f"best of {self.repeats}")

    def to_json(self) -> dict:
        return asdict(self) | {"tolerance": self.tolerance, "repeated": self.repeated, "unit": self.unit}


@dataclass(frozen=True)
class Judgement:
    """All verdicts on a run: `verdicts` by the rules of one profile, `parts` on its nodes, rails and switches beside
    one another, of which `found` is the evidence. `run_code` is the exit code that the run has of its own."""

    run: str
    profile: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    run_code: int = PASS
    run_reason: str = ""
    parts: tuple[Verdict, ...] = ()
    found: Accusation | None = None

    @property
    def all(self) -> tuple[Verdict, ...]:
        """All verdicts; who is guilty stands before what that has slowed."""
        return self.parts + self.verdicts

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(verdict.word for verdict in self.all)
        return {word: found[word] for word in WORDS if found[word]}

    @property
    def word(self) -> str:
        """What the exit code says: fail for what is below the bar or wrong, error for what could not be judged."""
        if self.code:
            return "fail" if self.code in (BELOW, WRONG) else "error"
        return "warn" if "warn" in self.counts else "pass"

    @property
    def code(self) -> int:
        """The exit code: 0 pass and warn, 1 fail, 3 where a rule could not be judged or none was; or the run's own."""
        words = {verdict.word for verdict in self.verdicts} - {"skip"} or {"error"}
        words |= {verdict.word for verdict in self.parts}
        return worst([self.run_code, *(CODES[word] for word in words)])

    @property
    def reason(self) -> str:
        """Why it is not a pass, in one sentence; "" where it is."""
        bad = [f"{count} {word}" for word, count in self.counts.items() if word in ("error", "fail")]
        told = []
        if all(verdict.word == "skip" for verdict in self.verdicts):
            told.append(f"nothing of this run is judged by profile {self.profile}")
        told += [self.run_reason or f"the run itself has exit code {self.run_code}"] * bool(self.run_code)
        if bad:
            first = next(v for word in ("fail", "error") for v in self.all if v.word == word)
            told.append(f"{', '.join(bad)}, the first: {first.rule}, {first.subject}")
        return "; ".join(told)

    def to_json(self) -> dict:
        return {
            "run": self.run,
            "profile": self.profile,
            "verdict": self.word,
            "exit_code": self.code,
            "reason": self.reason,
            "counts": self.counts,
            "notes": list(self.notes),
            "verdicts": [verdict.to_json() for verdict in self.all],
        }
