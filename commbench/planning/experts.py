"""Bytes that dispatch and combine of an MoE layer move, with tokens sent once to each node that they need."""

from math import comb

from commbench.planning.layout import Job
from commbench.planning.links import Group, Links, Told
from commbench.shapes import MoE


def distinct(places: int, experts: int, top_k: int) -> float:
    """Distinct places of `places` that a token's top_k experts lie on, expected under uniform routing.

    G (1 - C(E - E/G, K) / C(E, K)): deepseek-ai/DeepEP, get_theoretical_num_sms.
    """
    apart = experts - experts // places
    missing = comb(apart, top_k) / comb(experts, top_k) if apart >= top_k else 0.0
    return places * (1 - missing)


def nodes_reached(moe: MoE, nodes: int) -> float:
    """Distinct nodes that a token's experts lie on, with the node limit where the model has one."""
    reachable = min(nodes, moe.node_limit) if moe.node_limit else nodes
    return distinct(reachable, moe.experts * reachable // nodes, moe.top_k)


def exchange(moe: MoE, group: Group, tokens: float, token_bytes: float, links: Links) -> Told:
    """Time of one dispatch, or one combine: to each remote node one copy, from there to each rank over NVLink.

    Both links work at the same time, so the slower counts (deepseek-ai/DeepEP, normal kernels). tokens: of one rank.
    """
    nodes, ranks = group.domains, group.ranks
    reached = nodes_reached(moe, nodes)
    outside = reached * (nodes - 1) / nodes * tokens * token_bytes
    inside = distinct(ranks, moe.experts, moe.top_k) * tokens * token_bytes * (group.per_domain - 1) / group.per_domain
    near = links.time("all_to_all", Group(group.per_domain, group.per_domain), _total(inside, group.per_domain))
    far = links.time("all_to_all", Group(nodes, 1), _total(outside, nodes))
    return max(near, far, key=lambda told: told.time_us)


def _total(moved: float, places: int) -> float:
    """What all_to_all calls its size where `moved` bytes leave the rank: its own share counted as well."""
    return moved * places / (places - 1) if places > 1 else 0.0


def dispatch_bytes(hidden: int, job: Job) -> float:
    """A token on its way to experts: fp8 with a scale of 4 bytes for each 128 elements, else as it is."""
    return hidden * (1 + 4 / 128) if job.precision == "fp8" else float(job.element_bytes * hidden)
