"""The ladder: stage after stage, suspects met again, the guilty left out, and a stop where the network is wrong."""

import json

import pytest
from ladders import climb, cluster, header, measure, planned
from runs import commbench, run_in_process

from commbench.acceptance.accuse import accuse, lines, to_json
from commbench.acceptance.ladder import next_stage
from commbench.errors import MeasureError
from commbench.results.plan import Plan
from commbench.results.store import exit_code, load_run


def groups(run, start) -> set:
    return {point.group for point in run.plan.points() if point.group.startswith(start)}


def test_a_healthy_cluster_climbs_to_the_end(tmp_path):
    assert climb(tmp_path, 8, 2, cluster()) == ["stage rails", "stage pairs", "stage scale", "stage soak"]
    run = load_run(tmp_path)
    assert exit_code(run) == (0, "")
    assert groups(run, "first") == {"first 2 nodes", "first 4 nodes", "first 8 nodes"}
    assert run.plan.points()[-1].params["soak_s"] == 180 and groups(run, "again") == set()
    found = accuse(run)
    assert found.culprits == found.suspects == []
    assert lines(found)[0] == "no culprit: every part reaches what the others do"


def test_the_guilty_meet_others_again_and_are_left_out_of_what_follows(tmp_path):
    told = climb(tmp_path, 8, 2, cluster(slow={(5, "in"): 0.5}))
    assert told == [
        "stage rails", "stage pairs", "stage again, other partners for n5", "stage scale leaves out n5", "stage scale",
        "stage soak leaves out n5", "stage soak",
    ]  # fmt: skip
    run = load_run(tmp_path)
    assert groups(run, "first") == {"first 2 good nodes", "first 4 good nodes", "first 7 good nodes"}
    assert all(not {10, 11} & set(point.members) for point in run.plan.points()[-9:])
    (culprit,) = accuse(run).culprits
    assert (culprit.kind, culprit.hosts, culprit.side, round(culprit.share, 2)) == ("node", ("n5",), "in", 0.5)
    assert lines(accuse(run))[0].startswith(
        "CULPRIT node n5 is slow to receive: 50% of what others reach (24 of 48 GB/s)"
    )
    assert run.plan.hash == planned(8, 2).hash  # journals of the first stage belong to the plan still


def test_a_node_that_is_slow_within_itself(tmp_path):
    climb(tmp_path, 4, 2, cluster(slow={(2, "inside"): 0.45}))
    found = accuse(load_run(tmp_path))
    (culprit,) = found.culprits
    assert (culprit.kind, culprit.hosts) == ("inside", ("n2",)) and culprit.share == pytest.approx(0.45, rel=0.01)
    assert lines(found)[0].startswith("CULPRIT node n2 is slow within itself: 45% of what others reach, in 6 of 6")
    assert json.loads(json.dumps(to_json(found)))["culprits"][0]["hosts"] == ["n2"]


def test_where_most_nodes_are_guilty_none_is_left_out(tmp_path):
    slow = {(0, "inside"): 0.5, (1, "out"): 0.1, (1, "in"): 0.1, (2, "out"): 0.2, (2, "in"): 0.2}
    climb(tmp_path, 4, 2, cluster(slow=slow))
    assert len(accuse(load_run(tmp_path)).culprits) == 3
    assert groups(load_run(tmp_path), "first") == {"first 2 nodes", "first 4 nodes"}


def test_one_node_has_only_what_one_node_can_have(tmp_path):
    climb(tmp_path, 1, 4, cluster(4))
    run = load_run(tmp_path)
    assert {s.point.op for s in run.samples() if s.status == "ok"} == {"all_gather", "all_reduce"}
    assert accuse(run).between == {}


