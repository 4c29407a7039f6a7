"""Every operation on real ranks, on worlds and sizes that do not divide, checked element by element."""

import pytest
from runs import commbench, points

from commbench.cli.op_names import OP_NAMES

SUITE = """
name = "odd"
[settings]
iters = 2
warmup = 1
[[measure]]
op = {ops}
size = [0, 4, 1000, 12345, 100003]
dtype = {dtypes}
redop = {redops}
in_place = [false, true]
root = [0, {last}]
window = 3
"""


def _run(tmp_path, ranks, backend, dtypes=("float32", "int8"), redops=("sum",), ops=OP_NAMES):
    suite = tmp_path / "odd.toml"
    suite.write_text(SUITE.format(ops=list(ops), dtypes=list(dtypes), redops=list(redops), last=ranks - 1))
    out = tmp_path / "run"
    done = commbench("run", suite, "-n", ranks, "--backend", backend, "--out", out, "--no-report", timeout=500)
    assert done.returncode == 0, done.stderr
    return points(out)


def _assert_right(rows):
    assert {row["status"] for row in rows} <= {"ok", "skip"}
    checked = [row for row in rows if row["status"] == "ok" and row["op"] != "barrier"]
    assert checked
    for row in checked:
        by_design = row["op"] == "all_to_all" and row["in_place"] and row["backend"] == "gloo"
        assert row["wrong"] == (None if by_design else 0), row


@pytest.mark.parametrize("backend", ["gloo", pytest.param("mpi", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "ranks",
    [
        3,
        pytest.param(1, marks=pytest.mark.full),
        pytest.param(5, marks=pytest.mark.full),
        pytest.param(7, marks=pytest.mark.full),
    ],
)
def test_odd_worlds(tmp_path, ranks, backend):
    rows = _run(tmp_path, ranks, backend)
    _assert_right(rows)
    alone = {"p2p_latency", "p2p_bw", "p2p_bibw"} | ({"sendrecv"} if backend == "gloo" else set())
    assert {row["op"] for row in rows if row["status"] == "ok"} == set(OP_NAMES) - (alone if ranks == 1 else set())
    assert any(row["size_bytes"] == 0 and row["wrong"] == 0 for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_dtype_and_reduction(tmp_path, ranks, backend):
    from commbench.world.dtypes import DTYPES

    rows = _run(tmp_path, ranks, backend, DTYPES, ("sum", "prod", "min", "max", "avg"))
    _assert_right(rows)
    assert {row["dtype"] for row in rows} == set(DTYPES)


def test_the_slowest_rank_and_the_sizes_stand_in_a_row(tmp_path):
    rows = _run(tmp_path, 3, "gloo", ["float32"], ops=["all_gather"])
    row = next(r for r in rows if r["params"]["requested_bytes"] == 12345 and not r["in_place"])
    count = 12345 // 4 // 3
    assert (
        row["count"] == count
        and row["send_bytes"] == 4 * count
        and row["recv_bytes"] == row["size_bytes"] == 12 * count
    )
    assert len(row["rank_median_us"]) == len(row["slowest_count"]) == 3
    assert sum(row["slowest_count"]) >= len(row["samples_us"]) == 2
    assert row["aligned"] is True and row["oversubscribed"] in (True, False)


def test_groups_of_a_split_have_rows_of_their_own(tmp_path):
    out = tmp_path / "run"
    done = commbench(
        "run",
        "all_reduce",
        "-n",
        4,
        "--split",
        "MOD 2",
        "--split",
        "0,3;1,2",
        "--size",
        "4K",
        "--iters",
        3,
        "--out",
        out,
        "--no-report",
    )
    assert done.returncode == 0, done.stderr
    rows = points(out)
    assert {tuple(row["members"]) for row in rows} == {(0, 2), (1, 3), (0, 3), (1, 2)}
    assert all(row["wrong"] == 0 and row["ranks"] == 2 and len(row["samples_us"]) == 3 for row in rows)
    assert rows[0]["started_at"] == rows[1]["started_at"]


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.full), "mpi"])
def test_splits_that_come_again_and_again(tmp_path, backend):
    suite, out = tmp_path / "splits.toml", tmp_path / "run"
    suite.write_text(
        f'name = "splits"\nranks = 4\nbackend = "{backend}"\nsettings = {{ iters = 2 }}\n[[measure]]\n'
        'op = ["all_reduce", "all_gather", "broadcast"]\nsize = [8, "1K"]\nsplit = ["all", "MOD 2", "DIV 2"]\n'
    )
    done = commbench("run", suite, "--timeout", 20, "--out", out, "--no-report")
    assert done.returncode == 0, done.stderr
    assert [row["wrong"] for row in points(out)] == [0] * 30
