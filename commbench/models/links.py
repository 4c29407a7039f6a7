"""A fabric from what was measured between pairs of ranks, for the simulation of schedules on it."""

from commbench.errors import UsageError
from commbench.fabrics import Fabric, Link
from commbench.models.loggp import LogGP
from commbench.models.model_file import ModelFile

_WANTED = "`commbench run p2p_latency` measures it, and `commbench fit` makes the model"
_ALL = 131_072


def measured_fabric(models: ModelFile, name: str, per_node: int | None = None) -> Fabric:
    """The fabric whose links are the LogGP models in `models`: L + 2 o as latency, 1 / G as bandwidth.

    `per_node`: ranks of a node, each with a NIC for itself, as a measured pair has. Raises UsageError where the models
    hold no such pairs, those of several libraries or ways of timing, or pairs between nodes and no `per_node`.
    """
    found = [series for series in models.series if series.loggp]
    several = sorted({f"{s.label.get('backend', '?')} {s.label.get('timing', '')}".strip() for s in found})
    if not found:
        raise UsageError(f"{name} holds no model of messages between two ranks; {_WANTED}")
    if len(several) > 1:
        raise UsageError(f"{name} holds models of pairs over {', '.join(several)}; fit the runs of one by itself")
    by_nodes = {series.loggp.nodes: series.loggp for series in found}
    if 2 in by_nodes and per_node is None:
        raise UsageError(f"{name} has pairs between nodes; say how many ranks a node has by --per-node")
    if 1 not in by_nodes and per_node != 1:
        raise UsageError(f"{name} has no pair within a node, so only --per-node 1 can be simulated; {_WANTED}")
    if 2 not in by_nodes and per_node is not None:
        raise UsageError(f"{name} has no pairs between nodes, so nodes of {per_node} ranks cannot be simulated")
    inter = _link(by_nodes[2], name) if 2 in by_nodes else None
    intra = _link(by_nodes[1], name) if 1 in by_nodes else inter
    ranks = per_node or _ALL
    return Fabric(
        name=name,
        shape_source="--per-node, a NIC for each rank" if per_node else "one node: no pair between nodes was measured",
        ranks_per_node=ranks,
        nics_per_node=ranks,
        domain_ranks=ranks,
        gamma_us_per_byte=0.0,
        gamma_source="not determined: messages between two ranks add nothing",
        intra=intra,
        inter=inter or intra,
    )


def _link(pair: LogGP, name: str) -> Link:
    told = {parameter.name: parameter for parameter in pair.parameters}
    latency, slope = told["L_plus_2o_us"], told["G_us_per_byte"]
    for parameter in (latency, slope):
        if parameter.value is None:
            where = "within a node" if pair.nodes == 1 else "between nodes"
            raise UsageError(f"{name}: {parameter.name} of a pair {where} is {parameter.note}; {_WANTED}")
    source = f"fitted to {pair.points} points"
    bandwidth_GBps = 1 / slope.value / 1e3
    return Link(latency.value, source, bandwidth_GBps, source, bandwidth_GBps, "the same: no datasheet is known")
