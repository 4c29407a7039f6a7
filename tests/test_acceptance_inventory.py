"""What differs between nodes, which counters rose, and who is where: from headers, also tampered ones."""

from copy import deepcopy

import pytest
from ladders import climb, header
from test_ladder import cluster

from commbench.acceptance.evidence import meetings_of, places_of
from commbench.acceptance.inventory import findings, increases, unlike
from commbench.results.journal import Journal
from commbench.results.store import load_run

GPU = {
    "index": 0, "name": "NVIDIA H100 80GB HBM3", "driver": "570.1", "memory_total_bytes": 85 << 30,
    "pcie": {"generation": 5, "generation_max": 5, "width": 16, "width_max": 16},
    "nvlink": {"links": 18, "active": 18, "version": 6, "errors": {"replay": 3}},
    "ecc": {"corrected": 0, "uncorrected": 0}, "xids": {},
}  # fmt: skip
NIC = {
    "name": "mlx5_0", "fw_ver": "28.39", "hca_type": "MT4129", "board_id": "MT_0001",
    "pcie": {"speed": "32.0 GT/s PCIe", "width": 16},
    "ports": [{"port": 1, "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand",
               "errors": {"symbol_error": 7, "link_downed": 1}}],
}  # fmt: skip


def node(host, **more) -> dict:
    return {
        "host": host, "cpu": "Xeon", "sockets": 2, "kernel": "6.1", "gpus": [deepcopy(GPU) for _ in range(2)],
        "infiniband": [deepcopy(NIC)], "versions": {"nccl": "2.27"}, "environment": {}, "conf_files": {}, **more,
    }  # fmt: skip


def changed(host, *path, to) -> dict:
    """A node in which the value at `path` is another one."""
    made = holder = node(host)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    return made


def told(nodes):
    return [(found.level, found.hosts, found.text) for found in unlike(nodes)]


def test_nodes_that_are_alike_have_no_findings():
    assert told([node("a"), node("b"), node("c")]) == [] == told([node("a")]) == told([])


@pytest.mark.parametrize(
    "odd, level, text",
    [
        (changed("a", "gpus", 1, "name", to="NVIDIA H800"), "fail",
         "a: GPUs 1 x NVIDIA H100 80GB HBM3, 1 x NVIDIA H800; 2 other nodes have 2 x NVIDIA H100 80GB HBM3"),
        (changed("a", "gpus", 0, "nvlink", "active", to=17), "fail", "active NVLinks of the GPUs 1 x 17, 1 x 18;"),
        (changed("a", "gpus", 0, "pcie", "width", to=8), "fail", "PCIe of the GPUs 1 x gen 5 x16, 1 x gen 5 x8;"),
        (changed("a", "gpus", 0, "driver", to="550.2"), "warn", "driver 1 x 550.2, 1 x 570.1; 2 other nodes have 2 x"),
        (changed("a", "infiniband", 0, "ports", 0, "rate", to="200 Gb/sec"), "fail", "NIC ports 1 x 200 Gb/sec"),
        (changed("a", "infiniband", 0, "ports", 0, "state", to="DOWN"), "fail", "InfiniBand DOWN;"),
        (changed("a", "infiniband", 0, "fw_ver", to="28.36"), "warn", "firmware of the NICs 1 x 28.36; 2 other nodes"),
        (changed("a", "infiniband", 0, "pcie", "speed", to="16.0 GT/s PCIe"), "fail", "PCIe of the NICs 1 x 16.0 GT/s"),
        (changed("a", "infiniband", to=[]), "fail", "NICs none; 2 other nodes have 1 x MT4129 MT_0001"),
        (changed("a", "versions", "nccl", to="2.19"), "warn", "a has nccl 2.19, b has 2.27"),
        (changed("a", "conf_files", to={"/etc/nccl.conf": "NCCL_ALGO=Ring"}), "warn", "a has NCCL_ALGO=Ring in /etc"),
    ],
)  # fmt: skip
def test_the_odd_node_is_named_and_not_the_first(odd, level, text):
    found = told([odd, node("b"), node("c")])
    assert any(l == level and text in sentence for l, _, sentence in found), found  # noqa: E741
    assert all(hosts in (("a",), ()) for _, hosts, _ in found)


def test_counters_that_rose_during_a_launch_are_named(tmp_path):
    head = header(2, 2) | {"nodes": [node("n0"), node("n1")]}
    climb(tmp_path, 2, 2, cluster(), head)
    assert increases(load_run(tmp_path)) == []
    after = changed("n1", "infiniband", 0, "ports", 0, "errors", to={"symbol_error": 12})
    after["gpus"] = [{"index": 0, "nvlink": {"errors": {"replay": 4}}, "ecc": {"uncorrected": 1}, "xids": {"79": 1}}]
    Journal(tmp_path / "launch-002.jsonl").write(
        {"record": "counters", "schema": 1, "nodes": [after, {"host": "n0"}, {}]}
    )
    (found,) = increases(load_run(tmp_path))
    assert found.hosts == ("n1",) and found.text == (
        "n1: errors rose during launch-002.jsonl: mlx5_0 port 1 symbol_error +5, GPU 0 ECC uncorrected +1, "
        "GPU 0 XID 79 +1, GPU 0 NVLink replay +1"
    )
    assert found in findings(load_run(tmp_path))


@pytest.mark.parametrize(
    "library, stops",
    [({"network": "Socket"}, True), ({"network": "IB", "transports": ["NET/IB/0"]}, False), ({}, False),
     ({"network": "IB", "transports": ["NET/Socket/0", "P2P/IPC"]}, True), (3, False)],
)  # fmt: skip
def test_sockets_in_place_of_infiniband(library, stops, tmp_path):
    climb(tmp_path, 2, 2, cluster(), header(2, 2) | {"nodes": [node("n0"), node("n1")], "library": {}})
    journal = tmp_path / "launch-001.jsonl"
    head, rest = journal.read_text().split("\n", 1)
    journal.unlink()
    Journal(journal).write(header(2, 2) | {"nodes": [node("n0"), node("n1")], "library": library})
    with open(journal, "a") as file:
        file.write(rest)
    assert any("sockets" in found.text for found in findings(load_run(tmp_path))) == stops


def test_rails_are_those_of_the_nics_where_they_are_known(tmp_path):
    head = header(2, 2)
    for place, rail in zip(head["ranks"], (1, 0, 1, 0)):
        place["rail"] = rail
    climb(tmp_path, 2, 2, cluster(), head)
    run = load_run(tmp_path)
    assert places_of(run, 4).rail_of == (1, 0, 1, 0) and places_of(run, 3) is None
    assert meetings_of(run)["nccl"].rails == 2


@pytest.mark.parametrize("key, value", [("node", "x"), ("node", 10**9), ("node", None), ("rail", 10**9), ("rail", "1")])
def test_a_tampered_header_is_no_trouble(key, value, tmp_path):
    head = header(2, 2)
    climb(tmp_path, 2, 2, cluster(), head)
    head["ranks"][3][key] = value
    Journal(tmp_path / "launch-999.jsonl").write(head)
    places = places_of(load_run(tmp_path), 4)
    assert places is None if key == "node" else places.rail_of == (0, 1, 0, 1)
    meetings_of(load_run(tmp_path))
