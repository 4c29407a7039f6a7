"""What a rule can judge: figures of a row, of a node, of a run."""

from typing import NamedTuple

from commbench.fabrics import Fabric
from commbench.results import metrics
from commbench.results.records import Sample
from commbench.timing.statistics import percentile


class Metric(NamedTuple):
    """`of_rows`: one figure for each row; else one of a node or of the whole run. `what` is for a heading."""

    unit: str
    higher_is_better: bool
    of_rows: bool
    what: str


METRICS = {
    "busbw_GBps": Metric("GB/s", True, True, "bus bandwidth as nccl-tests defines it"),
    "algbw_GBps": Metric("GB/s", True, True, "size over time"),
    "nic_GBps": Metric("GB/s", True, True, "payload of one NIC and direction, as the algorithm loads it"),
    "time_us": Metric("us", False, True, "median time of one call"),
    "tail": Metric("", False, True, "p99 over median of the calls of a soak"),
    "bandwidth_GBps": Metric("GB/s", True, True, "what another tool prints as its bandwidth"),
    "rdma_GBps": Metric("GB/s", True, True, "what DeepEP prints as its bandwidth between nodes"),
    "nvlink_links": Metric("links", True, False, "active NVLinks of the GPU of a node that has fewest"),
    "ratio_ring": Metric("", True, False, "all_gather within a node over one rank of each node"),
    "ratio_p2p": Metric("", True, False, "a pair within a node over a pair between nodes"),
}


REPORTED = ("bandwidth_GBps", "rdma_GBps")  # what an import keeps as it was printed

# What other tools measure and commbench itself does not.
IMPORTED = (
    "rdma_write_bw", "rdma_read_bw", "send_bw", "device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce",
    "moe_dispatch", "moe_combine",
)  # fmt: skip

# Some rank must take in, or send out, as many bytes as busbw counts, whatever the algorithm is.
BOUND_BY_A_LINK = (
    "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "broadcast", "reduce", "sendrecv", "p2p_bw",
)  # fmt: skip


def tail(sample: Sample) -> float | None:
    """p99 over median of the samples; None where it was no soak, or is too short for a p99."""
    p99 = percentile(sample.samples_us, 99)
    return p99 / percentile(sample.samples_us, 50) if p99 and "soak_s" in sample.point.params else None


def bandwidth_GBps(sample: Sample) -> float | None:
    return _reported(sample, "bandwidth_GBps")


def rdma_GBps(sample: Sample) -> float | None:
    return _reported(sample, "rdma_GBps")


def time_us(sample: Sample) -> float | None:
    """The median time; of an import without times, the printed one, or what its printed bandwidth means."""
    measured = metrics.time_us(sample) or _reported(sample, "time_us")
    if measured is None and sample.point.size_bytes:
        rate, factor = _reported(sample, "algbw_GBps"), 1.0
        if rate is None:
            rate, factor = _reported(sample, "busbw_GBps"), metrics.bus_factor(sample)
        if rate and factor:
            return sample.point.size_bytes * factor / rate / 1e3
    return measured


def algbw_GBps(sample: Sample) -> float | None:
    """Size over time; the printed one where an import has nothing else."""
    return metrics.bandwidth_GBps(sample, time_us(sample)) or _reported(sample, "algbw_GBps")


def busbw_GBps(sample: Sample) -> float | None:
    """The bus bandwidth by nccl-tests' factor; the printed one where an import has nothing else. None for one rank."""
    algbw, factor = algbw_GBps(sample), metrics.bus_factor(sample)
    if algbw is not None and factor is not None:
        return algbw * factor
    return _reported(sample, "busbw_GBps") if sample.point.ranks != 1 else None


def _reported(sample: Sample, name: str) -> float | None:
    value = sample.reported.get(name)
    return float(value) if type(value) in (int, float) and 0 < value < float("inf") else None


def nic_GBps(sample: Sample, algorithm: str, nodes: int, fabric: Fabric) -> float | None:
    """What one NIC carries one way while the row runs: p NICs and ranks of a domain, k domains, n ranks.

    ring busbw/p; tree and NVLSTree 2 algbw/p for k > 2 and algbw/p for k = 2; CollNet algbw/p; a hierarchical schedule
    of our own busbw (k-1)/(n-1); all_to_all busbw (n-p)/(n-1), whatever its algorithm, since (n-p)/n of a rank's
    buffer leaves the domain; one rank a node busbw. None within one domain, and where the algorithm is not known.
    """
    point, busbw, algbw = sample.point, busbw_GBps(sample), algbw_GBps(sample)
    domains = max(1, nodes * fabric.ranks_per_node // fabric.domain_ranks)
    if domains < 2 or busbw is None:
        return None
    n, p = point.ranks, max(1, point.ranks // domains)
    nics = min(p, fabric.nics_per_node * (fabric.domain_ranks // fabric.ranks_per_node))
    if point.op == "all_to_all":
        return busbw * (n - p) / (n - 1) * p / nics
    if algorithm == "ring" or (p == 1 and point.op in BOUND_BY_A_LINK):
        return busbw / nics
    if algorithm in ("tree", "nvlstree"):
        return (2 if domains > 2 else 1) * algbw / nics
    if algorithm.startswith("collnet"):
        return algbw / nics
    if algorithm == "own:hierarchical":
        return busbw * (domains - 1) / (n - 1)
    return None


def most_busbw_GBps(op: str, ranks: int, nodes: int, fabric: Fabric) -> float | None:
    """What the wire lets through at its nominal rate, whatever the algorithm; None where no bound is known.

    all_reduce may exceed the wire rate, since a switch that adds (NVLS, SHARP) saves bytes: on NVLink each rank then
    sends and takes algbw (n+1)/n, and of several domains each sends and takes the size once.
    """
    if ranks < 2 or op not in (*BOUND_BY_A_LINK, "all_reduce"):
        return None
    domains = max(1, nodes * fabric.ranks_per_node // fabric.domain_ranks)
    link, twice = fabric.intra.nominal_GBps, 2 * (ranks - 1) / ranks
    if domains == 1 or op == "sendrecv":
        return max(link, link * ranks / (ranks + 1) * twice) if op == "all_reduce" else link
    p = max(1, ranks // domains)
    network = min(p, fabric.nics_per_node * (fabric.domain_ranks // fabric.ranks_per_node)) * fabric.inter.nominal_GBps
    if op == "all_reduce":
        return network * twice
    if op == "all_to_all":
        return network / p * (ranks - 1) / (ranks - p)
    if op in ("all_gather", "reduce_scatter"):
        # A domain takes in what it has not, (k-1)/k of the size, while each rank counts (n-1)/n of it.
        return network * domains / (domains - 1) * (ranks - 1) / ranks
    return network
