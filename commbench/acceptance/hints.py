"""The first things to look at where a figure is too low."""

from typing import NamedTuple

from commbench.acceptance.culprits import Part
from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import UNSEEN, Row
from commbench.acceptance.rule import Rule
from commbench.acceptance.verdict import Verdict
from commbench.results.nccl_tests import one_line
from commbench.results.store import Run

# Settings that slow a healthy machine down, or make it run something else than was meant to be judged.
_SUSPECT = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_NET_GDR_LEVEL",
    "NCCL_TOPO_FILE",
)  # fmt: skip

_OF_HOSTS = ("gloo", "mpi")


class Facts(NamedTuple):
    """What a run says of itself: NAME=value of settings under suspicion, and the library's facts of each launch."""

    settings: tuple[str, ...] = ()
    library: tuple[dict, ...] = ()


def facts_of(run: Run) -> Facts:
    return Facts(tuple(_set(run)), tuple(_table(launch.header.get("library")) for launch in run.launches))


def first_things(rule: Rule, row: Row, verdict: Verdict, facts: Facts, profile: Profile) -> tuple[str, ...]:
    """What to check first, the most telling first: what the run itself says, then what is usual for such a figure."""
    told = [f"{name} was set: repeat without it" for name in facts.settings]
    if row.sample.point.backend in _OF_HOSTS:
        told += _host(row)
    elif row.nodes > 1 or row.sample.point.params.get("type") == "internode" or row.sample.point.backend == "verbs":
        told += _network(row, verdict, profile, facts.library)
    else:
        told += _node(rule, row, profile)
    share = _simple_share(verdict.measured, rule.expected) if rule.check == "value" and verdict.measured else None
    if share and row.nodes > 1:
        told.insert(0, f"{verdict.measured:.4g} is about {share} of what is expected: are so many of the links in use?")
    return tuple(told)


def first_things_of(part: Part) -> tuple[str, ...]:
    """What to check first at a part that is slower than its like."""
    if part.kind == "inside":
        return (
            "that all NVLinks are up: nvidia-smi nvlink --status; on hosts without GPUs, where the ranks are bound",
            "clocks, power and heat: nvidia-smi -q -d CLOCK,PERFORMANCE; XID lines in dmesg",
            "what else runs on the node",
        )
    if part.kind in ("rail", "switch", "group"):
        return (
            "the switches and uplinks that these ports share: rates, errors, routes (ibdiagnet; on Ethernet PFC, ECN)",
            "by ib_write_bw between two of these nodes, and from one of them to one of the others",
        )
    return (
        "the port, its cable and transceiver: rate and state in ibstat, rising errors in perfquery or ethtool -S",
        "the PCIe slot of the NIC: speed and width in lspci -vv, ACS, the NUMA node that its rank is bound to",
        "by ib_write_bw against a node that is known to be good, each way; then swap the cable",
    )


def _set(run: Run) -> list[str]:
    """NAME=value of the settings under suspicion, from the environment and NCCL's own files on any node."""
    found = {}
    for launch in run.launches:
        for node in launch.header.get("nodes", []):
            files, variables = (_table(node.get(key)) for key in ("conf_files", "environment"))
            lines = [line for text in files.values() if isinstance(text, str) for line in text.splitlines()]
            for name, value in [*(line.partition("=")[::2] for line in lines), *variables.items()]:
                if name in _SUSPECT:
                    found[name] = one_line(f"{name}={value}")[:100]
    return list(found.values())


def _table(value) -> dict:
    return value if isinstance(value, dict) else {}


def _host(row: Row) -> list[str]:
    network = [
        "that every rank uses the interface that was meant: the headers name it; --iface chooses it",
        "rate, duplex and errors of that interface: ethtool, ip -s link; the same two ends by iperf3 or ib_write_bw",
    ]
    return [
        *network * (row.nodes > 1),
        "what else runs on the node, and whether every rank has a core of its own: rows say `oversubscribed`",
        "clocks, power and heat of the processors; how ranks are bound to cores and to memory",
    ]


def _network(row: Row, verdict: Verdict, profile: Profile, library: tuple[dict, ...]) -> list[str]:
    fabric, told = profile.links, []
    seen = one_line(" ".join(f"{facts.get('network', '')} {facts.get('transports', '')}" for facts in library))
    if "Socket" in seen:
        told.append(
            "NCCL went over sockets, not InfiniBand or RoCE: ibv_devinfo, NCCL_IB_HCA, /dev/infiniband in the container"
        )
    if any(facts.get("gpudirect") is False for facts in library):
        told.append("GPUDirect RDMA is off: load nvidia_peermem or enable DMA-BUF")
    told.append(
        f"that all {f'{fabric.nics_per_node} ' if fabric else ''}NICs of each node are in use: NCCL_DEBUG=INFO lists "
        "them behind `NET/IB : Using`; NCCL_IB_HCA matches prefixes unless it starts with ="
    )
    if not any(facts.get("gpudirect") for facts in library):
        told.append("that GPUDirect RDMA is on: `GDRDMA` in the same log, nvidia_peermem or DMA-BUF on each node")
    told.append(
        "that each GPU has its NIC at PIX or PXB and not at NODE or SYS: nvidia-smi topo -m; a stale NCCL_TOPO_FILE "
        "makes NCCL believe otherwise"
    )
    beside = "by ib_write_bw: line rate there and not here points at GPUDirect, PCIe ACS or, on RoCE, at PFC and ECN"
    if row.scope != "mixed":
        return [*told, f"the same two ends {beside}"]
    told.append(f"each rail by itself: {rails_command(profile)}; then the slow one {beside}")
    if row.sample.point.op == "all_reduce" and row.nodes == 2 and row.algorithm == UNSEEN:
        told.append(
            "by --algorithm ring for a figure of the NICs: over two nodes a tree loads them half as much, so that its "
            "busbw is no measure of them"
        )
    return told


def rails_command(profile: Profile) -> str:
    """What measures each rail by itself."""
    return f"commbench run links --backend {profile.backend or 'nccl'}"


def _node(rule: Rule, row: Row, profile: Profile) -> list[str]:
    told = []
    if rule.expects == "nvls" and row.algorithm != "nvls":
        seen = "not seen" if row.algorithm == UNSEEN else f"{row.algorithm} instead"
        told.append(
            f"whether NVLS ran ({seen}): nv-fabricmanager running, NCCL_NVLS_ENABLE not 0, all GPUs of the node in use"
        )
    return [
        *told,
        "that all NVLinks are up: nvidia-smi nvlink --status; nvidia-smi topo -m has NV"
        + _links(profile)
        + " between all GPUs",
        "clocks, power and heat: nvidia-smi -q -d CLOCK,PERFORMANCE; XID lines in dmesg",
        "that NCCL_P2P_DISABLE is unset and ranks sit on distinct GPUs",
    ]


def _links(profile: Profile) -> str:
    return next((f"{rule.expected:g}" for rule in profile.rule if rule.metric == "nvlink_links"), "n")


def _simple_share(measured: float, expected: float | None) -> str | None:
    """ "1/2" where the figure is within 5 % of that share, as when so many links or rails carry nothing."""
    if not expected:
        return None
    shares = {"1/2": 1 / 2, "1/4": 1 / 4, "1/8": 1 / 8}
    return next((name for name, share in shares.items() if abs(measured / expected / share - 1) < 0.05), None)