def test_sockets_in_place_of_infiniband_stop_the_ladder(tmp_path):
    port = {"state": "ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}
    node = {"infiniband": [{"name": "mlx5_0", "ports": [port]}]}
    head = header(2, 2, n0=node, n1=node) | {"library": {"network": "Socket"}}
    planned(2, 2).save(tmp_path / "plan.json")
    measure(tmp_path, head, cluster())
    with pytest.raises(MeasureError, match="NCCL went over sockets though 2 InfiniBand or RoCE ports are active"):
        next_stage(load_run(tmp_path))
    code, reason = exit_code(load_run(tmp_path))
    assert code == 3 and reason == "stage 'rails' and what follows it have not been measured"


def test_a_node_of_another_make_is_left_out(tmp_path):
    node = {"gpus": [{"name": "NVIDIA H100 80GB HBM3"}] * 2}
    other = {"gpus": [{"name": "NVIDIA H800"}] * 2}
    head = header(4, 2, n0=node, n1=node, n2=other, n3=node)
    assert "stage scale leaves out n2" in climb(tmp_path, 4, 2, cluster(), head)


def test_a_plan_with_stages_is_read_back_as_it_was(tmp_path):
    plan = planned(4, 2)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan and [name for name, _ in plan.later] == [
        "rails", "pairs", "scale", "soak",
    ]  # fmt: skip


def test_above_64_nodes_a_node_costs_the_same_however_many_there_are(tmp_path):
    def pairs(nodes):
        later = dict(planned(nodes, 2).later)
        return sum(len(step) for step in later["pairs"])

    assert pairs(64) == 63 * 32 * 2 * 2  # every pair of nodes, both rails, both directions
    assert pairs(96) / 96 == pairs(192) / 192 == 16 * 2 * 2 / 2  # 16 drawn partners
    plan = planned(192, 2)
    plan.save(tmp_path / "plan.json")
    points = len(plan.points()) + sum(len(step) for _, steps in plan.later for step in steps)
    assert (tmp_path / "plan.json").stat().st_size < 200 * points and Plan.load(tmp_path / "plan.json") == plan


@pytest.mark.full
def test_a_soak_goes_on_for_its_time(tmp_path):
    tables = {
        "name": "x", "settings": {"target": 0.99, "budget_s": 0.1, "max_samples": 20},
        "measure": [{"op": "all_reduce", "size": "8", "soak_s": 1.5}, {"op": "all_reduce", "size": "8"}],
    }  # fmt: skip
    assert run_in_process(tables, tmp_path, 2) == (0, "")
    soak, other = load_run(tmp_path).samples()
    assert soak.stop_reason == "budget" and len(soak.samples_us) > 100 > 20 >= len(other.samples_us)


def test_groups_that_leave_ranks_out_follow_each_other(tmp_path):
    """torch names a group by how many groups a rank has, and ranks that sat out had fewer."""
    tables = {
        "name": "x", "settings": {"iters": 1, "warmup": 0, "timeout_s": 20},
        "measure": [{"op": "p2p_bw", "size": "8", "split": ["0,1", "0,2", "1,2", "0,1"], "window": 1}],
    }  # fmt: skip
    assert run_in_process(tables, tmp_path, 3) == (0, "")
    assert len(load_run(tmp_path).samples()) == 3


@pytest.mark.full
def test_stages_are_run_one_after_another(tmp_path):
    suite = tmp_path / "two.toml"
    suite.write_text(
        'name = "two"\n[settings]\niters = 2\n[[measure]]\nstage = "a"\nop = "all_reduce"\nsize = "8"\n'
        '[[measure]]\nstage = "b"\nop = "all_gather"\nsize = "8"\nsplit = "first 1 nodes"\n'
    )
    out = tmp_path / "run"
    done = commbench("run", suite, "--ranks", 2, "--backend", "gloo", "--out", out, "--no-report")
    assert done.returncode == 0, done.stderr
    assert "stage b: 1 point(s)" in done.stdout and "2 ok of 2 points" in done.stdout
    assert len(load_run(out).launches) == 2 and load_run(out).plan.later == ()
    assert commbench("status", out).returncode == 0


def test_a_stage_with_wrong_data_is_the_last_one(tmp_path, monkeypatch):
    from commbench.cli.climb import climb as climb_run

    planned(2, 2).save(tmp_path / "plan.json")
    measure(tmp_path, header(2, 2), cluster())
    journal = tmp_path / "launch-001.jsonl"
    journal.write_text(journal.read_text().replace('"status": "ok"', '"status": "wrong"', 1))
    plan, code, _ = climb_run(tmp_path, None, None, 5, "wrong data")
    assert code == 5 and [name for name, _ in plan.later] == ["rails", "pairs", "scale", "soak"]


def test_isolate_as_a_command(tmp_path):
    climb(tmp_path / "good", 4, 1, cluster(1))
    climb(tmp_path / "bad", 4, 1, cluster(1, slow={(1, "out"): 0.1}))
    assert commbench("isolate", tmp_path / "good").returncode == 0
    done = commbench("isolate", tmp_path / "bad")
    assert done.returncode == 1 and "CULPRIT node n1 is slow to send: 10%" in done.stdout
    told = json.loads(commbench("isolate", tmp_path / "bad", "--json").stdout)
    assert told["between"]["nccl"]["share_out"] == [[1.0], [0.1], [1.0], [1.0]]
    assert told["between"]["nccl"]["share_in"] == [[1.0]] * 4
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=leaf1 Nodes=x[0-3]\n")
    done = commbench("isolate", tmp_path / "bad", "--topology", topology)
    assert done.returncode == 2 and "has none of this run's nodes (n0, n1, n2, n3, ...)" in done.stderr


def test_a_run_without_pairs_has_nothing_to_tell_by(tmp_path):
    tables = {"name": "x", "settings": {"iters": 1}, "measure": [{"op": "barrier"}]}
    assert run_in_process(tables, tmp_path, 2)[0] == 0
    done = commbench("isolate", tmp_path)
    assert done.returncode == 3 and "has no rates between pairs of nodes" in done.stderr
