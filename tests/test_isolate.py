"""Who is slow: parts are told apart, partners of bad nodes are not blamed, and what is told is sure."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from benchmarks.isolate_nodes import LOSSES, Cluster, Fault, cells, find, plant

from commbench.acceptance.accuse import Accusation, lines
from commbench.acceptance.culprits import confidence, isolate
from commbench.acceptance.ports import Meetings, judge_ports
from commbench.acceptance.wording import folded, sentence
from commbench.suite.rounds import circle


def met(nodes, rails=1, faults=(), seed=0, noise=0.01, colliding=0.0, rounds=None) -> Meetings:
    """The meetings of a cluster whose first 32 nodes hang on one switch, the next 32 on another one ..."""
    cluster = Cluster(nodes, rails, list(faults), np.random.default_rng(seed), noise, colliding)
    cluster.meet(rounds or circle(nodes))
    return cluster.meetings()


def named(answer):
    return [(part.kind, part.nodes, part.rail, part.side) for part in answer.culprits]


@pytest.mark.parametrize("loss", [0.15, 0.3, 0.9])
@pytest.mark.parametrize(
    "fault, part",
    [
        (Fault("node", 0, (3,), (0, 1, 2, 3)), ("node", (3,), None, None)),
        (Fault("node", 0, (3,), (0, 1, 2, 3), (0,)), ("node", (3,), None, "out")),
        (Fault("port", 0, (3,), (2,)), ("port", (3,), 2, None)),
        (Fault("side", 0, (3,), (2,), (1,)), ("port", (3,), 2, "in")),
        (Fault("rail", 0, tuple(range(8)), (1,)), ("rail", tuple(range(8)), 1, None)),
    ],
)
def test_parts_are_told_apart(fault, part, loss):
    answer = isolate(met(8, 4, [replace(fault, loss=loss)]))
    assert named(answer) == [part] and answer.suspects == ()
    assert answer.culprits[0].share == pytest.approx(1 - loss, rel=0.03) and answer.culprits[0].confidence > 0.99


@pytest.mark.parametrize("inner", [True, False])
def test_a_slow_switch_or_its_uplinks(inner):
    leaf = tuple(range(32))
    meetings = met(96, 1, [Fault("leaf", 0.4, leaf, (0,), inner=inner)])
    switches = {f"leaf{i}": list(range(32 * i, 32 * i + 32)) for i in range(3)}
    with_switches, without = isolate(meetings, switches), isolate(meetings)
    assert named(with_switches) == [("switch", leaf, None, None)] and with_switches.culprits[0].name == "leaf0"
    assert named(without) == [("group", leaf, None, None)]
    assert with_switches.culprits[0].inner == pytest.approx(0.6 if inner else 1, rel=0.02)
    told = sentence(with_switches.culprits[0], 48.0)
    assert ("the uplinks of leaf switch leaf0" in told) == (not inner) and "n[0-31]" in told
    assert "these 32 nodes share a fault" in sentence(without.culprits[0])
    assert ("so it lies beyond them" in sentence(without.culprits[0])) == (not inner)


def test_a_worse_part_within_a_slow_one_is_named_too():
    faults = [Fault("leaf", 0.3, tuple(range(32)), (0, 1)), Fault("port", 0.9, (5,), (1,))]
    switches = {"a": list(range(32)), "b": list(range(32, 64)), "c": list(range(64, 96))}
    answer = isolate(met(96, 2, faults), switches)
    assert named(answer) == [("port", (5,), 1, None), ("switch", tuple(range(32)), None, None)]


def test_two_nodes_that_are_fast_with_each_other_share_a_fault():
    rate = np.ones((12, 12))
    rate[:2], rate[:, :2] = 0.5, 0.5
    rate[0, 1] = rate[1, 0] = 1
    source, target = np.nonzero(~np.eye(12, dtype=bool))
    hosts = tuple(f"n{i}" for i in range(12))
    answer = isolate(Meetings(hosts, 1, source, target, rate[source, target]))
    assert named(answer) == [("group", (0, 1), None, None)] and answer.culprits[0].inner == 1
    rate[0, 1] = 0.5  # slow one way: then each is slow by itself
    answer = isolate(Meetings(hosts, 1, source, target, rate[source, target]))
    assert named(answer) == [("node", (0,), None, None), ("node", (1,), None, None)]


@pytest.mark.parametrize("nodes, bad", [(3, (1,)), (4, (1,)), (4, (0, 2)), (5, (1, 2)), (16, (1, 2, 3, 4, 5))])
def test_few_nodes_of_which_some_are_slow(nodes, bad):
    """Most links of four nodes touch a slow one, yet only the slow ones are blamed."""
    factors = 0.1 + 0.1 * np.arange(len(bad))  # not alike, so that each stands for itself
    faults = [Fault("node", 1 - factor, (node,), (0,)) for node, factor in zip(bad, factors)]
    answer = isolate(met(nodes, 1, faults))
    assert sorted(named(answer)) == [("node", (node,), None, None) for node in bad]


def test_of_two_nodes_nobody_is_blamed():
    answer = isolate(Meetings(("a", "b"), 1, np.array([0, 1]), np.array([1, 0]), np.array([1.0, 10.0])))
    assert answer.culprits == answer.suspects == ()
    assert np.isnan(answer.ports.share[0, 0, 0]) and answer.ports.share[1, 0, 0] == 1  # 0 met no good partner


def test_collisions_and_noise_blame_nobody():
    for seed in range(5):
        answer = isolate(met(64, 4, seed=seed, noise=0.03, colliding=0.05))
        assert answer.culprits == () and 0.03 < answer.ports.chance(0.9) < 0.08


def test_a_bad_partner_blames_nobody():
    """Of three partners two are bad: the third one tells the truth."""
    bad = [Fault("node", 0.9, (node,), (0,)) for node in (0, 1)]
    meetings = met(32, 1, bad)
    kept = ~(np.isin(meetings.src, [9]) & ~np.isin(meetings.dst, [0, 1, 2]))
    meetings = Meetings(meetings.hosts, 1, *(a[kept] for a in (meetings.src, meetings.dst, meetings.rate_GBps)))
    ports = judge_ports(meetings)
    assert ports.share[9, 0, 0] == pytest.approx(1, rel=0.05)
    assert [part.nodes for part in isolate(meetings).culprits if part.kind == "node" and 9 in part.nodes] == []


def test_one_slow_link_is_told_and_blames_neither_end():
    source, target = np.nonzero(~np.eye(3, dtype=bool))
    rate = np.where((source == 0) & (target == 1), 5.0, 10.0)
    answer = isolate(Meetings(("a", "b", "c"), 1, source, target, rate))
    assert answer.culprits == answer.suspects == ()
    told = lines(Accusation((), {"nccl": answer}))
    assert told[-1].startswith("1 of 6 rates between good ports are slow") and told[-1].endswith(": a to b 50%")


def test_too_few_meetings_make_a_suspect_and_no_culprit():
    meetings = met(5, 1, [Fault("side", 0.5, (0,), (0,), (0,))])
    few = (meetings.src != 0) | (meetings.dst == 1)
    answer = isolate(Meetings(meetings.hosts, 1, *(a[few] for a in (meetings.src, meetings.dst, meetings.rate_GBps))))
    assert answer.culprits == ()
    assert [(part.hosts, part.side, part.slow, part.met) for part in answer.suspects] == [(("n0",), "out", 1, 1)]
    assert answer.suspects[0].confidence < 0.99


@pytest.mark.parametrize("met_, chance", [(1, 0.05), (3, 0.02), (20, 0.05), (40, 0.3)])
def test_confidence_is_never_above_the_exact_one(met_, chance):
    for slow in range(met_ + 1):
        tail = sum(comb(met_, k) * chance**k * (1 - chance) ** (met_ - k) for k in range(slow, met_ + 1))
        assert confidence(slow, met_, chance, 1) <= 1 - tail + 1e-12
    assert confidence(met_, met_, chance, 7) == pytest.approx(max(0, 1 - 7 * chance**met_))
    assert confidence(0, 0, chance, 1) == 0


@pytest.mark.parametrize("topology", [True, False])
def test_planted_faults_are_found_and_nothing_else_is_blamed(topology):
    """The program under tests/benchmarks on fewer nodes and seeds."""
    nodes, rails = 256, 2
    switches = {str(i): list(range(32 * i, 32 * i + 32)) for i in range(nodes // 32)} if topology else None
    for seed in range(12):
        rng = np.random.default_rng(seed)
        cluster = Cluster(nodes, rails, plant(rng, nodes, rails, LOSSES), rng)
        blamed = [cells(part, cluster.factor.shape) for part in find(cluster, switches, seed).culprits]
        planted = [fault.cells(cluster.factor.shape) for fault in cluster.faults]
        assert cluster.rounds <= 20
        assert len(blamed) == len(planted) and all(any((a == b).all() for a in blamed) for b in planted), seed


def test_hosts_are_folded_as_slurm_writes_them():
    assert folded(["n1", "n2", "n3", "n7", "login"]) == "n[1-3,7],login"
    assert folded(["gpu-001-ib", "gpu-002-ib"]) == "gpu-[001-002]-ib" and folded(["n10", "n9"]) == "n[9-10]"
    assert folded(["x1"]) == "x1" and folded([]) == ""
