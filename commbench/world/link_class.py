"""The class of the link between two GPU ranks ("NVLink 4 x 18", "PIX", "SYS"), from what their nodes tell.

Derived for a pair when it is asked for, never stored: records stay as many as ranks. Unverified until a GPU has run it.
"""

from collections import Counter

from commbench.world.topology import relation

# nvmlDeviceGetNvLinkVersion's answer to the generation (nvml.h, NVML_NVLINK_VERSION_*).
_GENERATION = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5"}
_NODES_LOOKED_AT = 4  # for a summary: nodes of a cluster are alike, and where not, the inventory says so


def link_class(a: dict, b: dict, nodes: dict[str, dict]) -> str | None:
    """The link between the ranks `a` and `b`, in the words of `nvidia-smi topo -m`; None for ranks on processors, and
    where NVML could not be asked.

    `a` and `b` are ranks as a header lists them, `nodes` its nodes by host. Within a node: NVLink with its generation
    and the number of links between the two (through a switch: all that the GPU with fewer has), else the PCI path: PIX,
    PXB, PHB, then NODE where the kernel puts both into one NUMA node, and SYS. Between nodes: how far each GPU is from
    its card.
    """
    if not a.get("device_id") or not b.get("device_id"):
        return None
    if a.get("host") != b.get("host"):
        ways = sorted({rank.get("nic_path") or "no card near" for rank in (a, b)})
        return f"network, GPU to card {' and '.join(ways)}"
    gpus = {gpu.get("pci"): gpu.get("nvlink") for gpu in nodes.get(a["host"], {}).get("gpus") or []}
    links = [gpus.get(rank["device_id"]) for rank in (a, b)]
    if not all(isinstance(of, dict) or of == "not supported" for of in links):
        return None
    return _nvlink(b["device_id"], links, gpus) or _pci(a, b)


def _nvlink(b: str, links: list, gpus: dict) -> str | None:
    if not all(isinstance(of, dict) and of["active"] for of in links):
        return None
    name = f"NVLink {_GENERATION.get(links[0]['version'], '?')}"
    peers = links[0]["peers"]
    if not all(isinstance(of["peers"], dict) for of in links):
        return f"{name}, {links[0]['active']} of a GPU, to whom is not told"
    if b in peers:
        return f"{name} x {peers[b]}"
    through_switch = [sum(n for pci, n in of["peers"].items() if pci not in gpus) for of in links]
    return f"{name} x {min(through_switch)}" if all(through_switch) else None


def _pci(a: dict, b: dict) -> str | None:
    paths = [tuple((rank.get("pci_path") or "").split("/")) for rank in (a, b)]
    if () in paths or ("",) in paths:
        return None
    if word := relation(*paths):
        return word
    if None in (a.get("numa"), b.get("numa")):
        return "NODE or SYS"
    return "NODE" if a["numa"] == b["numa"] else "SYS"


def summary(ranks: list[dict], nodes: list[dict], topology: dict) -> dict[str, str]:
    """{"intra": ..., "inter": ...}: the classes there are within nodes and between them, the commonest first, each
    with its number of pairs where there are several; a key is missing where nothing is known.

    `topology`: what NCCL's dump says (launch/probe.py), which stands in where NVML could not be asked; {} without it.
    """
    of_host: dict[str, list[dict]] = {}
    for rank in ranks:
        of_host.setdefault(rank.get("host"), []).append(rank)
    known = {node.get("host"): node for node in nodes}
    groups = list(of_host.values())[:_NODES_LOOKED_AT]
    pairs = {
        "intra": [(a, b) for group in groups for i, a in enumerate(group) for b in group[i + 1 :]],
        "inter": [(a, b) for i, one in enumerate(groups) for other in groups[i + 1 :] for a, b in zip(one, other)],
    }
    told = {name: _counted(link_class(a, b, known) for a, b in of_kind) for name, of_kind in pairs.items()}
    links = topology.get("nvlinks_per_gpu")
    if pairs["intra"] and pairs["intra"][0][0].get("device_id") and not told["intra"] and links and type(links) is int:
        told["intra"] = f"NVLink, {links} of a GPU, as NCCL's topology has it"
    return {name: text for name, text in told.items() if text}


def _counted(classes) -> str:
    counts = Counter(one for one in classes if one).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{one} ({count} pairs)" for one, count in counts)
