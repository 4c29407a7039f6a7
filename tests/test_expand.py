"""A suite becomes exactly the points that it describes, with their sizes worked out, and the same on every machine."""

import json
import os
import subprocess
import sys
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.ops import OPS
from commbench.ops.op import call_of
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite, shipped_suites
from commbench.world.dtypes import DTYPES

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def steps(ranks=4, backends=("gloo",), node_of=None, joined=False, measures=None, **keys):
    tables = {"name": "x", "measure": measures or [{"op": "all_reduce", "size": "1K"} | keys]}
    return expand(check_suite(tables, "x"), ranks, list(backends), node_of or [0] * ranks, joined)


def points(*arguments, **keys):
    return [point for step in steps(*arguments, **keys) for point in step]


AXES = {
    "size": [1024, 2048, 4096],
    "dtype": ["float32", "int8"],
    "redop": ["sum", "max"],
    "root": [0, 1, 3],
    "in_place": [False, True],
    "timing": ["isolated", "streaming"],
    "batch": [5, 20],
    "window": [1, 64],
}
SINGLE = {key: values[0] for key, values in AXES.items()}


def axes_of(op):
    """The axes that an operation has; the length of a batch is one only where calls are streamed."""
    axes = {"timing"}
    axes |= {"size", "dtype"} if op.sized else set()
    axes |= {name for name, has in (("redop", op.reduces), ("root", op.rooted), ("window", op.windowed)) if has}
    return axes | ({"in_place"} if op.in_place else set())


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("axis", AXES)
def test_an_axis_multiplies_where_the_operation_has_it_and_nowhere_else(name, axis):
    swept = {**SINGLE, axis: AXES[axis]}
    if axis == "batch":
        swept["timing"] = "streaming"
    found = points(op=name, **swept)
    has = axis in axes_of(OPS[name]) or axis == "batch"
    assert len(found) == (len(AXES[axis]) if has else 1)
    assert len({point.id for point in found}) == len(found)


@pytest.mark.parametrize("name", OPS)
def test_all_axes_multiply(name):
    found = points(op=name, **AXES)
    lengths = prod(len(AXES[axis]) for axis in axes_of(OPS[name]) - {"timing"})
    assert len(found) == lengths * (1 + len(AXES["batch"]))  # isolated once, streaming with each batch
    assert all(point.batch == 1 for point in found if point.timing == "isolated")
    assert {point.batch for point in found if point.timing == "streaming"} == set(AXES["batch"])


def test_backends_measures_splits_and_operations_multiply():
    found = points(backends=["gloo", "mpi"], op=["all_reduce", "all_gather"], split=["all", "MOD 2", "0,1"])
    assert len(found) == 2 * 2 * (1 + 2 + 1)
    assert [point.backend for point in found] == ["gloo"] * 8 + ["mpi"] * 8


def test_a_measure_keeps_to_its_own_backends():
    measures = [{"op": "barrier", "backend": "mpi"}, {"op": "all_reduce"}]
    assert [(p.backend, p.op) for p in points(backends=["gloo", "mpi"], measures=measures)] == [
        ("gloo", "all_reduce"), ("mpi", "barrier"), ("mpi", "all_reduce"),
    ]  # fmt: skip


def test_a_suite_for_other_backends_only_is_refused():
    with pytest.raises(UsageError, match="nothing would be measured.*gloo or nccl"):
        points(backends=["gloo", "nccl"], measures=[{"op": "all_reduce", "backend": "mpi"}])


def test_equal_points_appear_once():
    assert len(points(size=["1K", 1024, "1KiB"], dtype=["float32", "float", "fp32"])) == 1
    twice = [{"op": "all_reduce", "size": "1K"}, {"op": ["all_reduce", "barrier"], "size": ["1K", "2K"]}]
    assert [(p.op, p.size_bytes) for p in points(measures=twice)] == [
        ("all_reduce", 1024),
        ("all_reduce", 2048),
        ("barrier", 0),
    ]


def test_operations_that_do_not_reduce_or_have_no_root_say_so():
    for point in points(op=list(OPS), redop="max", root=1):
        op = OPS[point.op]
        assert (point.redop, point.root) == ("max" if op.reduces else "none", 1 if op.rooted else -1)
        assert point.kind == op.kind


# in place


def test_in_place_is_left_out_where_there_is_none_and_told_where_nothing_else_was_asked_for():
    both = points(op=["all_reduce", "gather"], in_place=[False, True])
    assert [(p.op, p.in_place, p.status) for p in both] == [
        ("all_reduce", False, "ok"), ("all_reduce", True, "ok"), ("gather", False, "ok"),
    ]  # fmt: skip
    only = points(op="gather", in_place=True)
    assert [(p.in_place, p.status, p.reason) for p in only] == [(True, "skip", "gather has no in-place form")]


