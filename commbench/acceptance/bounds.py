"""What the wire lets through, and what a figure therefore says or cannot say."""

from commbench.acceptance import metrics
from commbench.acceptance.again import command_of_rule
from commbench.acceptance.hints import rails_command
from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import Row
from commbench.acceptance.verdict import Verdict
from commbench.fabrics import Fabric

_ROUNDING = 1.03  # printed figures are rounded, and clocks are not perfect
_HIDES = 0.9  # of the NICs' rate; where NVLink lets less through, a slow NIC does not show


def above_the_wire(row: Row, profile: Profile) -> str:
    """Why the figure of a row cannot be, where it is above what the links let through by any algorithm; else ""."""
    point, fabric, busbw = row.sample.point, profile.links, metrics.busbw_GBps(row.sample)
    most = fabric and metrics.most_busbw_GBps(point.op, point.ranks, row.nodes, fabric)
    if not most or not busbw or busbw <= most * _ROUNDING:
        return ""
    return (
        f"busbw {busbw:.4g} GB/s is above the {most:.4g} that the links of {profile.fabric} let through by any "
        f"algorithm of {point.op}: another machine, or sizes, ranks or the unit are not what they seem"
    )


def above_the_rate(row: Row, profile: Profile) -> str:
    """That a busbw of all_reduce above the rate of the wire is right, where it is; else ""."""
    fabric, busbw = profile.links, metrics.busbw_GBps(row.sample)
    if not fabric or row.sample.point.op != "all_reduce" or not busbw:
        return ""
    one = row.nodes * fabric.ranks_per_node <= fabric.domain_ranks
    wire = fabric.intra.nominal_GBps if one else fabric.nics_per_node * fabric.inter.nominal_GBps
    if busbw <= wire:
        return ""
    return (
        f"above the {wire:g} GB/s of the {'links' if one else 'NICs'}, which is right where the switch adds (NVLS, "
        "SHARP) or a tree joins two nodes: busbw is not the wire rate"
    )


def hidden_share(fabric: Fabric) -> float | None:
    """The share of its rate down to which a NIC may fall before a ring over all ranks of several nodes shows it, where
    NVLink lets less through than the NICs; None where it hides nothing.

    Of p ranks on a node p - 1 hops of a ring are NVLinks, so that a ring moves intra * p/(p-1) at most (aliyun/SimAI
    calbusbw.cc): H800 160 * 8/7 = 183 of the NICs' 8 * 48.
    """
    p = fabric.ranks_per_node
    if fabric.domain_ranks > p or p < 2:
        return None
    share = fabric.intra.bandwidth_GBps * p / (p - 1) / (fabric.nics_per_node * fabric.inter.bandwidth_GBps)
    return share if share < _HIDES else None


def hidden_notes(profile: Profile, verdicts: list[Verdict]) -> list[str]:
    """What the verdicts do not say: NICs that a run over all ranks cannot show."""
    fabric = profile.links
    share = hidden_share(fabric) if fabric else None
    over_nodes = [v for v in verdicts if (v.nodes or 1) > 1 and (v.ranks or 0) > v.nodes]
    if share is None or not over_nodes:
        return []
    rails = [rule for rule in profile.rule if rule.scope == "inter"]
    judged = {v.rule for v in verdicts if v.word in ("pass", "warn", "fail")}
    full = fabric.inter.bandwidth_GBps
    ring = share * fabric.nics_per_node * full
    if any(rule.name in judged for rule in rails):
        tested = "the rails were judged by themselves"
    else:
        how = command_of_rule(rails[0], profile) if rails else rails_command(profile)
        tested = f"no rail was judged, so the NICs are not tested: {how}"
    return [
        f"NVLink is the bottleneck over nodes too: it lets a ring of all ranks move {ring:.0f} GB/s, "
        f"{ring / fabric.nics_per_node:.1f} a NIC, so a NIC that does {share:.0%} of its {full:g} does not show there; "
        + tested
    ]
