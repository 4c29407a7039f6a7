"""Split tables that disagree between ranks are found before the call that would hang, and the two ranks are named."""

import time

import pytest
from runs import points, run_in_process

import commbench.ops.op as op_module
from commbench.routing.recipe import matrix_of

TABLES = {
    "name": "planted",
    "settings": {"iters": 3, "warmup": 1, "timeout_s": 20},
    "measure": [{"op": ["all_to_all_v", "all_to_all_padded"], "size": ["4K", "1M"], "matrix": "equal"}],
}


def planted(monkeypatch, wrong_rank, change):
    """One rank of those that are forked from this process holds another table, from the second size on."""
    import commbench.ops.prepared as prepared

    honest = op_module.call_of

    class Planted(prepared.Prepared):
        def __init__(self, world, group, point, buffers):
            def call_of(point):
                call = honest(point)
                if world.rank != wrong_rank or point.params["requested_bytes"] == 4096:
                    return call
                return type(call)(**{**vars(call), "matrix": change([list(row) for row in call.matrix])})

            prepared.call_of = call_of
            super().__init__(world, group, point, buffers)

    monkeypatch.setattr("commbench.measure.Prepared", Planted)
    monkeypatch.setattr(prepared, "call_of", honest)


def test_a_planted_disagreement_is_found_and_the_rest_goes_on(tmp_path, monkeypatch):
    def less(matrix):
        matrix[2][1] -= 5
        return matrix

    planted(monkeypatch, 2, less)
    began = time.monotonic()
    code, _ = run_in_process(TABLES, tmp_path, 3)
    assert code == 3 and time.monotonic() - began < 15
    rows = {(row["op"], row["params"]["requested_bytes"]): row for row in points(tmp_path)}
    for name in ("all_to_all_v", "all_to_all_padded"):
        assert rows[name, 4096]["status"] == "ok" and rows[name, 4096]["wrong"] == 0
        bad = rows[name, 2**20]
        assert bad["status"] == "error" and not bad["samples_us"]
        assert "the split tables of ranks 2 and 1 disagree" in bad["reason"]
        each = 2**20 // 4 // 3
        assert f"rank 2 would send {each - 5} elements, rank 1 expects {each}" in bad["reason"]


def test_a_rank_that_expects_another_share_is_found_too(tmp_path, monkeypatch):
    def expects_more(matrix):
        matrix[0][2] += 1
        return matrix

    planted(monkeypatch, 2, expects_more)
    code, _ = run_in_process(TABLES, tmp_path, 3)
    bad = [row for row in points(tmp_path) if row["status"] == "error"]
    assert code == 3 and len(bad) == 2 and all("of ranks 0 and 2 disagree" in row["reason"] for row in bad)


def test_groups_of_a_split_are_named_by_their_ranks_in_the_world(tmp_path, monkeypatch):
    def less(matrix):
        matrix[1][0] -= 1
        return matrix

    planted(monkeypatch, 3, less)
    measure = {**TABLES["measure"][0], "op": "all_to_all_v", "size": "1M", "split": "DIV 2"}
    code, _ = run_in_process({**TABLES, "measure": [measure]}, tmp_path, 4)
    rows = points(tmp_path)
    assert code == 3 and len(rows) == 2  # the groups of a step run together, so both are given up
    assert all("of ranks 3 and 2 disagree" in row["reason"] for row in rows)


def test_another_numpy_that_draws_otherwise_is_found():
    from commbench.errors import MeasureError
    from commbench.routing.recipe import Recipe, elements, sums

    recipe = Recipe("zipf:1", 4, 4, tokens=64, experts=16, top_k=4)
    sent, received = sums(elements(recipe, 4096))
    params = recipe.params() | {"sent": sent, "received": received}
    assert matrix_of(params, 4, 4096) == elements(recipe, 4096)
    received[0], received[1] = received[0] + 1, received[1] - 1
    with pytest.raises(MeasureError, match="routing zipf:1 with seed 0 makes other sums here"):
        matrix_of(params, 4, 4096)


@pytest.mark.parametrize("backend, cases", [("gloo", 5), pytest.param("mpi", 2, marks=pytest.mark.full)])
def test_ranks_that_exchange_nothing_are_no_disagreement(tmp_path, backend, cases):
    """Splits with zeros, a rank outside of it all, and of two ranks one that sends nothing (pytorch issues 43256, 81684
    and 146468)."""
    matrices = [
        [[0, 1, 0], [0, 0, 0], [2, 0, 0]], [[7, 0, 3, 1], [0, 0, 9, 0], [1, 2, 0, 4], [0, 0, 0, 5]],
        [[1, 1], [0, 0]], [[0, 1], [0, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]],
    ]  # fmt: skip
    for number, matrix in enumerate(matrices[:cases]):
        measure = {"op": "all_to_all_v", "size": [0, 8, "64K"], "matrix": [[float(x) for x in row] for row in matrix]}
        out = tmp_path / str(number)
        code, reason = run_in_process({**TABLES, "measure": [measure]}, out, len(matrix), backend)
        assert code == 0, reason
        assert [(row["status"], row["wrong"]) for row in points(out)] == [("ok", 0)] * 3
