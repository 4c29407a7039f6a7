"""What an operation states about itself holds together: sizes, counts, buffers, expected segments, factors."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import commbench.ops
from commbench.cli.op_names import OP_NAMES
from commbench.ops import OPS
from commbench.ops.op import Call, call_of
from commbench.ops.pattern import Pattern
from commbench.results.records import Point
from commbench.routing import traffic
from commbench.world.dtypes import DTYPES, decode

WORLDS = range(1, 9)
EVERY_OP = pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)


def calls(op, n):
    """Calls of `op` over n ranks: several counts, every root, both places of MPI's reduce_scatter result."""
    for elements in (0, 1, n, 7 * n + 3, 1000):
        count = op.count(elements, n)
        call = Call(n, count)
        if op.by_matrix:
            for preset in traffic.PRESETS.values():
                yield elements, replace(call, matrix=traffic.scaled(preset(n), count))
        elif op.rooted:
            yield from ((elements, replace(call, root=root)) for root in range(n))
        else:
            yield elements, call
            yield elements, replace(call, result_at_front=True)


def worlds_of(op):
    return [op.group_size] if op.group_size else WORLDS


@EVERY_OP
def test_expected_segments_cover_what_is_received_without_overlap(op):
    for n in worlds_of(op):
        for _, call in calls(op, n):
            for rank in range(n):
                segments = op.expected(call, rank)
                covered = np.zeros(op.recv(call, rank), dtype=int)
                for segment in segments:
                    assert segment.count >= 0 and 0 <= segment.at <= segment.at + segment.count <= covered.size
                    assert set(segment.ranks) <= set(range(n)) and segment.ranks
                    covered[segment.at : segment.at + segment.count] += 1
                defined = op.name not in ("reduce", "gather") or rank == call.root
                moves = op.sized or op.fixed_dtype
                assert np.all(covered == (1 if defined and moves else 0)), (n, rank)


@EVERY_OP
def test_what_is_expected_was_sent(op):
    """A segment of one rank lies within what that rank sends; a reduction lies within what everyone sends."""
    for n in worlds_of(op):
        for _, call in calls(op, n):
            for rank in range(n):
                for segment in op.expected(call, rank):
                    for peer in segment.ranks:
                        assert segment.start + segment.count <= op.send(call, peer)
                    assert len(segment.ranks) == 1 or (op.reduces and segment.ranks == call.everyone)