# sizes


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("name", [name for name in OPS if not OPS[name].group_size])
def test_used_sizes_are_at_most_the_requested_ones_and_agree_with_the_buffers(name, ranks):
    for dtype in ("float32", "float64", "int8", "bfloat16"):
        for point in points(ranks, op=name, dtype=dtype, size=[0, 1, 1000, 4096, 1_000_003]):
            if point.status != "ok":
                continue
            op, call, width = OPS[name], call_of(point), DTYPES[point.dtype].itemsize
            assert point.size_bytes == op.size(call) * width
            assert point.send_bytes == max(op.send(call, r) for r in range(ranks)) * width
            assert point.recv_bytes == max(op.recv(call, r) for r in range(ranks)) * width
            if op.sized:
                requested = point.params["requested_bytes"]
                loss = ranks * ranks if op.by_matrix else ranks  # each block is rounded down
                assert requested - loss * width < point.size_bytes <= requested or point.size_bytes == requested == 0


def test_requested_and_used_sizes_stand_side_by_side():
    (point,) = points(3, op="all_gather", size=1000)
    assert (point.params["requested_bytes"], point.size_bytes, point.count) == (1000, 996, 83)
    assert (point.send_bytes, point.recv_bytes) == (332, 996)
    (point,) = points(3, op="all_reduce", size=1001, dtype="int8")
    assert (point.params["requested_bytes"], point.size_bytes) == (1001, 1001)
    (point,) = points(2, op="barrier")
    assert point.params == {} and point.size_bytes == 0


def test_two_requests_that_end_in_one_used_size_are_both_kept():
    found = points(3, op="all_gather", size=[1000, 1001])
    assert [p.params["requested_bytes"] for p in found] == [1000, 1001]
    assert len({p.id for p in found}) == 2 and {p.size_bytes for p in found} == {996}


def test_alignment_rounds_blocks_and_not_whole_buffers():
    (gathered,) = points(3, op="all_gather", size=1000, align=16)
    assert gathered.count == 80 and gathered.params["align_bytes"] == 16
    (reduced,) = points(3, op="all_reduce", size=1000, align=16)
    assert reduced.count == 250
    (wide,) = points(3, op="all_gather", size=1000, dtype="float64", align=16)
    assert wide.count == 40


