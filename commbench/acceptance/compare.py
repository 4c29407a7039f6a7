"""Two runs, launch against launch: which points, which operations became slower, and how sure that is.

The launch is the unit. Per point Welch's t on the logarithms of launch medians, then Benjamini & Hochberg (1995) over
the points; per operation one pooled ratio over its points, judged in the same way over the operations, by itself and
against the other operations of the same launch, whose common slowness then cancels. A regression is larger than EFFECT
and significant at LEVEL.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from math import exp, log

import numpy as np
from scipy.stats import t as student

from commbench.acceptance.differences import environment_differences
from commbench.acceptance.metrics import time_us
from commbench.acceptance.significance import LEVEL, benjamini_hochberg, p_value, welch
from commbench.errors import BELOW, PASS, MeasureError
from commbench.results.records import Point
from commbench.results.store import Run
from commbench.units import format_size

EFFECT = 1.02  # what is slower by less is not worth a person's time
WITHIN = "within one launch only"


@dataclass(frozen=True)
class Change:
    """The time in B over the time in A: above 1 is slower. low and high: its 95 % interval over launches; q: p adjusted
    for how many are compared. All three are None where one side has a single launch. word: slower, faster, same,
    or "" where it cannot be told. note: what else the word rests on."""

    what: str
    op: str
    ratio: float
    low: float | None
    high: float | None
    q: float | None
    word: str
    points: int = 1
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """launches: how many A and B have. left_out: points that one of them lacks, or that are not ok in it."""

    launches: tuple[int, int]
    operations: tuple[Change, ...]
    points: tuple[Change, ...]
    left_out: int
    differences: tuple[str, ...]

    @property
    def label(self) -> str:
        return WITHIN if min(self.launches) < 2 else f"{self.launches[0]} launches against {self.launches[1]}"

    @property
    def regressed(self) -> tuple[Change, ...]:
        return tuple(change for change in (*self.operations, *self.points) if change.word == "slower")

    @property
    def code(self) -> int:
        """1 when something regressed, which a single launch cannot show."""
        return BELOW if self.regressed else PASS

    def to_json(self) -> dict:
        return asdict(self) | {
            "label": self.label,
            "exit_code": self.code,
            "regressed": [c.what for c in self.regressed],
        }


def compare(a: Run, b: Run) -> Comparison:
    """What changed from run `a` to run `b`. Raises MeasureError when they have no point in common."""
    points, of_a, of_b = {}, *(_times(run) for run in (a, b))
    for run in (a, b):
        points |= {sample.point.id: sample.point for sample in run.samples()}
    common = [point for point in points if point in of_a and point in of_b]
    if not common:
        raise MeasureError(
            f"{a.path} and {b.path} have no point in common: {_held(of_a, points)} against {_held(of_b, points)}; "
            "measure the same suite on the same number of ranks"
        )
    launches = tuple(len({launch for times in of.values() for launch in times}) for of in (of_a, of_b))
    logs = {point: tuple({n: log(time) for n, time in of[point].items()} for of in (of_a, of_b)) for point in common}
    per_point = [welch(*(np.array(list(side.values())) for side in logs[point])) for point in common]
    changes = _changes([_name(points[p]) for p in common], [points[p].op for p in common], per_point)
    operations = _operations(logs, points)
    return Comparison(
        launches, operations, tuple(changes), len(points) - len(common), tuple(environment_differences(a, b))
    )


def _times(run: Run) -> dict[str, dict[int, float]]:
    """{point: {launch: median time}} of the rows that are ok."""
    found = defaultdict(dict)
    for sample in run.samples():
        time = time_us(sample)
        if sample.status == "ok" and time:
            found[sample.point.id][sample.launch] = time
    return found


def _held(of: dict, points: dict[str, Point]) -> str:
    ops = sorted({f"{points[point].op} on {points[point].ranks} ranks" for point in of})
    return ", ".join(ops[:4]) + (" and more" if len(ops) > 4 else "") or "nothing that is ok"


def _name(point: Point) -> str:
    told = [point.op, format_size(point.size_bytes) if point.size_bytes else "", point.backend, f"{point.ranks} ranks"]
    unusual = {"all": point.group, "library": point.choice, "float32": point.dtype, "isolated": point.timing}
    told += [value for usual, value in unusual.items() if value != usual]
    return ", ".join(filter(None, [*told, "in place" * point.in_place]))


def _changes(names: list[str], ops: list[str], figures: list[tuple], counts: list[int] | None = None) -> list[Change]:
    """Ratios with intervals and words, p adjusted over those that have one."""
    tested = [i for i, (_, error, _) in enumerate(figures) if error is not None]
    adjusted = dict(zip(tested, benjamini_hochberg([p_value(*figures[i]) for i in tested]))) if tested else {}
    made = []
    for i, (difference, error, df) in enumerate(figures):
        half = None if error is None else float(student.ppf(0.975, df)) * error
        low, high = (None, None) if half is None else (exp(difference - half), exp(difference + half))
        word = _word(difference, adjusted.get(i))
        made.append(
            Change(names[i], ops[i], exp(difference), low, high, adjusted.get(i), word, counts[i] if counts else 1)
        )
    return made


def _word(difference: float, q: float | None) -> str:
    if q is None:
        return ""
    if q >= LEVEL or abs(difference) < log(EFFECT):
        return "same"
    return "slower" if difference > 0 else "faster"


def _operations(logs: dict, points: dict[str, Point]) -> tuple[Change, ...]:
    """One pooled ratio per operation: of each launch the mean over its points, each about its mean in both runs."""
    sides = [defaultdict(lambda: defaultdict(list)) for _ in range(2)]  # op: launch: logs
    counts = defaultdict(int)
    for point, both in logs.items():
        op = points[point].op
        counts[op] += 1
        middle = np.mean([np.mean(list(side.values())) for side in both])
        for side, known in zip(sides, both):
            for launch, value in known.items():
                side[op][launch].append(value - middle)
    ops = list(counts)
    pooled = [{op: {launch: float(np.mean(v)) for launch, v in side[op].items()} for op in ops} for side in sides]
    alone = [welch(*(np.array(list(side[op].values())) for side in pooled)) for op in ops]
    changes = _changes(ops, ops, alone, [counts[op] for op in ops])
    if len(ops) < 3:
        return tuple(changes)
    beside = _changes(ops, ops, [welch(*(_beside(side, op) for side in pooled)) for op in ops])
    return tuple(_either(change, other) for change, other in zip(changes, beside))


def _either(change: Change, beside: Change) -> Change:
    """Slower beside the other operations of its launches is slower, even where launches differ more than that."""
    if change.word != "same" or beside.word != "slower" or change.ratio < EFFECT:
        return change
    note = f"beside the other operations of its launches {beside.ratio:.4f} ({beside.low:.4f} to {beside.high:.4f})"
    return replace(change, word="slower", q=beside.q, note=note)


def _beside(side: dict, op: str) -> np.ndarray:
    """Of each launch how far `op` is from the median over the operations: with three and more, one cannot move it."""
    return np.array([
        value - np.median([other[launch] for other in side.values() if launch in other])
        for launch, value in side[op].items()
    ])  # fmt: skip
