"""The key-value cache from prefill to decode: its bytes by formula, every byte in its place."""

import pytest
import torch
from layer_ranks import built_on, on_ranks, tried
from runs import commbench, points

from commbench.layers import load
from commbench.layers.kv_transfer import cache_elements
from commbench.layers.layer import Place
from commbench.planning.kv_cache import kv_bytes_per_token
from commbench.shapes import read_shape, shape_names

RECORD = load("kv_transfer")
CASES = [
    {"layout": layout, "model": model, "tokens": 21, "page_tokens": 8, "dtype": dtype}
    for layout in ("contiguous", "paged", "packed")
    for model, dtype in (("deepseek-v3", "bfloat16"), ("llama3-8b", "float8_e4m3fn"))
]


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 8))])
def test_every_byte_arrives(ranks):
    for rank, rows in enumerate(on_ranks(ranks, tried, "kv_transfer", CASES)):
        for case, row in zip(CASES, rows, strict=True):
            assert row["counted"] == row["wanted"], case
            assert row["wrong"] == 0 and row["error"] == 0, case
            assert row["counted"]["send"][0] > 0 if rank < ranks // 2 else row["counted"] == {"send": [0, 0]}


@pytest.mark.parametrize(
    "model, published", [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama3-405b", 516_096)]
)
def test_bytes_of_a_token(model, published):
    """DeepSeek-V3's ISCA paper, arXiv 2505.09343, table 1 (GQA: Qwen-2.5 72B and Llama-3.1 405B)."""
    params = RECORD.options | {"model": model, "tokens": 1000, "dtype": "bfloat16"}
    (messages, sent) = RECORD.traffic(params, Place(0, 2))["send"]
    assert (messages, sent) == (read_shape(model).layers, 1000 * published)


def test_the_planner_counts_the_same():
    for name in shape_names():
        shape = read_shape(name)
        assert cache_elements(shape) * shape.layers * 2 == kv_bytes_per_token(shape)


def test_pages_go_whole():
    params = RECORD.options | {"tokens": 33, "page_tokens": 16, "dtype": "bfloat16"}
    for layout, messages, tokens in (("contiguous", 80, 33), ("paged", 240, 48), ("packed", 80, 48)):
        assert RECORD.traffic(params | {"layout": layout}, Place(0, 4))["send"] == (messages, tokens * 327_680)
        assert RECORD.traffic(params | {"layout": layout}, Place(2, 4))["send"] == (0, 0)


def test_a_page_in_the_wrong_place_is_found():
    def swapped(world):
        built, *_ = built_on(world, "kv_transfer", {"layout": "paged", "model": "llama3-8b", "dtype": "bfloat16"})
        if world.rank == 1:  # the pages are looked for in another order than that in which they are received
            cells = (cell.cell_contents for cell in built.check.__closure__)
            table = next(value for value in cells if isinstance(value, torch.Tensor) and value.dtype == torch.int64)
            table.copy_(table.flip(0))
        return built.check()[0]

    assert on_ranks(2, swapped) == [0, 32]


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({}, 3, "needs an even number of ranks, not 3"),
        ({}, 1, "needs an even number of ranks, not 1"),
        ({"tokens": 0}, 2, "tokens is 0"),
        ({"page_tokens": 0}, 2, "page_tokens is 0"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    assert said in RECORD.problem(RECORD.options | {"dtype": "float32"} | given, ranks)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_from_the_command_line(tmp_path, backend):
    """A step that is its calls alone has no parts; packing has a computation to take apart."""
    given = ("--backend", backend, "--ranks", 2, "--iters", 4, "--dtype", "bfloat16", "--no-report")
    options = ("--set", "layout=contiguous,paged,packed", "--set", "model=deepseek-v3", "--set", "tokens=32")
    done = commbench("run", "kv_transfer", *given, *options, "--out", tmp_path / "run")
    rows = points(tmp_path / "run")
    assert [row["status"] for row in rows] == ["ok"] * 3, done.stdout
    assert [set(row["parts_us"]) for row in rows] == [set(), set(), {"compute", "comm"}]
    assert all(row["send_bytes"] == 32 * 70_272 and row["wrong"] == 0 for row in rows)
    assert all(row["rank_facts"]["bytes_per_token"] == [70_272] * 2 for row in rows)
