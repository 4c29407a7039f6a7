"""The order in which a launch measures its steps: as planned, or shuffled anew for each repetition from one seed."""

import json
from dataclasses import replace

import pytest
from runs import Silent, commbench, points, records

from commbench.launch.rank import todo
from commbench.launch.run import execute
from commbench.launch.spec import LaunchSpec
from commbench.ops import OPS
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point
from commbench.results.store import Run

STEPS = tuple((Point("all_reduce", "gloo", 2**n, world_size=2, members=(0, 1), ranks=2),) for n in range(3, 23))
RUN = ("run", "all_reduce", "-n", 2, "--size", "8..64K", "--iters", 2, "--warmup", 0, "--no-report")


def test_without_a_seed_steps_stand_as_planned():
    assert Plan("x", STEPS, Settings()).order(1) == Plan("x", STEPS, Settings()).order(2) == list(range(20))


def test_each_repetition_has_every_step_once_in_an_order_of_its_own(tmp_path):
    plan = Plan("x", STEPS, Settings(), launches=3, seed=7)
    orders = [plan.order(repetition) for repetition in (1, 2, 3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in (*orders, range(20), range(20)[::-1])}) == 5
    assert replace(plan, seed=8).order(1) != orders[0]
    plan.save(tmp_path / "plan.json")
    assert [Plan.load(tmp_path / "plan.json").order(repetition) for repetition in (1, 2, 3)] == orders


def test_no_place_is_favoured():
    """Over 400 seeds each of 20 steps comes first 20 times on average; 60 would be nine standard deviations more."""
    first = [Plan("x", STEPS, Settings(), seed=seed).order(1)[0] for seed in range(400)]
    assert set(first) == set(range(20)) and max(map(first.count, range(20))) < 60


def test_steps_that_are_added_later_do_not_move_the_others():
    plan = Plan("x", STEPS[:15], Settings(), seed=7)
    longer = replace(plan, steps=STEPS, refined=5)
    assert [n for n in longer.order(2) if n < 15] == plan.order(2)
    assert longer.hash == plan.hash  # journals of the first part belong to the plan still


def test_worlds_are_shuffled_with_the_rest():
    steps = (*STEPS[:1], *((replace(step[0], backend=backend),) for step in STEPS[:1] for backend in ("mpi", "nccl")))
    plan = Plan("x", steps, Settings(), seed=7)
    told = {tuple(world.backend for world in plan.worlds(repetition)) for repetition in range(1, 30)}
    assert len(told) == 6


def test_what_is_left_comes_in_the_same_order():
    plan = Plan("x", STEPS, Settings(), launches=2, seed=7)
    done = {STEPS[number][0].id for number in plan.order(2)[:8]}
    spec = LaunchSpec("", "", "gloo", 2, 2, 1.0, given_up=tuple(done))
    assert [number for number, _ in todo(Run(None, plan, ()), spec)] == plan.order(2)[8:]


@pytest.mark.full
def test_launches_are_measured_in_the_order_of_the_plan(tmp_path):
    out = tmp_path / "run"
    done = commbench(*RUN, "--launches", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    plan = Plan.load(out / "plan.json")
    assert isinstance(plan.seed, int) and json.loads((out / "plan.json").read_text())["seed"] == plan.seed
    rows = points(out)
    measured = [[row["id"] for row in rows if row["launch"] == launch] for launch in (1, 2)]
    assert measured == [[plan.steps[n][0].id for n in plan.order(launch)] for launch in (1, 2)]
    assert measured[0] != measured[1] and sorted(measured[0]) == sorted(measured[1])


@pytest.mark.full
def test_one_launch_is_measured_in_rising_order_unless_a_seed_is_given(tmp_path):
    assert commbench(*RUN, "--out", tmp_path / "a").returncode == 0
    assert commbench(*RUN, "--seed", 3, "--out", tmp_path / "b").returncode == 0
    first, second = ([row["size_bytes"] for row in points(tmp_path / run)] for run in "ab")
    assert first == sorted(first) and Plan.load(tmp_path / "a" / "plan.json").seed is None
    assert second != sorted(second) and sorted(second) == first


@pytest.mark.parametrize("seed", ["-1", "x"])
def test_a_seed_is_a_number(tmp_path, seed):
    assert commbench(*RUN, "--seed", seed, "--out", tmp_path / "run").returncode == 2


def test_a_step_that_fails_in_a_shuffled_launch_is_the_one_that_is_told(tmp_path, monkeypatch):
    """Ranks know a step by its number in the plan, wherever it stands in the order."""
    from commbench.launch.local import LocalSite

    steps = tuple(
        (replace(step[0], redop="sum", count=step[0].size_bytes // 4, send_bytes=1, recv_bytes=1),)
        for step in STEPS[:8]
    )
    op = OPS["all_reduce"]

    def prepare(group, call, send, recv):
        if call.count == 32:
            raise ValueError("no such size")
        return op.prepare(group, call, send, recv)

    monkeypatch.setitem(OPS, "all_reduce", replace(op, prepare=prepare))
    plan = Plan("x", steps, Settings(iters=2, warmup=0), launches=2, seed=1)
    assert plan.order(1)[0] != 4 and plan.order(1) != sorted(plan.order(1))
    plan.save(tmp_path / "plan.json")
    assert execute(plan, tmp_path, LocalSite(), Silent())[0] == 3
    rows = points(tmp_path)
    assert len({(row["id"], row["launch"]) for row in rows}) == len(rows) == 16
    failed = [row for row in rows if row["status"] == "error"]
    assert [(row["size_bytes"], row["launch"]) for row in failed] == [(128, 1), (128, 2)]
    assert all("no such size" in row["reason"] for row in failed)
    assert [r["exit_code"] for r in records(tmp_path) if r["record"] == "end"] == [3, 0, 3, 0]
