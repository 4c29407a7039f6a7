"""Rules on what a run says of its machines and of itself as a whole: NVLinks, and the ratio of the two link classes."""

from commbench.acceptance.again import command_of_rule
from commbench.acceptance.levels import level
from commbench.acceptance.profile import Profile
from commbench.acceptance.rule import Rule
from commbench.acceptance.verdict import Verdict
from commbench.models.ratio import ratios
from commbench.results.nccl_tests import one_line
from commbench.results.store import Run
from commbench.units import format_size

_CROWDED = "oversubscribed, so no measure of links"


def judge_whole(rule: Rule, run: Run, profile: Profile) -> list[Verdict]:
    """The verdicts of a rule that is about nodes or the run, not about rows."""
    told = {
        "metric": rule.metric, "source": rule.source, "check": rule.check, "expected": rule.reference,
        "warn_at": rule.warn_at, "fail_at": rule.fail_at, "two_sided": rule.two_sided,
    }  # fmt: skip
    links = rule.metric == "nvlink_links"
    found = links_of_nodes(run) if links else _ratio(rule, run, profile)
    made = [
        Verdict(rule.name, subject, _word(rule, figure, note), measured=figure, note=note, **told)
        for subject, figure, note in found
    ]
    if made:
        return made
    note = "the run tells no NVLinks" if links else f"the run determines no {rule.metric}"
    return [Verdict(rule.name, "the run", "skip", note=note, again=command_of_rule(rule, profile), **told)]


def _word(rule: Rule, figure: float, note: str) -> str:
    return "error" if note.startswith(_CROWDED) else level(rule, figure)


def links_of_nodes(run: Run) -> list[tuple[str, float, str]]:
    """(host, NVLinks of the GPU that has fewest, which GPUs have fewer than the others) as headers tell, or as the rows
    of an imported topology do: those between two GPUs, which behind NVSwitch are all that a GPU has."""
    found = {}
    for launch in run.launches:
        for node in launch.header.get("nodes", []):
            counts = {}
            gpus = node.get("gpus")
            for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
                links = gpu.get("nvlink") if isinstance(gpu, dict) else None
                active = links.get("active", links.get("links")) if isinstance(links, dict) else None
                if type(active) is int:
                    counts[f"GPU {index}"] = active
            if counts:
                host = one_line(node.get("host", f"node {len(found)}"))
                found[host] = host, *_fewest(counts)
    if found:
        return list(found.values())
    samples = [sample for sample in run.samples() if sample.point.op == "topology"]
    counts = {one_line(s.point.group): s.reported["nvlinks"] for s in samples if type(s.reported.get("nvlinks")) is int}
    return [("the node", *_fewest(counts))] if counts else []


def _fewest(counts: dict[str, int]) -> tuple[float, str]:
    least = min(counts.values())
    low = [name for name, count in counts.items() if count == least]
    return float(least), f"{', '.join(low[:8])} of {len(counts)}" if len(low) < len(counts) else ""


def _ratio(rule: Rule, run: Run, profile: Profile) -> list[tuple[str, float, str]]:
    told = []
    for ratio in ratios(run.samples()):
        if ratio.name == rule.metric and profile.backend in (None, ratio.backend):
            note = (
                f"{ratio.intra.busbw_GBps:.4g} GB/s within a node over {ratio.inter.busbw_GBps:.4g} between nodes at "
                f"{format_size(ratio.size_bytes)}, {ratio.label}"
            )
            told.append(("the run", ratio.value, f"{_CROWDED}: {note}" if ratio.oversubscribed else note))
    return told
