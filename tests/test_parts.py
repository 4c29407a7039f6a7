"""Guilty parts as verdicts: in `accept` itself, each node, rail and switch beside the others, and the inventory."""

import argparse
import json
import shlex

import pytest
from judged import G, node, row, stored
from ladders import climb, cluster, header

from commbench.acceptance.judge import judge
from commbench.acceptance.profile import load_profile
from commbench.cli import run as run_verb
from commbench.cli.planning import suite_tables
from commbench.reports.accept_page import accept_page
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite

H100 = load_profile("h100-8x400g")
NODE = {"cpu": "x", "sockets": 2, "kernel": "6.1", "gpus": [{"name": "NVIDIA H100 80GB HBM3"}] * 2}


def judged(folder, nodes=8, slow=None, per_node=2, topology=None, **of_node):
    climb(folder, nodes, per_node, cluster(per_node, slow), header(nodes, per_node, **of_node))
    return judge(load_run(folder), H100, topology)


def of(told, rule) -> dict:
    return {v.subject: v.word for v in told.all if v.rule == rule}


def test_a_node_that_pairs_accuse_fails_and_is_told_first(tmp_path):
    told = judged(tmp_path, slow={(5, "in"): 0.5})
    assert of(told, "pairs of nodes") == {
        "node n5, receiving": "fail", **{f"node n{i}": "pass" for i in (0, 1, 2, 3, 4, 6, 7)},
        "rail 0": "pass", "rail 1": "pass",
    }  # fmt: skip
    culprit = next(v for v in told.all if v.word == "fail")
    assert culprit.subject == "node n5, receiving" and culprit.measured == pytest.approx(24)
    assert culprit.expected == pytest.approx(48) and culprit.tolerance == "fail below 43.2"
    assert "112 one-way rates between 8 nodes at 64M" in culprit.source and "confidence over 99.99%" in culprit.note
    assert culprit.again == "commbench run p2p_bw --backend nccl --size 64M --split 'rail pairs' --window 4 --root 0,1"
    assert "pairs of nodes, node n5, receiving" in told.reason and any("cable" in thing for thing in culprit.look_at)


def test_what_it_has_slowed_says_so(tmp_path):
    told = judged(tmp_path, slow={(5, "in"): 0.5, (2, "inside"): 0.6})
    assert of(told, "each node by itself") == {f"node n{i}": "fail" if i == 2 else "pass" for i in range(8)}
    rails = [v for v in told.verdicts if v.rule == "rails by all_gather"]
    assert {v.word for v in rails} == {"fail"} and all(v.note == "holds n5, slow beside the others" for v in rails)
    links = [v for v in told.verdicts if v.rule == "links between nodes" and v.word == "fail"]
    assert len(links) == 14 and all("n5" in v.subject and v.note.startswith("holds n5") for v in links)


def test_a_healthy_cluster_passes_part_by_part(tmp_path):
    told = judged(tmp_path, **{f"n{i}": NODE for i in range(8)})
    assert {v.word for v in told.parts} == {"pass"} and len(told.parts) == 8 + 8 + (8 + 2)


def test_a_slow_rail_is_one_verdict_and_no_node_is_blamed_for_it(tmp_path):
    def rate(a, b):
        return 400.0 if a // 2 == b // 2 else 24.0 if a % 2 == b % 2 == 1 else 48.0

    climb(tmp_path, 6, 2, rate)
    told = judge(load_run(tmp_path), H100)
    assert of(told, "pairs of nodes") == {
        "rail 1": "fail",
        "rail 0": "pass",
        **{f"node n{i}": "pass" for i in range(6)},
    }


def test_switches_from_a_file(tmp_path):
    leaf = tmp_path / "topology.toml"
    leaf.write_text('[switches]\nleaf1 = "n[0-3]"\nleaf2 = "n[4-7]"\nleaf3 = "n[8-11]"\n')

    def rate(a, b):
        here, there = a // 4, b // 4
        return 48.0 if here == there or 1 not in (here, there) else 12.0

    climb(tmp_path / "run", 12, 1, rate)
    told = judge(load_run(tmp_path / "run"), H100, leaf)
    found = of(told, "pairs of nodes")
    assert found["leaf switch leaf2"] == "fail" and found["leaf switch leaf1"] == found["leaf switch leaf3"] == "pass"
    assert found["node n0"] == "pass" and "node n4" not in found
    (culprit,) = [v for v in told.parts if v.word == "fail"]
    assert "the uplinks of leaf switch leaf2 are slow in both directions" in culprit.note


def test_too_few_figures_make_a_warning(tmp_path):
    climb(tmp_path, 3, 1, cluster(1, {(1, "out"): 0.5}))
    run = load_run(tmp_path)
    told = judge(run, H100)
    assert of(told, "pairs of nodes")["node n1, sending"] == "warn" and not [v for v in told.parts if v.word == "fail"]


def test_of_two_nodes_the_one_that_cannot_be_known_is_no_pass(tmp_path):
    told = judged(tmp_path, nodes=2, slow={(0, "out"): 0.1}, per_node=1)
    assert of(told, "pairs of nodes") == {"node n0": "warn", "node n1": "warn", "n0 -> n1": "warn"}
    link = next(v for v in told.parts if v.subject == "n0 -> n1")
    assert link.measured == pytest.approx(4.8) and "either may be guilty" in link.note


