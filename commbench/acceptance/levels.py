"""From a figure to a word: pass, warn or fail by the levels of a rule."""

from commbench.acceptance.metrics import METRICS
from commbench.acceptance.rule import Rule


def level(rule: Rule, figure: float) -> str:
    """The word for `figure`, of what the rule's check compares; of a two-sided rule the distance either way counts."""
    if rule.two_sided:
        figure = min(figure, rule.expected**2 / figure)
    beyond = (lambda limit: figure < limit) if METRICS[rule.metric].higher_is_better else (lambda limit: figure > limit)
    if beyond(rule.fail_at):
        return "fail"
    return "warn" if rule.warn_at is not None and beyond(rule.warn_at) else "pass"
