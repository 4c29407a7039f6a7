"""What is refused before the first collective: two ranks on one device, ranks that do not come."""

from dataclasses import replace

from commbench.launch.header import header
from commbench.launch.roll_call import _objection, interface_address, loopback_notes
from commbench.launch.spec import LaunchSpec
from commbench.results.plan import Plan, Settings

SPEC = LaunchSpec(run_dir="", journal="", backend="nccl", ranks=4, repetition=1, timeout_s=10)


def _facts(rank, host="node0", device="cuda:0", device_id="0000:19:00.0", address="10.0.0.1"):
    return {"rank": rank, "host": host, "device": device, "device_id": device_id, "address": address}


def test_two_ranks_on_one_gpu_are_refused():
    told = _objection([_facts(0), _facts(1, device_id="0000:3b:00.0"), _facts(2)], SPEC)
    assert "ranks 0 and 2" in told and "node0" in told
    assert _objection([_facts(0), _facts(1, host="node1")], SPEC) is None
    assert _objection([_facts(r, device="cpu", device_id=None) for r in range(4)], SPEC) is None


def test_a_loopback_address_between_hosts_is_told():
    assert loopback_notes([_facts(0, address="127.0.1.1"), _facts(1, address="127.0.1.1")]) == []
    notes = loopback_notes([_facts(0), _facts(1, host="node1", address="127.0.1.1")])
    assert len(notes) == 1 and "rank 1 on node1" in notes[0] and "--iface" in notes[0]


def test_gloo_over_loopback_between_hosts_is_refused_where_no_interface_was_named():
    """It would wait for its own deadlines: every rank tells the others to connect to themselves."""
    cpu = {"device": "cpu", "device_id": None}
    everyone = [_facts(0, **cpu), _facts(1, host="node1", address="127.0.1.1", **cpu)]
    gloo = replace(SPEC, backend="gloo")
    assert "rank 1 on node1 announces 127.0.1.1" in _objection(everyone, gloo)
    assert _objection(everyone, replace(SPEC, backend="mpi")) is None
    assert _objection([{**facts, "interface": "lo"} for facts in everyone], gloo) is None
    assert _objection([everyone[0], {**everyone[1], "host": "node0"}], gloo) is None


def test_the_address_of_an_interface():
    assert interface_address("lo") == "127.0.0.1"
    assert interface_address("nosuch9") is None


def test_the_header_counts_nodes_and_sees_too_few_cores():
    inventory = {"cores": 1, "versions": {"torch": "2"}, "environment": {}, "conf_files": {}, "gpus": []}
    everyone = [
        {**_facts(0, device="cpu"), "inventory": inventory},
        {**_facts(1, host="node1", device="cpu"), "inventory": {**inventory, "environment": {"NCCL_ALGO": "Tree"}}},
        _facts(2, host="node1", device="cpu"),
    ]
    plan = Plan("t", (), Settings(), command=("commbench",))
    head = header(SPEC, plan, everyone)
    assert [rank["node"] for rank in head["ranks"]] == [0, 1, 1] and head["oversubscribed"] is True
    assert [node["host"] for node in head["nodes"]] == ["node0", "node1"]
    assert any("NCCL_ALGO" in note and "node1" in note for note in head["notes"])
