"""What a run must measure so that a profile can judge it, beyond what its suite measures anyway."""

from commbench.acceptance.profile import Profile
from commbench.acceptance.rule import Rule
from commbench.ops import OPS
from commbench.suite.schema import Measure

# The stage of the ladder, and the split, where rows of a scope are measured.
_PLACE = {
    "intra": ("nodes", "node"), "inter": ("rails", "rail"), "mixed": ("scale", "first nodes"), None: ("scale", "all"),
}  # fmt: skip
_PAIR = {"intra": "pair intra", "inter": "pair inter", None: "pair inter"}
_SPLITS_OF_PAIRS = {"rail pairs": "inter", "node pairs": "inter", "pair inter": "inter", "pair intra": "intra"}

_SOAK_S = 180
_LARGEST_BYTES = 8 << 30  # and as much again to receive it


def measures_of(profile: Profile, measures: list[Measure]) -> list[dict]:
    """[[measure]] tables for the rules of `profile` on rows. Of a rule on pairs nothing where `measures` have pairs of
    that kind, else one pair: all of them at each size would take too long."""
    of = profile.backend  # what is judged over NCCL is not measured over Gloo
    rules = [rule.model_copy(update={"backend": rule.backend or of}) for rule in profile.rule if rule.op in OPS]
    soaks = [rule for rule in rules if rule.metric == "tail"]
    rules = [rule for rule in rules if rule.metric != "tail"]
    found = [_measure(rule) for rule in rules if OPS[rule.op].group_size != 2 and rule.scope in _PLACE]
    pairs = [rule for rule in rules if OPS[rule.op].group_size == 2 and rule.scope in _PAIR]
    found += [_pair(rule) for rule in pairs if not any(_holds(measure, rule) for measure in measures)]
    return found + [_soak(rule) for rule in soaks if not any(_soaks(measure, rule) for measure in measures)]


def _measure(rule: Rule) -> dict:
    stage, split = _PLACE[rule.scope]
    return {"stage": stage, "split": split, "size": _sizes(rule), **_what(rule)}


def _pair(rule: Rule) -> dict:
    size = rule.size if isinstance(rule.size, int) else rule.size.from_
    window = {"window": rule.window} if rule.window else {}
    return {"stage": "pairs", "split": _PAIR[rule.scope], "size": size, **window, **_what(rule)}


def _soak(rule: Rule) -> dict:
    size = rule.size if isinstance(rule.size, int) else rule.size.from_
    return {"stage": "soak", "size": size, "soak_s": _SOAK_S, **_what(rule)}


def _soaks(measure: Measure, rule: Rule) -> bool:
    return bool(measure.soak_s) and rule.op in measure.op and any(rule.holds_size(size) for size in measure.size)


def _holds(measure: Measure, rule: Rule) -> bool:
    """Whether a measure makes rows that a rule on pairs is about."""
    own = {"algorithm": rule.algorithm, "dtype": rule.dtype, "timing": rule.timing, "window": rule.window}
    return (
        rule.op in measure.op
        and any(rule.scope in (None, _SPLITS_OF_PAIRS.get(split)) for split in measure.split)
        and any(rule.holds_size(size) for size in measure.size)
        and all(value is None or value in getattr(measure, key) for key, value in own.items())
        and (rule.backend is None or measure.backend is None or rule.backend in measure.backend)
    )


def _what(rule: Rule) -> dict:
    choice = rule.algorithm if rule.protocol is None else f"{rule.algorithm}/{rule.protocol}"
    asked = {
        "backend": rule.backend, "dtype": rule.dtype, "redop": rule.redop, "in_place": rule.in_place,
        "timing": rule.timing,
    }  # fmt: skip
    given = {key: [value] for key, value in asked.items() if value not in (None, "none")}
    return {"op": rule.op, "algorithm": choice, **given}


def _sizes(rule: Rule):
    """The smallest size of a range and twice that; the whole way for a dip, as far as every GPU has memory."""
    if rule.size is None or isinstance(rule.size, int):
        return rule.size or 1
    low, high = rule.size.from_, rule.size.to
    if rule.check == "dip":
        return {"from": low, "to": max(low, min(high, _LARGEST_BYTES)), "factor": 4}
    return sorted({low, min(2 * low, high)})
