"""Which machine is it? The figures that tell profiles apart, held against each of them."""

from dataclasses import asdict, dataclass
from math import exp, log
from statistics import median

from commbench.acceptance.judge import Case, judge_rules, judged_rows
from commbench.acceptance.profile import Profile
from commbench.results.store import Run

NEAR = 1.2  # a figure within this factor speaks for a machine; H100 and H800 differ by 2.2 and more
APART = 1.15  # expectations closer than this do not tell two machines apart


@dataclass(frozen=True)
class Evidence:
    """One figure of the run and what each profile expects; `nearest` is the one it speaks for, "" where for none or
    for several."""

    what: str
    measured: float
    expected: dict[str, float]
    nearest: str


@dataclass(frozen=True)
class Machine:
    """`name` of the profile that the run is of; "" where it is not determined. `reason` in one sentence."""

    name: str
    reason: str
    evidence: tuple[Evidence, ...]

    def to_json(self) -> dict:
        return asdict(self)


def which(run: Run, profiles: list[Profile]) -> Machine:
    """The profile that the evidence speaks for. A count of links outweighs rates, which a fault can lower."""
    evidence = _evidence(run, profiles)
    names = [profile.name for profile in profiles]
    if not evidence:
        wanted = sorted({rule.evidence for profile in profiles for rule in profile.rule if rule.evidence})
        return Machine("", f"the run holds nothing that tells {' and '.join(names)} apart: {', '.join(wanted)}", ())
    spoken = {one.nearest for one in evidence if one.nearest}
    counted = {one.nearest for one in evidence if one.nearest and one.what == "NVLinks"}
    told = "; ".join(f"{one.what} {one.measured:.4g}" for one in evidence)
    named = counted if len(counted) == 1 else spoken
    if len(named) != 1:
        said = "the figures contradict one another" if spoken else "no figure is near to what just one of them expects"
        return Machine("", f"{said} ({told})", evidence)
    name = named.pop()
    against = [one for one in evidence if one.nearest != name]
    if against:
        doubt = "; ".join(
            f"{one.what} {one.measured:.4g} where {one.expected.get(name, 0):.4g} is expected" for one in against
        )
        said = f"by its NVLinks; but {doubt}" if counted else f"{told}; but {doubt}"
        return Machine(name, said, evidence)
    return Machine(name, told, evidence)


def _evidence(run: Run, profiles: list[Profile]) -> tuple[Evidence, ...]:
    found = {}
    for profile in profiles:
        of_rule = {rule.name: rule for rule in profile.rule if rule.evidence}
        verdicts = judge_rules(judged_rows(run, profile), Case(run, profile))
        for rule in of_rule.values():
            figures = [v.measured for v in verdicts if v.rule == rule.name and v.measured is not None]
            if figures:
                measured, expected = found.setdefault(rule.evidence, ([], {}))
                measured.append(median(figures))
                expected[profile.name] = rule.expected
    return tuple(
        Evidence(what, max(measured), expected, _nearest(max(measured), expected))
        for what, (measured, expected) in found.items()
    )


def _nearest(measured: float, expected: dict[str, float]) -> str:
    far = {name: abs(log(measured / value)) for name, value in expected.items()}
    first, *others = sorted(far, key=far.get)
    alike = any(exp(abs(log(expected[first] / expected[other]))) < APART for other in others)
    return first if far[first] < log(NEAR) and not alike else ""
