"""Would a false number or false data be seen? Ranks are forked from the test, with something spoiled in them."""

import time
from dataclasses import replace

import pytest
from runs import points, run_in_process

from commbench import ops

TABLES = {
    "name": "t",
    "settings": {"iters": 8, "warmup": 2, "timeout_s": 20},
    "measure": [{"op": ["all_reduce", "all_gather"], "size": ["1K", "64K"]}],
}


def _spoil(monkeypatch, name, around):
    """Replace the ready call of an operation by around(group, call, send, recv, ready call)."""
    op = ops.OPS[name]
    monkeypatch.setitem(
        ops.OPS, name, replace(op, prepare=lambda g, c, s, r: around(g, c, s, r, op.prepare(g, c, s, r)))
    )


def _align(monkeypatch, around):
    """Replace the alignment of a Gloo world by around(world, align)."""
    from commbench.world.torch_world import TorchWorld

    form = TorchWorld.__init__

    def formed(self, *arguments):
        form(self, *arguments)
        align = self.align
        self.align = lambda: around(self, align)

    monkeypatch.setattr(TorchWorld, "__init__", formed)


def test_a_wrong_element_ends_in_5_and_later_rows_are_measured(tmp_path, monkeypatch):
    def corrupt(group, call, send, recv, ready):
        def run():
            ready()
            if group.rank == 1 and call.count == 256:
                recv[-1] += 1

        return run

    _spoil(monkeypatch, "all_reduce", corrupt)
    code, _ = run_in_process(TABLES, tmp_path / "run", 2)
    assert code == 5
    rows = points(tmp_path / "run")
    assert [(row["status"], row["wrong"]) for row in rows] == [("wrong", 1), ("ok", 0), ("ok", 0), ("ok", 0)]


def test_a_late_rank_shows_as_skew_and_not_as_a_slow_network(tmp_path, monkeypatch):
    def late(group, call, send, recv, ready):
        def run():
            if group.rank == 1:
                time.sleep(0.02)
            ready()

        return run

    _spoil(monkeypatch, "all_reduce", late)
    assert run_in_process(TABLES, tmp_path / "run", 2)[0] == 0
    late_row, steady = points(tmp_path / "run")[0], points(tmp_path / "run")[2]
    assert late_row["skew_us"] < 10_000  # the sleep is inside rank 1's own call: rank 0 waits for it as long
    assert min(late_row["samples_us"]) > 20_000 > steady["skew_us"]


def test_a_rank_that_arrives_late_after_the_alignment_is_told_apart(tmp_path, monkeypatch):
    def late(world, align):
        align()
        if world.rank == 1:
            time.sleep(0.02)

    _align(monkeypatch, late)
    assert run_in_process(TABLES, tmp_path / "run", 2)[0] == 0
    row = points(tmp_path / "run")[0]
    assert row["skew_us"] > 15_000 and row["slowest_count"][0] == 8 and row["rank_median_us"][1] < 5_000


def test_an_unfinished_call_is_caught_by_the_data_check(tmp_path, monkeypatch):
    """The classic lie: the clock stops before the operation has ended."""
    _spoil(monkeypatch, "all_gather", lambda group, call, send, recv, ready: lambda: None)
    code, _ = run_in_process(TABLES, tmp_path / "run", 2)
    assert code == 5
    assert [row["status"] for row in points(tmp_path / "run")] == ["ok", "ok", "wrong", "wrong"]


def test_a_point_that_raises_is_an_error_and_the_rest_gets_a_new_launch(tmp_path, monkeypatch):
    def refuse(group, call, send, recv, ready):
        def run():
            if call.count == 256:
                raise RuntimeError("Invalid scalar type")
            ready()

        return run

    _spoil(monkeypatch, "all_reduce", refuse)
    code, _ = run_in_process(TABLES, tmp_path / "run", 2)
    assert code == 3
    rows = {(row["op"], row["params"]["requested_bytes"]): row for row in points(tmp_path / "run")}
    assert rows["all_reduce", 1024]["status"] == "error" and "Invalid scalar type" in rows["all_reduce", 1024]["reason"]
    assert [row["status"] for key, row in rows.items() if key != ("all_reduce", 1024)] == ["ok"] * 3
    assert len(list((tmp_path / "run").glob("launch-*.jsonl"))) == 2


@pytest.mark.parametrize("timing", ["isolated", "streaming"])
def test_the_time_of_a_call_is_the_time_it_takes(tmp_path, monkeypatch, timing):
    """A call of known length, 5 ms on every rank: one sample or a hundred, the figure is the same."""
    _spoil(monkeypatch, "barrier", lambda group, call, send, recv, ready: lambda: time.sleep(0.005))
    for iters in (3, 30):
        tables = {
            "name": "t",
            "settings": {"iters": iters, "warmup": 1},
            "measure": [{"op": "barrier", "timing": timing, "batch": 4}],
        }
        out = tmp_path / str(iters)
        assert run_in_process(tables, out, 2)[0] == 0
        row = points(out)[0]
        assert len(row["samples_us"]) == iters and row["stop_reason"] == "fixed"
        assert 5_000 <= sorted(row["samples_us"])[iters // 2] < 7_500


def test_a_slow_warm_up_is_bounded_by_time(tmp_path, monkeypatch):
    _spoil(monkeypatch, "barrier", lambda group, call, send, recv, ready: lambda: time.sleep(0.05))
    tables = {"name": "t", "settings": {"iters": 1, "warmup": 1000, "warmup_s": 0.3}, "measure": [{"op": "barrier"}]}
    assert run_in_process(tables, tmp_path / "run", 2)[0] == 0
    assert 2 <= points(tmp_path / "run")[0]["warmup"] <= 7


def test_a_deadline_ends_a_world_in_which_one_rank_never_comes(tmp_path, monkeypatch):
    def hang_before(world, align):
        world.seen = getattr(world, "seen", 0) + 1
        if world.rank == 1 and world.seen > 30:
            time.sleep(60)
        align()

    _align(monkeypatch, hang_before)
    tables = {**TABLES, "settings": {"iters": 100, "warmup": 1, "timeout_s": 2}}
    begin = time.monotonic()
    code, reason = run_in_process(tables, tmp_path / "run", 3)
    assert code == 4 and time.monotonic() - begin < 12
    assert "--timeout" in reason


def test_a_library_that_does_not_let_go_ends_nothing_but_the_rank(tmp_path, monkeypatch):
    from commbench.world.torch_world import TorchWorld

    monkeypatch.setattr(TorchWorld, "close", lambda self: time.sleep(60))
    begin = time.monotonic()
    code, _ = run_in_process({**TABLES, "settings": {"iters": 2, "timeout_s": 2}}, tmp_path / "run", 2)
    assert code == 0 and len(points(tmp_path / "run")) == 4 and time.monotonic() - begin < 15


def test_the_budget_of_streaming_counts_whole_batches(tmp_path, monkeypatch):
    """A sample is 20 calls of 5 ms: half a second buys 5 of them, and not 5 more for the time of a single call."""
    _spoil(monkeypatch, "barrier", lambda group, call, send, recv, ready: lambda: time.sleep(0.005))
    settings = {"budget_s": 0.55, "target": 1e-9, "warmup": 1}
    tables = {"name": "t", "settings": settings, "measure": [{"op": "barrier", "timing": "streaming", "batch": 20}]}
    assert run_in_process(tables, tmp_path / "run", 2)[0] == 0
    row = points(tmp_path / "run")[0]
    assert row["stop_reason"] == "budget" and 3 <= len(row["samples_us"]) <= 6
