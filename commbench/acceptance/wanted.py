"""What a run must measure so that a profile can judge it."""

from commbench.acceptance.profile import Profile, Rule
from commbench.ops import OPS

# The stage of the ladder, and the split, where rows of a scope are measured.
_PLACE = {"intra": ("nodes", "node"), "inter": ("rails", "rail"), "mixed": ("scale", "first nodes")}

_LARGEST_BYTES = 8 << 30  # and as much again to receive it


def measures_of(profile: Profile) -> list[dict]:
    """[[measure]] tables for the rules of `profile` on rows. Pairs are the ladder's own, at sizes that it knows."""
    rules = [rule for rule in profile.rule if rule.op and rule.scope and OPS[rule.op].group_size != 2]
    return [_measure(rule) for rule in rules]


def _measure(rule: Rule) -> dict:
    stage, split = _PLACE[rule.scope]
    choice = rule.algorithm if rule.protocol is None else f"{rule.algorithm}/{rule.protocol}"
    asked = {
        "backend": rule.backend, "dtype": rule.dtype, "redop": rule.redop, "in_place": rule.in_place,
        "timing": rule.timing,
    }  # fmt: skip
    given = {key: [value] for key, value in asked.items() if value is not None}
    return {"stage": stage, "op": rule.op, "split": split, "algorithm": choice, "size": _sizes(rule), **given}


def _sizes(rule: Rule):
    """The smallest size of a range and twice that; the whole way for a dip, as far as every GPU has memory."""
    if rule.size is None or isinstance(rule.size, int):
        return rule.size or 1
    low, high = rule.size.from_, rule.size.to
    if rule.check == "dip":
        return {"from": low, "to": max(low, min(high, _LARGEST_BYTES)), "factor": 4}
    return sorted({low, min(2 * low, high)})