def test_the_inventory_judges_nodes_and_the_run(tmp_path):
    odd = NODE | {"gpus": [{"name": "NVIDIA H800"}] * 2}
    older = NODE | {"kernel": "5.4"}
    told = judged(tmp_path, 4, n0=NODE, n1=NODE, n2=odd, n3=older)
    assert of(told, "inventory") == {"n2": "fail", "n3": "warn", "n0": "pass", "n1": "pass"}
    (failed,) = [v for v in told.parts if v.word == "fail"]
    assert failed.note == "n2: GPUs 2 x NVIDIA H800; 3 other nodes have 2 x NVIDIA H100 80GB HBM3"
    assert failed.source == "the inventory of the run's 4 nodes" and told.word in ("fail", "error")


def test_sockets_are_a_verdict_on_the_run(tmp_path):
    port = {"state": "ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}
    inventory = {"infiniband": [{"name": "mlx5_0", "ports": [port]}]}
    ranks = [{"rank": r, "host": f"n{r // 8}", "node": r // 8} for r in range(16)]
    head = {
        "nodes": [{"host": f"n{i}", **inventory} for i in range(2)],
        "ranks": ranks,
        "library": {"network": "Socket"},
    }
    run = stored(tmp_path / "run", [row("all_reduce", 5, G, 16, nodes=2, scope="mixed")], head)
    told = judge(run, H100)
    assert of(told, "inventory") == {"the run": "fail", "n0": "pass", "n1": "pass"}
    assert "NCCL went over sockets" in next(v.note for v in told.parts if v.word == "fail")


def test_hosts_of_which_only_the_name_is_known_have_no_inventory(tmp_path):
    assert of(judged(tmp_path), "inventory") == {}


def test_parts_that_pass_are_no_verdict_of_the_profile(tmp_path):
    ranks = [{"rank": r, "host": f"n{r // 8}", "node": r // 8} for r in range(16)]
    head = {"nodes": [{"host": f"n{i}", **NODE} for i in range(2)], "ranks": ranks}
    told = judge(stored(tmp_path / "run", [row("broadcast", 40, G, 16, nodes=2, scope="mixed")], head), H100)
    assert {v.word for v in told.parts} == {"pass"} and (told.word, told.code) == ("error", 3)
    assert told.reason == "nothing of this run is judged by profile h100-8x400g"


def test_a_run_of_one_node_has_no_parts(tmp_path):
    told = judge(stored(tmp_path / "run", node("all_reduce", 476)), H100)
    assert told.parts == () and told.word == "pass"


def parsed(command: str):
    words = shlex.split(command)
    assert words[:2] == ["commbench", "run"]
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    return parser.parse_args(words[2:])


def test_every_command_measures_what_its_verdict_is_about(tmp_path):
    profile = load_profile("h100-8x400g")
    slow = {(3, "in"): 0.5, (2, "inside"): 0.6}
    climb(tmp_path, 5, 8, cluster(8, slow, 370.0, 48.0), profile=profile)
    told = judge(load_run(tmp_path), profile)
    node_of = [rank // 8 for rank in range(40)]
    commands = {(v.again, v.op, v.size_bytes) for v in told.all if v.again and v.word != "skip"}
    assert len(commands) > 20
    for command, op, size in commands:
        args = parsed(command)
        suite = check_suite(suite_tables(args), command)
        points = [p for step in expand(suite, 40, args.backend.split(","), node_of) for p in step]
        assert {(p.op, p.params["requested_bytes"], p.status) for p in points} == {(op, size, "ok")}, command
    good = [v for v in told.verdicts if "good nodes" in v.subject]
    assert good and all("--split 0,1,2" in v.again and ",16," not in v.again for v in good)


def test_the_page_shows_the_culprit_and_the_matrix(tmp_path):
    told = judged(tmp_path, slow={(5, "in"): 0.5})
    page = accept_page(told)
    assert page.index("pairs of nodes: node n5, receiving") < page.index("rails by all_gather")
    assert "receiver&#39;s median" in page or "receiver's median" in page
    matrix = page[page.index("Every pair") :]
    assert matrix.count('class="num low">50 %') == 8 and "<script" not in page  # seven senders, and their median


@pytest.mark.full
def test_a_page_of_many_nodes_lists_those_that_are_slow(tmp_path):
    told = judged(tmp_path, nodes=70, slow={(9, "in"): 0.5}, per_node=1)
    page = accept_page(told)
    assert "Every pair" not in page and "69 more nodes" in page and "<td>n9</td>" in page


def test_hosts_from_strangers_are_escaped(tmp_path):
    climb(tmp_path, 4, 1, cluster(1, {(1, "in"): 0.1}))
    for journal in tmp_path.glob("launch-*.jsonl"):
        journal.write_text(journal.read_text().replace('"n1"', json.dumps("<script>alert(1)</script>\u001b[2J")))
    page = accept_page(judge(load_run(tmp_path), H100))
    assert "<script" not in page and "\x1b" not in page and "&lt;script&gt;alert(1)" in page
