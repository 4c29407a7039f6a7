"""Tensor parallelism: right against the layer on one rank, and its calls as the papers count them."""

import pytest
import torch
from layer_ranks import built_on, on_ranks, tried
from torch.utils.flop_counter import FlopCounterMode

from commbench.layers import load
from commbench.layers.layer import Place
from commbench.layers.numbers import TOLERANCE
from commbench.layers.tensor_parallel import scaled
from commbench.layers.tensor_parallel_block import reference, whole_weights

CASES = [
    {"sequence_parallel": sp, "recompute": recompute, "part": part, "dtype": dtype, "tokens": 48, "batch": 2}
    for sp in (False, True)
    for recompute in ("none", "selective", "full", "full_early_stop")
    for part in ("layer", "mlp", "attention")
    for dtype in ("float32", "bfloat16")
]
# Forward and backward, per layer: layers.md of Megatron's papers; torch's early stop leaves out the last call.
CALLS = {
    (False, "none"): {"all_reduce": 4}, (False, "selective"): {"all_reduce": 4},
    (False, "full"): {"all_reduce": 6}, (False, "full_early_stop"): {"all_reduce": 5},
    (True, "none"): {"all_gather": 6, "reduce_scatter": 4}, (True, "selective"): {"all_gather": 6, "reduce_scatter": 4},
    (True, "full"): {"all_gather": 8, "reduce_scatter": 6},
    (True, "full_early_stop"): {"all_gather": 8, "reduce_scatter": 5},
}  # fmt: skip


@pytest.mark.parametrize("ranks, scale", [(2, 16), pytest.param(4, 8, marks=pytest.mark.full)])
def test_results_and_calls(ranks, scale):
    for rows in on_ranks(ranks, tried, "tensor_parallel", [case | {"scale": scale} for case in CASES]):
        for case, row in zip(CASES, rows, strict=True):
            assert row["counted"] == row["wanted"], case
            assert row["wrong"] == 0 and 0 < row["error"] < TOLERANCE[case["dtype"]], (case, row)
            if case["part"] == "layer":
                calls = {op: count for op, (count, _) in row["counted"].items()}
                assert calls == CALLS[case["sequence_parallel"], case["recompute"]], case


@pytest.mark.parametrize("model, ranks", [("gpt3-175b", 3), pytest.param("llama3-70b", 8, marks=pytest.mark.full)])
def test_three_and_eight_ranks(model, ranks):
    cases = [{"model": model, "scale": 16 if ranks == 3 else 8, "tokens": 24, "sequence_parallel": sp}
             for sp in (False, True)]  # fmt: skip
    for rows in on_ranks(ranks, tried, "tensor_parallel", cases):
        assert all(row["wrong"] == 0 and row["counted"] == row["wanted"] for row in rows)


def test_a_wrong_result_is_found():
    def spoilt(world):
        built, *_ = built_on(world, "tensor_parallel", {"tokens": 16, "part": "mlp"})
        weights = [cell.cell_contents for cell in built.step.__closure__ if isinstance(cell.cell_contents, list)][0]
        with torch.no_grad():
            weights[0][0, 0] += 1.0
        return built.check()

    assert any(wrong for wrong, _ in on_ranks(2, spoilt))


