"""Fitted models as input of other programs: NCCL's tuner plugin, SimAI, ASTRA-sim."""

import numpy as np

from commbench import __version__
from commbench.errors import CommbenchError, MeasureError
from commbench.models.answer import busbw_GBps, times_us
from commbench.models.curve import Curve
from commbench.models.model_file import SeriesModel
from commbench.results.nccl_tests import one_line

# ext-tuner/example/plugin.c of NVIDIA/nccl takes any other word for allreduce, ring or simple, so none may be written.
_TUNER_OPS = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter", "broadcast": "broadcast",
    "reduce": "reduce",
}  # fmt: skip
_TUNER_ALGORITHMS = {
    "tree": "tree", "ring": "ring", "collnetdirect": "collnet_direct", "collnetchain": "collnet_chain", "nvls": "nvls",
    "nvlstree": "nvls_tree", "pat": "pat",
}  # fmt: skip
_TUNER_PROTOCOLS = ("ll", "ll128", "simple")
_TUNER_COLUMNS = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
_PER_OCTAVE = 16

# calbusbw.cc of aliyun/SimAI finds a column by its place: these node counts, then four it uses for groups of nodes.
_SIMAI_NODES = (1, 2, 4, 8, 16, 32, 64, 128)
_SIMAI_OTHERS = ("Multi 16", "Multi 32", "Multi 64", "Multi (NIC)")

_GIB_PER_GB = 1e9 / 2**30
_RING_STEPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def tuner_csv(models: tuple[SeriesModel, ...]) -> str:
    """The fastest algorithm and protocol by size, for each operation and measured world, as the configuration file of
    NCCL's example tuner plugin (NCCL_TUNER_CONFIG_FILE; ext-tuner/example/README.md, v2.30). -1 is any.

    Only sizes that were measured stand in it; NCCL chooses for the others as without it. Raises MeasureError where no
    operation was measured with two forced pairs of algorithm and protocol.
    """
    contenders: dict[tuple, list[tuple[str, str, Curve]]] = {}
    for series in models:
        op, algorithm, protocol = _tuner_names(series)
        if None not in (op, algorithm, protocol):
            for curve in series.curves:
                contenders.setdefault((op, curve.nodes, curve.ranks), []).append((algorithm, protocol, curve))
    lines = []
    for (op, nodes, ranks), found in sorted(contenders.items()):
        if len(found) > 1:
            for low, high, algorithm, protocol in _fastest(found):
                lines.append(f"{op},{low},{high},{algorithm},{protocol},-1,{nodes},{ranks},-1,-1")
    if not lines:
        raise MeasureError(
            "a tuner file chooses among forced algorithms and protocols, and no operation here was measured with two "
            "of them on one world size; measure with --algorithm ring/ll,ring/simple,tree/ll,tree/simple"
        )
    head = [f"# commbench {__version__}: the fastest that was measured", f"# {_TUNER_COLUMNS}"]
    return "\n".join([*head, *lines]) + "\n"


def _tuner_names(series: SeriesModel):
    label = series.label
    algorithm, protocol = label.get("algorithm", "").lower().replace("_", ""), label.get("protocol", "").lower()
    known = protocol if protocol in _TUNER_PROTOCOLS and label.get("backend", "nccl") == "nccl" else None
    return _TUNER_OPS.get(label["op"]), _TUNER_ALGORITHMS.get(algorithm), known


def _fastest(found: list[tuple[str, str, Curve]]):
    """(from bytes, to bytes, algorithm, protocol) over the sizes that all were measured at."""
    low = int(max(curve.size_bytes[0] for *_, curve in found))
    high = int(min(curve.size_bytes[1] for *_, curve in found))
    if low >= high:
        return
    sizes = np.unique(np.geomspace(low, high, 1 + int(np.ceil(_PER_OCTAVE * np.log2(high / low)))).round().astype(int))
    best = np.argmin([curve.time_us(sizes) for *_, curve in found], axis=0)
    starts = [0, *(np.flatnonzero(np.diff(best)) + 1)]
    for start, end in zip(starts, [*starts[1:], None]):
        algorithm, protocol, _ = found[best[start]]
        yield int(sizes[start]), high if end is None else int(sizes[end]) - 1, algorithm, protocol


