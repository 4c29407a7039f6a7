"""The class of each pair of GPUs, held against what real machines have printed: NCCL's dump of one, nvidia-smi's matrix
of others."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_import_cases import one

from commbench.launch.probe import topology
from commbench.world.link_class import link_class, summary

CASES = Path(__file__).parent / "data" / "cases"
(DUMP,) = CASES.glob("29-*")


def node_of_dump(host="a", version=6) -> tuple[list[dict], dict]:
    """(ranks, node) of the OCI H100 node whose topology NCCL has dumped."""
    ranks, gpus = [], []
    for cpu in ElementTree.fromstring(DUMP.read_text().strip()).iter("cpu"):
        for path in _ways(cpu, []):
            gpu, pci = path[-1], path[-2].get("busid")
            peers = {link.get("target"): int(link.get("count")) for link in gpu.iter("nvlink")}
            links = sum(peers.values())
            gpus.append({"pci": pci, "nvlink": {"links": links, "active": links, "version": version, "peers": peers}})
            ranks.append({
                "host": host, "device_id": pci, "numa": int(cpu.get("numaid")), "nic_path": "PXB",
                "pci_path": "/".join([f"pci0000:{cpu.get('numaid')}", *(step.get("busid") for step in path[:-1])]),
            })  # fmt: skip
    return ranks, {"host": host, "gpus": gpus}


def _ways(element, above):
    for child in element:
        if child.tag == "gpu":
            yield [*above, child]
        elif child.tag == "pci":
            yield from _ways(child, [*above, child])


def pairs(ranks, node):
    known = {node["host"]: node}
    return [link_class(a, b, known) for a in ranks for b in ranks if a is not b]


def test_all_pairs_behind_nvswitches_have_all_links_of_a_gpu():
    ranks, node = node_of_dump()
    assert len(ranks) == 8 and pairs(ranks, node) == ["NVLink 4 x 18"] * 56
    node["gpus"][3]["nvlink"]["peers"]["0000:1c:00.0"] -= 1
    node["gpus"][3]["nvlink"]["active"] = 17
    assert sorted(set(pairs(ranks, node))) == ["NVLink 4 x 17", "NVLink 4 x 18"]
    assert summary(ranks, [node], {}) == {"intra": "NVLink 4 x 18 (21 pairs), NVLink 4 x 17 (7 pairs)"}


def test_without_nvlink_the_pci_bus_tells():
    ranks, node = node_of_dump()
    for gpu in node["gpus"]:
        gpu["nvlink"] = "not supported"
    first, second, last = ranks[0], ranks[1], ranks[-1]
    known = {"a": node}
    assert link_class(first, second, known) == "PHB" and link_class(first, last, known) == "SYS"
    beside = {**second, "pci_path": first["pci_path"].rpartition("/")[0] + "/0000:99:00.0"}
    assert link_class(first, beside, known) == "PIX"
    common = "/".join(first["pci_path"].split("/")[:2])
    below = {**second, "pci_path": f"{common}/0000:97:00.0/0000:98:00.0/0000:99:00.0"}
    assert link_class(first, below, known) == "PXB"
    apart = {**second, "pci_path": "pci0000:77/0000:78:00.0"}
    assert link_class(first, apart, known) == "NODE"
    assert link_class(first, {**apart, "numa": None}, known) == "NODE or SYS"
    assert link_class(first, {**apart, "pci_path": None}, known) is None


def test_a_cube_mesh_has_single_and_double_links_and_pairs_without():
    """A DGX-1 as its `nvidia-smi topo -m` prints it: which GPUs have links with which."""
    matrix = {(s.point.params["first"], s.point.params["second"]): s.reported["path"] for s in one("36").samples}
    matrix |= {(b, a): path for (a, b), path in matrix.items()}
    names = sorted({name for pair in matrix for name in pair})
    pci = {name: f"0000:{i:02x}:00.0" for i, name in enumerate(names)}
    gpus = []
    for name in names:
        peers = {pci[b]: int(path[2:]) for (a, b), path in matrix.items() if a == name and path.startswith("NV")}
        gpus.append({"pci": pci[name], "nvlink": {"links": 6, "active": 6, "version": 2, "peers": peers}})
    node = {"host": "a", "gpus": gpus}
    ranks = {
        name: {"host": "a", "device_id": pci[name], "numa": int(i > 3), "pci_path": f"pci0000:{i:02x}/{pci[name]}"}
        for i, name in enumerate(names)
    }
    derived = {(a, b): link_class(ranks[a], ranks[b], {"a": node}) for a, b in matrix}
    assert len(derived) == 56
    assert derived == {
        pair: path.replace("NV", "NVLink 2 x ") if path.startswith("NV") else "SYS" for pair, path in matrix.items()
    }


def test_links_whose_other_end_is_not_told_are_the_gpus():
    ranks, node = node_of_dump(version=4)
    for gpu in node["gpus"]:
        gpu["nvlink"]["peers"] = "not supported"
    assert set(pairs(ranks, node)) == {"NVLink 3, 18 of a GPU, to whom is not told"}


def test_between_nodes_the_way_to_the_card_counts():
    (a, node_a), (b, node_b) = node_of_dump("a"), node_of_dump("b")
    known = {"a": node_a, "b": node_b}
    assert link_class(a[0], b[0], known) == "network, GPU to card PXB"
    assert link_class(a[0], {**b[0], "nic_path": None}, known) == "network, GPU to card PXB and no card near"
    assert summary(a + b, [node_a, node_b], {}) == {"intra": "NVLink 4 x 18", "inter": "network, GPU to card PXB"}


@pytest.mark.parametrize(
    "gpu", [{"not_read": "nvidia-ml-py is not installed"}, {"nvlink": "not readable: GPU is lost"}]
)
def test_where_nvml_is_silent_nccls_own_dump_stands_in_and_no_pci_path_is_claimed(tmp_path, gpu):
    ranks, node = node_of_dump()
    node["gpus"] = [{"pci": rank["device_id"], **gpu} for rank in ranks]
    assert set(pairs(ranks, node)) == {None} and summary(ranks, [node], {}) == {}
    (tmp_path / "topology.xml").write_text(DUMP.read_text())
    told = topology(tmp_path / "topology.xml")["topology"]
    assert summary(ranks, [node], told) == {"intra": "NVLink, 18 of a GPU, as NCCL's topology has it"}


def test_a_dump_that_is_missing_or_damaged_says_nothing(tmp_path):
    assert topology(tmp_path / "none.xml") == {}
    (tmp_path / "bad.xml").write_text("<system><gpu")
    assert topology(tmp_path / "bad.xml") == {}


def test_ranks_on_processors_have_no_class():
    ranks = [{"host": "a", "device_id": None}, {"host": "a", "device_id": None}]
    assert link_class(*ranks, {"a": {"host": "a", "gpus": []}}) is None
    assert summary(ranks, [{"host": "a"}], {"nvlinks_per_gpu": 18}) == {}