def test_flops_are_those_of_the_matrices():
    """torch counts the matrix products of a layer on one rank; attention's core it does not count on a CPU."""
    record = load("tensor_parallel")
    for model, scale in (("llama3-8b", 8), ("gpt3-175b", 16)):
        params = record.options | {"model": model, "scale": scale, "part": "mlp", "dtype": "float32", "tokens": 32}
        shape = scaled(model, scale)
        whole = whole_weights(params, shape, "cpu")
        matrices = [w.requires_grad_() for w in (whole.up, whole.down)]
        x = torch.randn(32, 1, shape.hidden, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(reference(x, whole, params, shape).sum(), [x, *matrices])
        assert counter.get_total_flops() == record.flops(params, Place(0, 1))


def test_products_that_are_done_twice():
    """As torch counts them while a step runs, of an MLP on one rank."""
    record = load("tensor_parallel")
    for recompute in ("none", "selective", "full", "full_early_stop"):
        given = {"part": "mlp", "tokens": 32, "scale": 16, "recompute": recompute, "dtype": "float32"}
        assert on_ranks(1, _counted_flops, given) == [record.flops(record.options | given, Place(0, 1))]


def _counted_flops(world, given):
    built = built_on(world, "tensor_parallel", given)[0]
    with FlopCounterMode(display=False) as counter:
        built.step()
    return counter.get_total_flops()


KEPT = [
    {"model": model, "scale": scale, "dtype": dtype, "recompute": recompute, "scores": scores, "sequence_parallel": sp,
     "tokens": 32, "batch": batch}
    for model, scale, scores in (("gpt3-175b", 48, True), ("gpt3-175b", 48, False), ("llama3-8b", 16, False))
    for recompute in ("none", "selective", "full")
    for dtype, sp, batch in (("bfloat16", True, 1), ("bfloat16", False, 2), ("float32", True, 2))
]  # fmt: skip


def test_what_is_kept_for_the_backward_pass():
    """Measured bytes are those of the count. arXiv 2205.05198, table 2, has dropout: masks of 2 sbh, 3 as^2b more; ours
    has the norms' mean and spread, and with the fused kernel a logarithm for each row of scores."""
    for rows in on_ranks(2, tried, "tensor_parallel", KEPT):
        for case, row in zip(KEPT, rows, strict=True):
            facts, t, again = row["facts"], 2, case["recompute"]
            assert row["wrong"] == 0 and facts["kept_bytes"] == facts["kept_formula_bytes"] > 0, (case, facts)
            if case["model"] == "gpt3-175b" and case["dtype"] == "bfloat16":
                rows_, u = case["tokens"] * case["batch"], t if case["sequence_parallel"] else 1
                masks = 0 if again == "full" else 2 * rows_ * 256 / u
                square = 3 * 2 * case["tokens"] * rows_ / t if case["scores"] and again == "none" else 0
                stats = 0 if again == "full" else 2 * 2 * 2 * rows_ / u
                logs = 4 * 2 * rows_ / t if again == "none" and not case["scores"] else 0
                assert facts["kept_published_bytes"] == facts["kept_bytes"] + masks + square - stats - logs, case
            else:
                assert "kept_published_bytes" not in facts


def test_flops_that_are_done_twice():
    """A third for full recomputation. The core of GPT-3: 4 bs^2h of 72 bsh^2 (1 + s/6h), arXiv 2205.05198, appendix A;
    three times that is the 2.7 % of its abstract."""
    record = load("tensor_parallel")
    params = record.options | {"model": "gpt3-175b", "scale": 1, "tokens": 2048, "dtype": "bfloat16", "scores": True}
    none, selective, full = (
        record.flops(params | {"recompute": r}, Place(0, 8)) for r in ("none", "selective", "full")
    )
    s, h = 2048, 12288
    assert none == pytest.approx(72 * s * h**2 * (1 + s / (6 * h)) / 8)
    assert full / none == pytest.approx(4 / 3)
    assert selective / none - 1 == pytest.approx(s / (18 * h) / (1 + s / (6 * h)))
    assert 3 * (selective / none - 1) == pytest.approx(0.027, abs=0.0005)


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({}, 3, "degree 3 does not divide heads 4"),
        ({"scale": 1, "model": "llama3-8b"}, 16, "does not divide kv_heads 8"),
        ({"sequence_parallel": True, "tokens": 7}, 2, "does not divide the sequence of 7 tokens"),
        ({"scores": True, "scale": 1}, 2, "one key head a query head"),
        ({"tokens": 0}, 2, "tokens is 0; it must be 1 or more"),
        ({"batch": 0}, 2, "batch is 0; it must be 1 or more"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    record = load("tensor_parallel")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, ranks)