@EVERY_OP
def test_sizes_follow_nccl_tests(op):
    """Used size is the requested one, rounded down to whole blocks where ranks share it out."""
    in_blocks = op.name in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
    for n in worlds_of(op):
        for elements, call in calls(op, n):
            if op.by_matrix:
                op = OPS["all_to_all_v"]  # size is before padding
                assert op.size(call) == OPS["all_to_all_padded"].size(call) <= elements
                assert op.size(call) == max(max(op.send(call, r), op.recv(call, r)) for r in range(n))
            elif op.sized:
                assert op.size(call) == (elements // n * n if in_blocks else elements)
                assert call.count == (elements // n if in_blocks else elements)
            else:
                assert op.size(call) == 0


# (send, recv) of a rank over count, for a root and for the others.
BUFFERS = {
    "all_reduce": lambda n, c: [(c, c)] * 2,
    "all_gather": lambda n, c: [(c, n * c)] * 2,
    "reduce_scatter": lambda n, c: [(n * c, c)] * 2,
    "broadcast": lambda n, c: [(c, c)] * 2,
    "reduce": lambda n, c: [(c, c)] * 2,
    "gather": lambda n, c: [(c, n * c), (c, 0)],
    "scatter": lambda n, c: [(n * c, c), (0, c)],
    "all_to_all": lambda n, c: [(n * c, n * c)] * 2,
    "count_exchange": lambda n, c: [(n * c, n * c)] * 2,
    "sendrecv": lambda n, c: [(c, c)] * 2,
    "p2p_latency": lambda n, c: [(c, c)] * 2,
    "p2p_bw": lambda n, c: [(c, 0), (0, c)],
    "p2p_bibw": lambda n, c: [(c, c)] * 2,
    "barrier": lambda n, c: [(0, 0)] * 2,
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_of_root_and_others(name):
    op = OPS[name]
    for n in worlds_of(op):
        for _, call in calls(op, n):
            root, others = BUFFERS[name](n, call.count)
            for rank in range(n):
                wanted = root if rank == call.root else others
                assert (op.send(call, rank), op.recv(call, rank)) == wanted


def test_the_buffer_table_above_is_whole():
    assert set(BUFFERS) == set(OPS) - {"all_to_all_v", "all_to_all_padded"}


def test_all_to_all_v_sends_what_the_others_receive():
    op = OPS["all_to_all_v"]
    for n in WORLDS:
        matrix = traffic.scaled(traffic.ramp(n), 1000)
        call = Call(n, 1000, matrix=matrix)
        assert sum(op.send(call, r) for r in range(n)) == sum(op.recv(call, r) for r in range(n))
        for rank in range(n):
            assert op.recv(call, rank) == sum(matrix[peer][rank] for peer in range(n))
            # Block j of rank i starts after its blocks for 0..j-1.
            assert [s.start for s in op.expected(call, rank)] == [sum(matrix[peer][:rank]) for peer in range(n)]


def test_padding_makes_every_block_as_large_as_the_largest():
    op = OPS["all_to_all_padded"]
    call = Call(3, 100, matrix=((1, 2, 3), (0, 40, 0), (5, 0, 6)))
    assert [(op.send(call, r), op.recv(call, r)) for r in range(3)] == [(120, 120)] * 3
    assert op.size(call) == 42  # what rank 1 receives before padding


def test_equal_shares_make_all_to_all_v_the_same_as_all_to_all():
    plain, variable = OPS["all_to_all"], OPS["all_to_all_v"]
    for n in WORLDS:
        for elements in (n, 64 * n, 1000 * n):
            a = Call(n, plain.count(elements, n))
            b = Call(n, elements, matrix=traffic.scaled(traffic.equal(n), elements))
            for rank in range(n):
                assert plain.expected(a, rank) == variable.expected(b, rank)
            assert plain.size(a) == variable.size(b) == elements
        assert plain.bus_factor(n) == variable.bus_factor(n)


def test_bus_factors_are_those_of_nccl_tests():
    share = {"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "all_to_all_v", "all_to_all_padded"}
    for n in range(1, 9):
        for name, op in OPS.items():
            if name == "all_reduce":
                wanted = 2 * (n - 1) / n
            elif name in share:
                wanted = (n - 1) / n
            else:
                # p2p_bibw adds both directions, as osu_bibw does
                wanted = {"barrier": 0, "count_exchange": 0, "p2p_bibw": 2}.get(name, 1)
            assert op.bus_factor(n) == pytest.approx(wanted), (name, n)


@EVERY_OP
def test_in_place_the_inner_buffer_lies_within_the_outer(op):
    if op.in_place is None:
        return
    for n in worlds_of(op):
        for _, call in calls(op, n):
            for rank in range(n):
                outer, offset = op.in_place(call, rank)
                length = {"send": op.send(call, rank), "recv": op.recv(call, rank)}
                inner = {"send": "recv", "recv": "send"}[outer]
                assert 0 <= offset and offset + length[inner] <= length[outer]


def test_in_place_offsets_are_those_of_nccl_tests():
    call = Call(4, 10)
    assert {name for name, op in OPS.items() if op.in_place} == {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"
    }  # fmt: skip
    assert [OPS["all_gather"].in_place(call, rank) for rank in range(4)] == [("recv", 10 * rank) for rank in range(4)]
    assert [OPS["reduce_scatter"].in_place(call, rank) for rank in range(4)] == [
        ("send", 10 * rank) for rank in range(4)
    ]
    front = replace(call, result_at_front=True)
    assert [OPS["reduce_scatter"].in_place(front, rank) for rank in range(4)] == [("send", 0)] * 4
    for name in ("all_reduce", "broadcast", "reduce", "all_to_all"):
        assert OPS[name].in_place(call, 3) == ("recv", 0)


def test_an_in_place_all_gather_expects_its_own_block_where_it_sent_it_from():
    call, op = Call(5, 7), OPS["all_gather"]
    for rank in range(5):
        own = next(s for s in op.expected(call, rank) if s.ranks == (rank,))
        assert own.at == op.in_place(call, rank)[1]


@EVERY_OP
def test_expected_values_agree_with_a_plain_execution(op):
    """The operation done with numpy on what each rank sends gives what `expected` says."""
    if op.name == "barrier":
        return
    dtype = DTYPES["int64"]
    for n in worlds_of(op):
        redop = "sum" if op.reduces else "none"
        pattern = Pattern(n, dtype, redop)
        for _, call in calls(op, n):
            sent = [pattern.sent(rank, 0, op.send(call, rank)) for rank in range(n)]
            for rank in range(n):
                received = _executed(op.name, call, sent, rank)
                found = np.full(op.recv(call, rank), -1)
                for segment in op.expected(call, rank):
                    found[segment.at : segment.at + segment.count] = decode(pattern.values(segment), dtype)
                if received is not None:
                    assert np.array_equal(found, received), (n, call, rank)


def _executed(name, call, sent, rank):
    c, n, root = call.count, call.world_size, call.root
    if name == "all_to_all_padded":
        c, name = max(map(max, call.matrix)), "all_to_all"
    name = "all_to_all" if name == "count_exchange" else name
    block = slice(rank * c, (rank + 1) * c)
    if name == "all_to_all_v":
        starts = [sum(call.matrix[peer][:rank]) for peer in range(n)]
        return np.concatenate([sent[peer][at : at + call.matrix[peer][rank]] for peer, at in enumerate(starts)])
    return {
        "all_reduce": lambda: sum(sent),
        "all_gather": lambda: np.concatenate(sent),
        "reduce_scatter": lambda: sum(sent)[block],
        "broadcast": lambda: sent[root],
        "reduce": lambda: sum(sent) if rank == root else None,
        "gather": lambda: np.concatenate(sent) if rank == root else np.zeros(0),
        "scatter": lambda: sent[root][block],
        "all_to_all": lambda: np.concatenate([part[block] for part in sent]),
        "sendrecv": lambda: sent[rank - 1],
        "p2p_latency": lambda: sent[1 - rank],
        "p2p_bibw": lambda: sent[1 - rank],
        "p2p_bw": lambda: sent[root] if rank != root else np.zeros(0),
    }[name]()


def test_messages_and_clocks_of_point_to_point():
    call = Call(2, 8, window=16)
    assert [OPS[name].messages(call) for name in ("p2p_latency", "p2p_bw", "p2p_bibw", "sendrecv", "all_reduce")] == [
        2,
        16,
        16,
        1,
        1,
    ]
    assert [OPS[name].clock_ranks(call) for name in ("p2p_latency", "p2p_bw")] == [(0,), (0,)]
    assert {name for name, op in OPS.items() if op.windowed} == {"p2p_bw", "p2p_bibw"}
    assert {name for name, op in OPS.items() if op.kind == "p2p"} == {"sendrecv", "p2p_latency", "p2p_bw", "p2p_bibw"}


def test_only_operations_where_all_wait_for_all_show_lateness_as_skew():
    assert {name for name, op in OPS.items() if op.synchronising} == {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_padded", "count_exchange", "barrier"
    }  # fmt: skip


def test_a_point_and_its_call():
    point = Point(
        "scatter",
        "mpi",
        64,
        members=(4, 6, 7),
        count=5,
        root=-1,
        redop="sum",
        in_place=True,
        params={"window": 3, "matrix": [[1]]},
    )
    call = call_of(point)
    assert (call.world_size, call.count, call.root, call.redop, call.in_place) == (3, 5, 0, "sum", True)
    assert (call.window, call.matrix, call.result_at_front) == (3, ((1,),), True)
    assert call_of(replace(point, backend="gloo", root=2, params={})) == Call(3, 5, 2, "sum", True)


def test_the_names_for_help_texts_are_the_operations():
    assert OP_NAMES == tuple(OPS)
    assert all(op.name == name for name, op in OPS.items())


def test_each_operation_has_a_file_of_its_name():
    folder = Path(commbench.ops.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in OPS)


def test_the_names_cost_nothing_to_import():
    code = "import sys, commbench.cli.op_names; print([m for m in ('numpy', 'torch', 'pydantic') if m in sys.modules])"
    assert ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) == []