@fixed
@given(
    ranks=st.integers(1, 9),
    size=st.integers(0, 10**7),
    name=st.sampled_from(list(OPS)),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_no_size_is_ever_negative_or_larger_than_asked_for(ranks, size, name, dtype):
    for point in points(ranks, op=name, size=size, dtype=dtype):
        assert 0 <= point.size_bytes <= size and point.count >= 0
        assert 0 <= point.send_bytes and 0 <= point.recv_bytes


def test_matrices():
    (equal,) = points(4, op="all_to_all_v", size="1K", matrix="equal")
    assert equal.params["matrix"] == [[64] * 4] * 4 and equal.size_bytes == 1024
    (ramp,) = points(4, op="all_to_all_v", size="1K")
    assert ramp.params["matrix"][0][0] == 0
    (own,) = points(2, op="all_to_all_v", size=400, matrix=[[0, 1], [3, 0]])
    assert own.params["matrix"] == [[0, 33], [100, 0]] and own.size_bytes == 400
    with pytest.raises(UsageError, match="matrix is 2 x 2, but the group has 4 ranks"):
        points(4, op="all_to_all_v", matrix=[[0, 1], [3, 0]])
    with pytest.raises(UsageError, match="nothing.csv.* cannot be read"):
        points(4, op="all_to_all_v", matrix="nothing.csv")


def test_a_matrix_is_read_only_where_it_is_needed():
    assert points(4, op="all_reduce", matrix="nothing.csv")[0].status == "ok"


# splits


def test_a_split_gives_one_step_with_a_point_for_each_group():
    (step,) = steps(5, split="DIV 2")
    assert [point.members for point in step] == [(0, 1), (2, 3), (4,)]
    assert [point.ranks for point in step] == [2, 2, 1]
    assert all(point.world_size == 5 for point in step)
    assert len({point.id for point in step}) == 3


def test_blocks_are_those_of_the_group():
    (step,) = steps(5, op="all_gather", size=1200, split="0,1;2,3,4")
    assert [(point.count, point.send_bytes, point.recv_bytes) for point in step] == [(150, 600, 1200), (100, 400, 1200)]


def test_nodes_and_scope_follow_the_members():
    node_of = [0, 0, 1, 1]
    scopes = {
        p.members: (p.nodes, p.scope) for p in points(4, node_of=node_of, split=["all", "DIV 2", "MOD 2", "0,1,2"])
    }
    assert scopes == {
        (0, 1, 2, 3): (2, "mixed"), (0, 1): (1, "intra"), (2, 3): (1, "intra"), (0, 2): (2, "inter"),
        (1, 3): (2, "inter"),
        (0, 1, 2): (2, "mixed"),
    }  # fmt: skip


def test_a_world_larger_than_the_nodes_known_lives_on_the_last_one():
    (point,) = points(2, node_of=[0, 1], measures=[{"op": "all_reduce", "ranks": 4}])
    assert (point.world_size, point.nodes) == (4, 2)


def test_groups_that_cannot_run_are_a_step_of_their_own():
    """A step is measured or skipped as a whole: a point must never be called ok because of its neighbour."""
    for split in ("0;1,2", "0,1;2"):
        found = steps(3, op="p2p_latency", split=split)
        assert [{point.status for point in step} for step in found] == [{"ok"}, {"skip"}]
        assert [point.ranks for step in found for point in step] == [2, 1]
    assert all(
        len({point.status for point in step}) == 1
        for step in steps(5, op="broadcast", root=1, split=["DIV 2", "DIV 4"])
    )


def test_a_pair_operation_on_the_whole_world_takes_the_outermost_pair():
    (point,) = points(5, op="p2p_latency")
    assert (point.group, point.members, point.status) == ("0,4", (0, 4), "ok")
    (point,) = points(2, op="p2p_latency")
    assert (point.group, point.members) == ("all", (0, 1))


def test_splits_that_do_not_fit_are_usage_errors():
    for split in ("0,9", "MOD 0", "nonsense", "0,0"):
        with pytest.raises(UsageError, match="split"):
            steps(4, split=split)


# what cannot be done


def reason(*arguments, **keys):
    (point,) = points(*arguments, **keys)
    assert point.status == "skip" and point.size_bytes == 0
    return point.reason


def test_what_cannot_be_done_is_a_skip_with_a_reason():
    assert "needs 2 ranks, the group has 1" in reason(1, op="p2p_bw")
    assert "between 2 ranks, the group has 3" in reason(4, op="p2p_bw", split="0,1,2")
    assert "root 3" in reason(
        4, op="broadcast", root=3, split="0,1"
    )  # a root that this group lacks and another may have
    with pytest.raises(UsageError, match="root 4 is not in the world, which has ranks 0 to 3"):
        points(4, op="broadcast", root=4)
    assert "float8_e5m2" in reason(4, dtype="float8_e5m2")
    assert "average" in reason(4, backends=["mpi"], redop="avg")
    assert "not exact" in reason(300, redop="avg", dtype="bfloat16")
    assert "2147483647" in reason(2, backends=["mpi"], dtype="int8", size="2G")


def test_a_skipped_point_still_says_what_was_asked_for():
    (point,) = points(4, dtype="float8_e5m2", size="64K")
    assert point.params["requested_bytes"] == 65536 and point.dtype == "float8_e5m2"


def test_a_joined_world_of_another_size_is_skipped_and_says_so():
    measures = [{"op": ["all_reduce", "barrier"], "ranks": 4}, {"op": "all_reduce"}]
    found = points(2, joined=True, measures=measures)
    assert [(p.op, p.world_size, p.status) for p in found] == [
        ("all_reduce", 2, "skip"),
        ("barrier", 2, "skip"),
        ("all_reduce", 2, "ok"),
    ]
    assert found[0].reason == "wants a world of 4 ranks, the launcher started 2"
    here = points(2, joined=False, measures=measures)
    assert [(p.world_size, p.status) for p in here] == [(4, "ok"), (4, "ok"), (2, "ok")]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_expand_on_odd_worlds(name, ranks):
    plan = expand(check_suite(read_suite(name), name), ranks, ["gloo", "mpi", "nccl"], [0] * ranks)
    ids = [point.id for step in plan for point in step]
    assert len(ids) == len(set(ids)) > 20
    for step in plan:
        for point in step:
            assert (point.status == "skip") == bool(point.reason)
            assert set(point.members) <= set(range(point.world_size)) and point.ranks == len(point.members)


# identity


def ids(name, ranks):
    plan = expand(check_suite(read_suite(name), name), ranks, ["gloo"], [0] * ranks)
    return [point.id for step in plan for point in step]


def test_ids_are_the_same_in_another_process():
    code = (
        "import json\n"
        "from commbench.suite.expand import expand\n"
        "from commbench.suite.schema import check_suite, read_suite\n"
        "plan = expand(check_suite(read_suite('quick'), 'q'), 3, ['gloo'], [0] * 3)\n"
        "print(json.dumps([point.id for step in plan for point in step]))"
    )
    for seed in ("0", "4711"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
        assert json.loads(told) == ids("quick", 3)


def test_an_id_changes_with_everything_that_is_measured_and_with_nothing_else():
    from dataclasses import fields, replace

    (point,) = points()
    for field in fields(point):
        value = getattr(point, field.name)
        other = {str: "other", int: 77, bool: not value, dict: {"a": 1}, tuple: (9,)}[type(value)]
        changed = replace(point, **{field.name: other})
        assert (changed.id == point.id) == (field.name in ("status", "reason")), field.name


def test_an_id_survives_the_journal():
    for step in steps(4, op=list(OPS), in_place=[False, True], split=["all", "MOD 2"]):
        for point in step:
            assert type(point).from_json(json.loads(json.dumps(point.to_json()))).id == point.id