def simai_csv(series: SeriesModel) -> str:
    """The share of its best bus bandwidth that a size reaches, by nodes, in the form of SimAI's inputs/ratio/*.csv.

    SimAI divides by the last row, takes columns by their place and an empty cell as no loss; what the model cannot tell
    is empty. Raises MeasureError where it can tell no node count of SimAI's.
    """
    op = series.label["op"]
    if busbw_GBps(op, 2, 1, 1) is None:
        raise MeasureError(f"SimAI's ratios are of bus bandwidth, and {op} has none")
    per_node = max((c.ranks // c.nodes for c in series.curves), default=1)
    low, high = min(c.size_bytes[0] for c in series.curves), max(c.size_bytes[1] for c in series.curves)
    sizes = 2.0 ** np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    columns = [_efficiency(series, per_node * nodes, nodes, sizes) for nodes in _SIMAI_NODES]
    if not len(sizes) or not any(columns):
        raise MeasureError(
            f"{series.name} says nothing of {', '.join(map(str, _SIMAI_NODES))} nodes of {per_node} ranks"
        )
    names = [f"{n} Node-{n * per_node}GPU" for n in _SIMAI_NODES]
    lines = [",".join(["Size", *names, *_SIMAI_OTHERS])]
    for row, size in enumerate(sizes):
        cells = [f"{column[row]:.4g}" if column else "" for column in columns]
        lines.append(",".join([str(int(size)), *cells, *("" for _ in _SIMAI_OTHERS)]))
    return "\n".join(lines) + "\n"


def _efficiency(series: SeriesModel, ranks: int, nodes: int, sizes) -> list[float] | None:
    try:
        times = times_us(series, ranks, nodes, sizes)
    except CommbenchError:
        return None
    busbw = np.array([busbw_GBps(series.label["op"], ranks, s, t) or np.nan for s, t in zip(sizes, times)])
    return (busbw / busbw.max()).tolist() if np.all(np.isfinite(busbw)) else None


def astra_yaml(series: SeriesModel, ranks: int, nodes: int) -> str:
    """A network for ASTRA-sim's analytical back end (topology, npus_count, bandwidth, latency) with the link figures at
    which a ring takes the measured time: Switch dimensions, one within the node and one between nodes.

    Bandwidth is per NPU and direction in GB of 2^30 bytes, as the back end counts it; a Switch adds its latency twice
    (to the switch and from it), so half of a hop's is written. Between nodes an NPU has the share 1/g of the ring's
    bus bandwidth. Raises MeasureError naming what was not measured.
    """
    op = series.label["op"]
    if op not in _RING_STEPS:
        raise MeasureError(f"ASTRA-sim's links are read off a ring, as of {', '.join(_RING_STEPS)}, not off {op}")
    per_node = ranks // nodes
    dimensions = []
    if per_node > 1:
        inside = max(
            (c for c in series.curves if c.nodes == 1 and c.ranks <= per_node), key=lambda c: c.ranks, default=None
        )
        if inside is None:
            raise MeasureError(
                f"{series.name} was not measured on one node, whose links are wanted; add 2 to {per_node} ranks"
            )
        dimensions.append((per_node, _bandwidth(op, inside), _hop_us(op, inside)))
    if nodes > 1:
        between = next((c for c in series.curves if (c.ranks, c.nodes) == (ranks, nodes)), None)
        hop_us = _parameter(series, "alpha_inter_us")
        if between is None:
            raise MeasureError(
                f"{series.name} was not measured with {ranks} ranks on {nodes} nodes, whose rate is wanted"
            )
        if hop_us is None and per_node > 1:
            raise MeasureError(
                f"{series.name} does not tell the latency between nodes from that within them; measure two values of "
                "ranks per node"
            )
        hop_us = _hop_us(op, between) if hop_us is None else hop_us
        dimensions.append((nodes, _bandwidth(op, between) / per_node, hop_us))
    counts, rates, hops = zip(*dimensions)
    return "\n".join(
        [
            f"# commbench {__version__}: links at which a ring takes the time measured for",
            f"# {one_line(series.name)}, {series.points} points, {series.launches} launch(es)",
            f"topology: [ {', '.join('Switch' for _ in counts)} ]",
            f"npus_count: [ {', '.join(map(str, counts))} ]",
            f"bandwidth: [ {', '.join(f'{rate * _GIB_PER_GB:.4f}' for rate in rates)} ]  # GB/s of 2^30 bytes",
            f"latency: [ {', '.join(f'{1e3 * hop / 2:.2f}' for hop in hops)} ]  # ns, half of a hop",
            "",
        ]
    )


def _bandwidth(op: str, curve: Curve) -> float:
    """The bus bandwidth of the bytes of the largest sizes alone, GB/s."""
    slope = _value(curve, "beta_us_per_byte")
    return busbw_GBps(op, curve.ranks, 1.0, slope)


def _hop_us(op: str, curve: Curve) -> float:
    """The curve's latency over the steps of a ring; the cost of the call itself is in it."""
    return _value(curve, "latency_us") / (_RING_STEPS[op] * (curve.ranks - 1))


def _value(curve: Curve, name: str) -> float:
    found = next(p for p in curve.parameters if p.name == name)
    if found.value is None:
        raise MeasureError(f"{curve.ranks} ranks on {curve.nodes} node(s): {name} is {found.note}")
    return found.value


def _parameter(series: SeriesModel, name: str) -> float | None:
    family = series.family.parameters if series.family else ()
    return next((p.value for p in family if p.name == name and p.value is not None), None)
