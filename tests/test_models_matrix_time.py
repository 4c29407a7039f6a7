"""The time of a matrix: the busiest port's, on machines whose times are known."""

from dataclasses import replace

import numpy as np
import pytest

from commbench.models.matrix_time import curves, matrix_time, moved_bytes, parted, ports
from commbench.results.records import Sample
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite

INTRA_GBps, INTER_GBps, LATENCY_US = 200.0, 25.0, 10.0


def machine_us(point, node_of, nic_of):
    """A machine whose ports are independent: 10 us, and the busiest rank's or NIC's bytes at its rate."""
    moved = np.array(moved_bytes(point), float) * (1 - np.eye(point.ranks))
    node = np.array([node_of[r] for r in point.members])
    inside = node[:, None] == node
    slowest = 0.0
    for axis in (0, 1):
        slowest = max(slowest, (moved * inside).sum(axis).max() / INTRA_GBps / 1e3)
        for nic in {(node_of[r], nic_of[r]) for r in point.members}:
            shared = [(node_of[r], nic_of[r]) == nic for r in point.members]
            slowest = max(slowest, (moved * ~inside).sum(axis)[shared].sum() / INTER_GBps / 1e3)
    return LATENCY_US + slowest


def measured(nodes, per_node, nic_of):
    node_of = [rank // per_node for rank in range(nodes * per_node)]
    tables = read_suite("moe")
    few = [m | {"tokens": 256} if "skew" in m or "routing" in m else m for m in tables["measure"] if "op" in m]
    suite = check_suite(tables | {"measure": few}, "moe")
    points = [p for step in expand(suite, len(node_of), ["gloo"], node_of) for p in step if p.status == "ok"]
    return node_of, [
        Sample(p, 1, "2026-01-01T00:00:00Z", samples_us=(machine_us(p, node_of, nic_of),) * 20)
        for p in points
        if p.op != "count_exchange"
    ]


@pytest.mark.parametrize("nodes, per_node, shared", [(1, 4, True), (2, 4, False), (2, 4, True), (4, 1, False)])
def test_the_busiest_port_of_a_machine_of_ports_is_found(nodes, per_node, shared):
    nic_of = [None if shared else f"mlx5_{rank % per_node}" for rank in range(nodes * per_node)]
    node_of, samples = measured(nodes, per_node, nic_of)
    fitted = curves(samples, node_of, nic_of)
    uneven = [s for s in samples if s.point.params.get("routing", "").startswith(("ratio", "zipf", "log"))]
    assert len(uneven) > 10
    for sample in uneven:
        told = matrix_time(sample.point, fitted, node_of, nic_of)
        assert told.time_us == pytest.approx(sample.samples_us[0], rel=0.02), sample.point.params
        assert parted(sample.samples_us[0], told.time_us) is None


def test_the_port_is_named():
    matrix = np.zeros((4, 4), int)
    matrix[:, 1] = [5, 99, 7, 0]  # rank 1's own share is no traffic
    matrix[0, 3] = 30
    found = ports(matrix, (2, 3, 6, 7), [0, 0, 0, 0, 1, 1, 1, 1], ["a", "b"] * 4)
    assert (found.intra_bytes, found.intra_who) == (5, "rank 2 sends within its node")
    assert (found.inter_bytes, found.inter_who) == (30, "node 0, NIC a sends between nodes")
    one = ports(matrix, (0, 1, 2, 3), [0] * 4, [None] * 4)
    assert (one.intra_bytes, one.intra_who, one.inter_bytes) == (35, "rank 0 sends within its node", 0)


def test_what_the_run_does_not_hold_is_not_predicted():
    nic_of = [None] * 8
    node_of, samples = measured(2, 4, nic_of)
    mixed = next(s.point for s in samples if s.point.scope == "mixed")
    for scope in ("intra", "mixed"):
        without = [s for s in samples if s.point.scope != scope]
        assert matrix_time(mixed, curves(without, node_of, nic_of), node_of, nic_of) is None
    two_sizes = [s for s in samples if s.point.size_bytes in (4096, 16384)]
    assert curves(two_sizes, node_of, nic_of) == {}
    assert matrix_time(replace(mixed, members=()), curves(samples, node_of, nic_of), node_of, nic_of) is None
    wrong = [replace(s, status="wrong") for s in samples]
    assert curves(wrong, node_of, nic_of) == {}


def test_a_row_says_when_the_two_part_by_over_a_fifth():
    assert parted(120, 100) is None and parted(81, 100) is None
    assert parted(121, 100) == pytest.approx(0.21) and parted(50, 100) == pytest.approx(-0.5)
