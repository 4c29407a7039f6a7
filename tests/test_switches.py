"""Leaf switches from Slurm's topology.conf, from a site's TOML, and from what Slurm told each node."""

import pytest

from commbench.acceptance.switches import read_switches, switches_of
from commbench.errors import UsageError

HOSTS = ("node001", "node002", "node003", "node101.cluster", "login")


@pytest.mark.parametrize(
    "text",
    [
        "# racks\nSwitchName=leaf1 Nodes=node[001-003]  # left\nswitchname=leaf2 nodes=node[100-120] LinkSpeed=1\n"
        "SwitchName=spine Switches=leaf[1-2]\n",
        "SwitchName=leaf1 \\\n Nodes=node001,node00[2-3]\nSwitchName=leaf2 Nodes=node101\n",
        'site = "x"\n[switches]\nleaf1 = "node[001-003]"\nleaf2 = ["node101", "node[102-104]"]\n',
    ],
)
def test_files_that_name_switches(text, tmp_path):
    path = tmp_path / "topology"
    path.write_text(text)
    assert read_switches(path, HOSTS) == {"leaf1": [0, 1, 2], "leaf2": [3]}


@pytest.mark.parametrize(
    "text, told",
    [
        ("", r"has no table \[switches\]"),
        ("leaf1 node[1-3]", "is no TOML"),
        ("[switches]\nleaf1 = 3\n", "neither a node list"),
        ("[switches]\nleaf1 = 'node['\n", "malformed"),
        ("[switches]\na = 'node001'\nb = 'node001'\n", "puts node001 below a and below b"),
        ("SwitchName=leaf1 Nodes=other[1-3]\n", "has none of this run's nodes"),
        ("SwitchName=leaf1 Nodes=node[1-999999999]\n", "more nodes than any cluster"),
        ("[" * 5000, "is no TOML"),
    ],
)
def test_files_that_cannot_be_used(text, told, tmp_path):
    path = tmp_path / "topology"
    path.write_text(text)
    with pytest.raises(UsageError, match=told) as error:
        read_switches(path, HOSTS)
    assert str(error.value).startswith(f"topology file {path}") and "MASTER_ADDR" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "none", tmp_path / "binary"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_switches(path, HOSTS)


def test_what_slurm_told_each_node():
    def node(host, address):
        return {"host": host, "environment": {"SLURM_TOPOLOGY_ADDR": address}}

    header = {"nodes": [node("node001", "spine.leaf1.node001"), node("node003", "spine.leaf2.node003"),
                        node("node002", "spine.leaf1.node002"), node("other", "spine.leaf1.other")]}  # fmt: skip
    assert switches_of(header, HOSTS) == {"spine.leaf1": [0, 1], "spine.leaf2": [2]}
    assert switches_of({"nodes": [node("node001", "node001"), {"host": "node002", "environment": 3}]}, HOSTS) == {}
    assert switches_of({}, HOSTS) == {}
