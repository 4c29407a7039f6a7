"""Equations: what each algorithm pays for, against the schedules' own closed forms and the published formulas."""

import numpy as np
import pytest

from commbench.errors import UsageError
from commbench.models.equations import EQUATIONS, phases, step_bytes, terms, tree_correction
from commbench.schedules.closed_forms import uniform_terms

S = 3 * 2.0**20


def column(op, algorithm, ranks, nodes, size_bytes=S, protocol=""):
    names, columns = terms(op, algorithm, ranks, nodes, size_bytes, protocol)
    return dict(zip(names, columns.T))


@pytest.mark.parametrize(
    "op, algorithm",
    [
        ("all_reduce", "ring"), ("all_reduce", "recursive_doubling"), ("all_reduce", "rabenseifner"),
        ("all_reduce", "binomial"), ("all_gather", "ring"), ("all_gather", "recursive_doubling"),
        ("all_gather", "bruck"), ("reduce_scatter", "ring"), ("reduce_scatter", "recursive_halving"),
        ("reduce_scatter", "bruck"), ("all_to_all", "pairwise"), ("all_to_all", "bruck"),
        ("broadcast", "binomial"), ("broadcast", "scatter_all_gather"),
    ],
)  # fmt: skip
def test_hops_and_bytes_are_those_of_the_schedule(op, algorithm):
    """On one node and on one rank per node, where all links are alike, for every rank count up to 70."""
    for n in range(2, 71):
        path = uniform_terms(op, algorithm, n, S)
        for nodes, link in ((1, "intra"), (n, "inter")):
            got = column(op, algorithm, n, nodes)
            assert got[f"alpha_{link}_us"] == pytest.approx(path.hops), (n, link)
            assert got["beta_us_per_byte"] == pytest.approx(path.sent), (n, link)
            other = {"intra": "inter", "inter": "intra"}[link]
            assert got[f"alpha_{other}_us"] == pytest.approx(0), (n, link)


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner", "binomial"])
def test_hops_inside_and_between_nodes_add_up(algorithm):
    for nodes, per_node in ((2, 4), (3, 4), (8, 8), (5, 2)):
        got = column("all_reduce", algorithm, nodes * per_node, nodes)
        path = uniform_terms("all_reduce", algorithm, nodes * per_node, S)
        assert got["alpha_intra_us"] + got["alpha_inter_us"] == pytest.approx(path.hops)
        assert got["alpha_inter_us"] > 0 and got["alpha_intra_us"] > 0


def test_ring_on_nodes_and_tree_are_nccls():
    """tuning.cc: ring 2(N-n) intra and 2(n-1) inter hops; tree 2(g-1) and 2 floor(lg n)."""
    ring = column("all_reduce", "ring", 32, 4)
    assert (ring["alpha_intra_us"], ring["alpha_inter_us"]) == (56, 6)
    tree = column("all_reduce", "tree", 48, 6)
    assert (tree["alpha_intra_us"], tree["alpha_inter_us"], tree["beta_us_per_byte"]) == (14, 4, 2 * S)


def test_a_trees_bandwidth_is_corrected_by_nccls_table():
    assert tree_correction([32, 64, 2**18, 2**29, 2**31], "LL").tolist() == [1, 1, 0.4, 1, 1]
    plain, corrected = (column("all_reduce", "tree", 32, 4, 2**18, p)["beta_us_per_byte"] for p in ("", "LL"))
    assert corrected == pytest.approx(plain / 0.4)


def test_two_levels_count_bytes_per_link_class():
    """32 ranks on 4 nodes of 8: an all_to_all leaves 24 of 32 blocks to other nodes; a hierarchical all_reduce sends
    2 (k-1)/k S/g between nodes."""
    pairs = column("all_to_all", "two_level", 32, 4, 32.0)
    assert (pairs["beta_intra_us_per_byte"], pairs["beta_inter_us_per_byte"]) == (7, 24)
    assert (column("all_to_all", "pxn", 32, 4)["alpha_inter_us"], pairs["alpha_inter_us"]) == (3, 24)
    levels = column("all_reduce", "hierarchical", 32, 4, 32.0)
    assert levels["beta_inter_us_per_byte"] == pytest.approx(2 * 3 / 4 * 32 / 8)
    names, _ = terms("all_reduce", "own:hierarchical", 32, 4, S)
    assert phases("all_reduce", "own:hierarchical", names) == ("sum", "intra", "intra", "inter", "inter")
    names, _ = terms("all_to_all", "two_level", 32, 4, S)
    assert phases("all_to_all", "two_level", names) == ("sum", "sum", "sum", "intra", "inter")


def test_every_equation_gives_finite_columns_for_any_rank_count():
    ranks, nodes = np.array([2, 3, 8, 24, 1000]), np.array([1, 3, 2, 3, 125])
    for op, algorithms in EQUATIONS.items():
        for algorithm in algorithms:
            names, columns = terms(op, algorithm, ranks, nodes, 1000.0)
            assert columns.shape == (5, len(names)) and np.all(np.isfinite(columns)) and np.all(columns >= 0), algorithm
            assert all(name.endswith(("_us", "_us_per_byte")) for name in names)


def test_a_step_carries_a_share_in_a_ring_and_the_buffer_in_a_tree():
    assert step_bytes("all_reduce", "ring", 8, 800.0) == 100
    assert step_bytes("all_reduce", "tree", 8, 800.0) == 800
    assert step_bytes("broadcast", "ring", 8, 800.0) == 800


def test_an_unknown_algorithm_names_those_there_are():
    with pytest.raises(UsageError, match="no equation for all_gather by nvls; all_gather has: hockney, ring"):
        terms("all_gather", "nvls", 8, 1, S)
