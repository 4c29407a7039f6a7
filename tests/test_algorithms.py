"""The choice of an algorithm: which names there are, what is refused with which words, how it is forced."""

import re
import subprocess
from pathlib import Path

import pytest
from runs import clean_environment

from commbench.launch.mpirun import find_mpirun
from commbench.ops import OPS, algorithms, algorithms_nccl, algorithms_open_mpi
from commbench.results.plan import Plan, Settings, WorldKey, world_of
from commbench.results.records import Point
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite


def planned(op, choice, backend, ranks=4, nodes=None, **axes) -> Point:
    """The one point of a suite of one measure."""
    measure = {"op": op, "algorithm": choice, "size": 2**20, **axes}
    suite = check_suite({"name": "x", "measure": [measure]}, "test")
    (step,) = expand(suite, ranks, [backend], nodes or [0] * ranks)
    return step[0]


@pytest.mark.parametrize(
    "text, choice",
    [
        ("library", ("library", "default")), ("ring", ("ring", "default")), (" Ring/LL128 ", ("ring", "ll128")),
        ("own:ring", ("own:ring", "default")), ("in-order_binary", ("in_order_binary", "default")),
    ],
)  # fmt: skip
def test_names(text, choice):
    assert algorithms.parse(text) == choice


@pytest.mark.parametrize(
    "text, told",
    [
        ("rign", "NCCL's ring, tree, nvls"), ("own:rign", "own:rabenseifner"), ("", "there is no algorithm ''"),
        ("ring/lll", "NCCL has ll, ll128, simple"), ("own:ring/ll", "with an algorithm of NCCL"),
        ("library/ll", "with an algorithm of NCCL"),
    ],
)  # fmt: skip
def test_a_name_that_nobody_has_is_told_with_what_there_is(text, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        algorithms.parse(text)


@pytest.mark.parametrize("op", algorithms_open_mpi.TUNED)
def test_open_mpis_names_and_numbers_are_those_of_the_installed_one(op):
    """`ompi_info` lists "0|ignore, 1|basic_linear, ..." for each parameter."""
    told = subprocess.run(
        [Path(find_mpirun()).parent / "ompi_info", "--param", "coll", "tuned", "--level", "9"],
        capture_output=True, text=True, env=clean_environment(), check=True,
    ).stdout  # fmt: skip
    collective, names = algorithms_open_mpi.TUNED[op]
    listed = re.search(rf'"coll_tuned_{collective}_algorithm" .*?Valid values: ([^\n]+)', told, re.DOTALL)[1]
    there = dict(entry.split("|") for entry in listed.replace("-", "_").split(", "))
    assert there == {str(number): name for number, name in enumerate(("ignore", *names))}
    assert all(algorithms_open_mpi.number(op, name) == int(number) for number, name in there.items() if number != "0")


def test_every_operation_of_mpi_and_nccl_is_known():
    without = {"sendrecv", "p2p_latency", "p2p_bw", "p2p_bibw", "all_to_all_padded", "count_exchange"}
    assert set(algorithms_open_mpi.TUNED) | without == set(OPS)
    assert set(algorithms_nccl.FUNCTIONS) < set(OPS)


@pytest.mark.parametrize(
    "op, choice, backend, told",
    [
        ("all_gather", "tree", "nccl", "NCCL has no tree for all_gather; it has ring, pat, nvls, collnetdirect"),
        ("all_reduce", "pat", "nccl", "NCCL has no pat for all_reduce"),
        ("broadcast", "tree", "nccl", "NCCL has no tree for broadcast; it has ring"),
        ("all_reduce", "nvls/ll", "nccl", "nvls by the protocol simple only, not by ll"),
        ("all_reduce", "nvlstree", "nccl", "there it is nvls"),
        ("all_to_all", "ring", "nccl", "made of sends and receives"),
        ("all_reduce", "rabenseifner", "nccl", "NCCL has no rabenseifner"),
        ("all_reduce", "ring", "gloo", "no way to choose; own:ring runs commbench's"),
        ("all_reduce", "segmented_ring", "gloo", "Gloo has one algorithm for each collective and no way to choose"),
        ("all_reduce", "tree", "mpi", "Open MPI has no tree for all_reduce; it has basic_linear, nonoverlapping"),
        ("all_reduce", "ring/ll", "mpi", "no protocol ll to choose"),
        ("sendrecv", "ring", "mpi", "no algorithms to choose from for sendrecv"),
        ("barrier", "two_proc", "mpi", "a world of 2 ranks, this one has 4"),
        ("all_reduce", "own:nvls", "gloo", "simulated"),
        ("gather", "own:ring", "mpi", "no schedules of its own for gather"),
        ("all_gather", "own:tree", "nccl", "no schedule own:tree for all_gather"),
    ],
)  # fmt: skip
def test_an_impossible_choice_is_a_skip_with_the_reason(op, choice, backend, told):
    point = planned(op, choice, backend)
    assert point.status == "skip" and told in point.reason, point.reason
    assert algorithms.environment(point) == {}  # so its row is written by a launch that forces nothing


@pytest.mark.parametrize(
    "op, choice, size, ranks, other",
    [
        ("all_reduce", "ring", 8, 4, "recursive_doubling"), ("all_reduce", "segmented_ring", 2**21, 4, "ring"),
        ("all_reduce", "rabenseifner", 12, 6, "basic_linear"), ("reduce", "rabenseifner", 12, 4, "linear"),
        ("all_gather", "recursive_doubling", 2**20, 6, "bruck"), ("all_gather", "neighbor", 2**20, 5, "ring"),
        ("broadcast", "scatter_allgather", 12, 4, "basic_linear"), ("broadcast", "split_binary_tree", 4, 4, "chain"),
        ("all_reduce", "ring", 0, 4, "nothing"),
    ],
)  # fmt: skip
def test_where_open_mpi_would_run_another_algorithm_the_row_is_a_skip(op, choice, size, ranks, other):
    point = planned(op, choice, "mpi", ranks, size=size)
    assert point.status == "skip"
    assert f"Open MPI runs {other} in place of {choice}" in point.reason or other == "nothing"


@pytest.mark.parametrize(
    "op, choice, size, ranks",
    [
        ("all_reduce", "ring", 16, 4), ("all_reduce", "segmented_ring", 2**22, 4),
        ("all_reduce", "rabenseifner", 16, 6), ("all_gather", "recursive_doubling", 2**20, 4),
        ("all_gather", "neighbor", 2**20, 6), ("barrier", "tree", 0, 4), ("barrier", "two_proc", 0, 2),
    ],
)  # fmt: skip
def test_just_above_it_runs(op, choice, size, ranks):
    assert planned(op, choice, "mpi", ranks, size=size).status == "ok"


def test_in_place_all_to_all_of_open_mpi_is_always_the_same():
    point = planned("all_to_all", "pairwise", "mpi", in_place=True)
    assert point.status == "skip" and "in-place" in point.reason
    assert planned("all_to_all", "pairwise", "mpi").status == "ok"


def test_open_mpi_is_forced_by_parameters():
    assert algorithms.environment(planned("all_reduce", "ring", "mpi")) == {
        "OMPI_MCA_coll": "basic,libnbc,self,inter,tuned",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
    }
    segmented = algorithms.environment(planned("all_reduce", "segmented_ring", "mpi", size="64M"))
    assert segmented["OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize"] == "1048576"


def test_nccl_is_forced_function_by_function():
    """A plain NCCL_ALGO=tree would leave broadcast, which has none, without any algorithm."""
    assert algorithms.environment(planned("all_reduce", "tree", "nccl")) == {"NCCL_ALGO": "allreduce:tree"}
    ring = algorithms.environment(planned("all_gather", "ring/ll128", "nccl"))
    assert ring["NCCL_ALGO"] == "allreduce:ring;allgather:ring;reducescatter:ring;broadcast:ring;reduce:ring"
    assert ring["NCCL_PROTO"].split(";")[1] == "allgather:ll128"
    assert ring == algorithms.environment(planned("broadcast", "ring/ll128", "nccl"))  # they share a launch


def test_a_library_that_chooses_itself_and_an_own_schedule_force_nothing():
    for choice in ("library", "own:ring"):
        for backend in ("gloo", "mpi", "nccl"):
            assert algorithms.environment(planned("all_reduce", choice, backend)) == {}


def test_each_forced_choice_has_a_launch_of_its_own():
    choices = ["library", "own:ring", "ring", "recursive_doubling"]
    suite = check_suite({"name": "x", "measure": [{"op": ["all_reduce", "all_gather"], "algorithm": choices}]}, "test")
    steps = expand(suite, 4, ["mpi"], [0] * 4)
    worlds = Plan("x", steps, Settings()).worlds()
    assert len(worlds) == 5 and worlds[0] == WorldKey("mpi", 4)
    shared = [step[0].algorithm for step in steps if world_of(step) == worlds[0]]
    assert shared == ["library", "own:ring"] * 2
    assert len({step[0].id for step in steps}) == len(steps) == 8


def test_what_a_row_may_claim_to_have_seen():
    probed = {"all_reduce 1048576": ["tree", "ll"], "all_gather": ["tuned (component)", "not observed"]}
    unknown = ("not observed", "not observed")
    assert algorithms.seen(planned("all_reduce", "library", "nccl"), probed) == ("tree", "ll")
    assert algorithms.seen(planned("all_gather", "library", "mpi"), probed)[0] == "tuned (component)"
    assert algorithms.seen(planned("reduce_scatter", "library", "mpi"), probed) == unknown
    assert algorithms.seen(planned("all_reduce", "library", "nccl", split="DIV 2"), probed) == unknown
    assert algorithms.seen(planned("all_reduce", "own:ring", "nccl"), probed) == ("own:ring", "not observed")
    assert algorithms.seen(planned("all_reduce", "ring", "nccl", size=64), probed) == unknown
    forced = planned("all_reduce", "ring", "mpi", split="DIV 2")
    assert algorithms.seen(forced, probed) == ("set: tuned/4 ring", "not observed")
