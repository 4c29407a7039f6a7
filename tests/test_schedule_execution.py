"""Schedules executed: over threads with strict memory, then on real ranks."""

import queue
import threading
from functools import partial

import numpy as np
import pytest
from runs import commbench, points

from commbench.ops.op import Call
from commbench.schedules.catalogue import SCHEDULES, build
from commbench.schedules.execute import prepare
from commbench.schedules.plan import Exchange, plan

EXECUTED = [(op, name) for op in SCHEDULES for name in SCHEDULES[op] if name != "nvls"]
POISON = -999_999


class Threads:
    """A group of threads. What is sent must still be the same when the step ends, and what is received is poisoned."""

    piece_bytes = 64  # eight elements, so that pieces are cut

    def __init__(self, mail, rank):
        self.mail, self.rank = mail, rank

    def exchange(self, sends, recvs, then=None):
        def run():
            posted = [view.copy() for _, view in sends]
            for _, view in recvs:
                view[:] = POISON
            for (peer, _), data in zip(sends, posted):
                self.mail[self.rank, peer].put(data)
            for i, (peer, view) in enumerate(recvs):
                view[:] = self.mail[peer, self.rank].get(timeout=20)
                if then:
                    then[i]()
            for (_, view), data in zip(sends, posted):
                assert np.array_equal(view, data), "memory was written while it was being sent"

        return run

    def like(self, array, count):
        return np.full(count, POISON, array.dtype)

    def copy(self, to, source):
        return partial(np.copyto, to, source)

    def accumulate(self, into, part, redop):
        return partial({"sum": np.add, "avg": np.add, "max": np.maximum}[redop], into, part, out=into)

    def divide(self, array, by):
        return partial(np.floor_divide, array, by, out=array)


def execute(op, name, n, count, per_node=1, pieces=1, in_place=False, root=0, redop="sum"):
    """[(send, recv)] of all ranks after one execution, and what they sent."""
    schedule = build(op, name, n, per_node, pieces)
    rng = np.random.default_rng(n * 1000 + count)
    sent = {"all_reduce": count, "broadcast": count, "all_gather": count}.get(op, n * count)
    received = {"all_reduce": count, "broadcast": count, "reduce_scatter": count}.get(op, n * count)
    send = [rng.integers(0, 1000, sent) * n for _ in range(n)]
    recv = send if in_place else [np.full(received, POISON) for _ in range(n)]
    given = [array.copy() for array in send]
    mail = {(a, b): queue.Queue() for a in range(n) for b in range(n)}
    call = Call(world_size=n, count=count, root=root, redop=redop, in_place=in_place)
    failed = []

    def rank(r):
        try:
            prepare(Threads(mail, r), schedule, call, send[r], recv[r])()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    assert all(box.empty() for box in mail.values())
    return given, send, recv


def expected(op, given, rank, count, root=0, redop="sum"):
    total = {"sum": sum, "max": lambda rows: np.max(rows, axis=0), "avg": lambda rows: sum(rows) // len(rows)}[redop]
    block = slice(rank * count, (rank + 1) * count)
    return {
        "all_reduce": lambda: total(given),
        "broadcast": lambda: given[root],
        "all_gather": lambda: np.concatenate(given),
        "reduce_scatter": lambda: total(given)[block],
        "all_to_all": lambda: np.concatenate([row[block] for row in given]),
    }[op]()


@pytest.mark.parametrize("op, name", EXECUTED)
def test_every_rank_gets_the_result_and_keeps_its_input(op, name):
    for n, per_node, pieces in [(1, 1, 1), (2, 1, 3), (3, 3, 2), (4, 2, 1), (6, 3, 4), (7, 1, 2), (8, 4, 3)]:
        for count in (0, 1, 5, 100):
            given, send, recv = execute(op, name, n, count, per_node, pieces)
            for rank in range(n):
                assert np.array_equal(recv[rank], expected(op, given, rank, count)), (n, count, rank)
                assert np.array_equal(send[rank], given[rank]), "the input was changed"


@pytest.mark.parametrize("name", [name for op, name in EXECUTED if op == "all_reduce"])
@pytest.mark.parametrize("redop", ["max", "avg"])
def test_all_reduce_in_place_with_other_reductions(name, redop):
    for n in (2, 5, 8):
        given, _, recv = execute("all_reduce", name, n, 37, in_place=True, redop=redop)
        assert all(np.array_equal(row, expected("all_reduce", given, 0, 37, redop=redop)) for row in recv)


@pytest.mark.parametrize("name", SCHEDULES["broadcast"])
def test_any_root(name):
    for root in range(5):
        given, _, recv = execute("broadcast", name, 5, 23, root=root, pieces=3)
        assert all(np.array_equal(row, given[root]) for row in recv)


def test_a_ring_needs_no_copy_and_no_scratch():
    actions = plan(build("all_reduce", "ring", 8), 3, 800, in_place=False)
    assert all(isinstance(action, Exchange) for action in actions) and len(actions) == 14
    assert {m.run.buffer for a in actions for m in a.sends + a.receives} == {"send", "recv"}


def _run(tmp_path, op, backend, ranks, *more):
    names = ",".join(f"own:{name}" for o, name in EXECUTED if o == op)
    done = commbench(
        "run", op, "--backend", backend, "--ranks", ranks, "--algorithm", names, "--iters", 2, "--warmup", 1,
        "--no-report", "--out", tmp_path / "run", *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = points(tmp_path / "run")
    assert rows and all(row["wrong"] == 0 and row["status"] == "ok" for row in rows)
    assert all(row["algorithm_seen"] == row["algorithm"] for row in rows)
    return rows


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.full), "mpi"])
def test_on_real_ranks(tmp_path, backend):
    rows = _run(tmp_path, "all_reduce", backend, 3, "--size", "8,1000,3M")
    assert len(rows) == 3 * 8
    assert {row["params"].get("pieces") for row in rows if row["algorithm"] == "own:tree"} == {1, 6}


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("op", SCHEDULES)
def test_every_schedule_on_real_ranks(tmp_path, op, backend, ranks):
    place = "no" if op == "all_to_all" else "both"
    _run(tmp_path, op, backend, ranks, "--size", "0,1000,2M", "--dtype", "float32,int64", "--in-place", place)


@pytest.mark.full
def test_reductions_and_half_precision_on_real_ranks(tmp_path):
    _run(tmp_path, "all_reduce", "gloo", 4, "--size", "1000", "--dtype", "bfloat16,float16", "--redop", "sum,avg,max")
    _run(tmp_path / "b", "broadcast", "mpi", 4, "--size", "64K", "--root", "0,3")
