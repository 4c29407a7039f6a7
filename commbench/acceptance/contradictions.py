"""Rules of one profile that cannot both be meant."""

from commbench.acceptance.rule import Rule


def no_contradictions(rules: list[Rule]) -> None:
    """Raises ValueError for two rules that judge the same metric of the same rows and expect something else of it."""
    known = {}
    for rule in rules:
        if rule.check == "value":
            known.setdefault((rule.metric, rule.op, rule.algorithm), []).append(rule)
    for alike in known.values():
        for i, one in enumerate(alike):
            for other in alike[i + 1 :]:
                if _overlap(one, other) and _levels(one) != _levels(other):
                    raise ValueError(
                        f"rules {one.name!r} and {other.name!r} contradict: both judge {one.metric} of the same rows, "
                        f"one at {_told(one)}, the other at {_told(other)}"
                    )


def _levels(rule: Rule) -> tuple:
    return rule.expected, rule.minimum, rule.warn, rule.fail


def _told(rule: Rule) -> str:
    return f"{rule.minimum if rule.expected is None else rule.expected:g}"


def _overlap(one: Rule, other: Rule) -> bool:
    for key in ("scope", "protocol", "dtype", "redop", "in_place", "timing", "backend", "window"):
        a, b = getattr(one, key), getattr(other, key)
        if a is not None and b is not None and a != b:
            return False
    return all(_meet(getattr(one, key), getattr(other, key)) for key in ("nodes", "ranks", "size"))


def _meet(a, b) -> bool:
    if a is None or b is None:
        return True
    (low_a, high_a), (low_b, high_b) = (_ends(x) for x in (a, b))
    return low_a <= high_b and low_b <= high_a


def _ends(asked) -> tuple[int, int]:
    return (asked, asked) if isinstance(asked, int) else (asked.from_, asked.to)
