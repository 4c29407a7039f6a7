"""Are all nodes alike, is the network the one that was bought, and did error counters rise: from a run's headers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from commbench.acceptance.wording import folded
from commbench.results.store import Run
from commbench.world.environment import differences

# What makes a node another machine, or a part of it slow; the rest that differs is only named.
_FAILS = {"GPUs", "active NVLinks of the GPUs", "NICs", "NIC ports", "PCIe of the GPUs", "PCIe of the NICs"}


@dataclass(frozen=True)
class Finding:
    """level: "fail" or "warn". hosts: the nodes it is about, empty where it is about the whole run."""

    level: str
    hosts: tuple[str, ...]
    text: str


def inventoried(run: Run) -> list[str]:
    """The hosts of which the newest launch tells more than the name."""
    headers = [launch.header for launch in run.launches if launch.header]
    return [node["host"] for node in _nodes(headers[-1]) if dict(_facts(node))] if headers else []


def findings(run: Run) -> list[Finding]:
    """All that the inventory says against a run, what fails first; empty where its launches have told no nodes."""
    headers = [launch.header for launch in run.launches if launch.header]
    nodes = _nodes(headers[-1]) if headers else []
    found = [*unlike(nodes), *_sockets(headers, nodes), *increases(run)]
    return sorted(found, key=lambda finding: finding.level != "fail")


def unlike(nodes: list[dict]) -> list[Finding]:
    """What differs between nodes: each that differs from what most of them have, and in what."""
    facts = [dict(_facts(node)) for node in nodes]
    found = []
    for key in dict.fromkeys(key for told in facts for key in told):
        values = [told.get(key, "none") for told in facts]
        usual, count = Counter(values).most_common(1)[0]
        for value in dict.fromkeys(values):
            if value != usual:
                hosts = tuple(node["host"] for node, own in zip(nodes, values) if own == value)
                level = "fail" if key in _FAILS else "warn"
                others = f"{count} other node{'s' * (count > 1)}"
                have = "has" if count == 1 else "have"
                found.append(Finding(level, hosts, f"{folded(hosts)}: {key} {value}; {others} {have} {usual}"))
    return found + [Finding("warn", (), text) for text in _settings(nodes)]


def _facts(node: dict) -> Iterator[tuple[str, str]]:
    """(what, value) of one node, as far as its inventory tells."""
    gpus, nics = _list(node, "gpus"), _list(node, "infiniband")
    if node.get("cpu"):
        yield "processor", f"{node.get('sockets')} x {node['cpu']}"
    if node.get("kernel"):
        yield "kernel", str(node["kernel"])
    if gpus:
        yield "GPUs", _tally(gpu.get("name", "without a name") for gpu in gpus)
        yield "driver", _tally(gpu.get("driver", "not read") for gpu in gpus)
        yield "memory of the GPUs", _tally(gpu.get("memory_total_bytes") for gpu in gpus)
        links = [gpu.get("nvlink") for gpu in gpus]
        yield "active NVLinks of the GPUs", _tally(x.get("active") if isinstance(x, dict) else x for x in links)
        lanes = [gpu.get("pcie") if isinstance(gpu.get("pcie"), dict) else {} for gpu in gpus]
        yield "PCIe of the GPUs", _tally(f"gen {x.get('generation_max')} x{x.get('width')}" for x in lanes)
    if nics:
        yield "NICs", _tally(f"{nic.get('hca_type')} {nic.get('board_id')}" for nic in nics)
        yield "firmware of the NICs", _tally(nic.get("fw_ver") for nic in nics)
        ports = [port for nic in nics for port in _list(nic, "ports")]
        yield "NIC ports", _tally(f"{x.get('rate')} {x.get('link_layer')} {x.get('state')}" for x in ports)
        lanes = [nic.get("pcie") if isinstance(nic.get("pcie"), dict) else {} for nic in nics]
        yield "PCIe of the NICs", _tally(f"{x.get('speed')} x{x.get('width')}" for x in lanes)


def _list(holder: dict, key: str) -> list[dict]:
    values = holder.get(key)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _tally(values) -> str:
    return ", ".join(f"{count} x {value}" for value, count in sorted(Counter(map(str, values)).items()))


def _settings(nodes: list[dict]) -> list[str]:
    """Differences in versions, environment and conf files, beside a node that has what most have."""
    keys = ("versions", "environment", "conf_files")
    told = [node for node in nodes if all(isinstance(node.get(key), dict) for key in keys)]
    if len(told) < 2:
        return []
    usual = Counter(str([node[key] for key in keys[::2]]) for node in told).most_common(1)[0][0]
    told.sort(key=lambda node: str([node[key] for key in keys[::2]]) != usual)
    return differences(told)


def _sockets(headers: list[dict], nodes: list[dict]) -> list[Finding]:
    """NCCL over sockets between nodes that have a working InfiniBand or RoCE port."""
    states = [port.get("state") for node in nodes for nic in _list(node, "infiniband") for port in _list(nic, "ports")]
    if "ACTIVE" not in states or len(nodes) < 2:
        return []
    for header in headers:
        library = header.get("library") if isinstance(header.get("library"), dict) else {}
        ways = [library.get("network"), *(library.get("transports") or [])]
        if any(str(way).upper() in ("SOCKET", "NET/SOCKET") or str(way).startswith("NET/Socket") for way in ways):
            text = (
                f"NCCL went over sockets though {states.count('ACTIVE')} InfiniBand or RoCE ports are active: look at "
                "NCCL_IB_DISABLE, NCCL_IB_HCA, NCCL_NET and whether the container has /dev/infiniband"
            )
            return [Finding("fail", (), text)]
    return []


def increases(run: Run) -> list[Finding]:
    """Error counters of IB ports and NVLinks, ECC errors and XIDs that rose while a launch of the run measured."""
    found = []
    for launch in run.launches:
        before = {node["host"]: dict(_errors(node)) for node in _nodes(launch.header)}
        for node in launch.after:
            if not isinstance(node.get("host"), str):
                continue
            risen = [
                f"{what} +{count - before[node['host']].get(what, 0)}"
                for what, count in _errors(node)
                if node["host"] in before and count > before[node["host"]].get(what, 0)
            ]
            if risen:
                text = f"{node['host']}: errors rose during {launch.path.name}: {', '.join(risen)}"
                found.append(Finding("warn", (node["host"],), text))
    return found


def _errors(node: dict) -> Iterator[tuple[str, int]]:
    """(what, count) of every error counter of a node."""
    for nic in _list(node, "infiniband"):
        for port in _list(nic, "ports"):
            for name, count in _numbers(port.get("errors")):
                yield f"{nic.get('name')} port {port.get('port')} {name}", count
    for gpu in _list(node, "gpus"):
        nvlink = gpu.get("nvlink") if isinstance(gpu.get("nvlink"), dict) else {}
        for kind, counts in (("ECC", gpu.get("ecc")), ("XID", gpu.get("xids")), ("NVLink", nvlink.get("errors"))):
            for name, count in _numbers(counts):
                yield f"GPU {gpu.get('index')} {kind} {name}", count


def _numbers(counts) -> list[tuple[str, int]]:
    return [(name, count) for name, count in counts.items() if type(count) is int] if isinstance(counts, dict) else []


def _nodes(header: dict) -> list[dict]:
    return [node for node in header.get("nodes", []) if isinstance(node.get("host"), str)]
