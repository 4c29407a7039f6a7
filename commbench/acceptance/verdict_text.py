"""A verdict as people read it."""

from commbench.acceptance.verdict import Verdict
from commbench.units import format_size


def sentence(verdict: Verdict) -> str:
    """What was measured against what, at which size, by which algorithm, how often; or why nothing was."""
    if verdict.measured is None:
        return verdict.note
    unit = f" {verdict.unit}" if verdict.unit else ""
    parts = [f"{verdict.measured:.4g}{unit}"]
    if verdict.expected is not None and verdict.check == "value":
        parts.append(f"expected {verdict.expected:.4g}")
    parts.append(verdict.tolerance)
    if verdict.size_bytes and verdict.check == "value":
        parts.append(f"at {format_size(verdict.size_bytes)}")
    if verdict.algorithm:
        parts.append(f"algorithm {verdict.algorithm}")
    return ", ".join([*parts, *filter(None, [verdict.repeated, verdict.note])])
