"""Tokens to experts and back, grouped products, products in 8 bits: references by brute force, kernels by references."""

import os

import pytest
import torch

from commbench.errors import UsageError
from commbench.kernels import fp8_reference, moe_reference

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
moe_triton = pytest.importorskip("commbench.kernels.moe_triton")
fp8_triton = pytest.importorskip("commbench.kernels.fp8_triton")
del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def routed(tokens=20, experts=6, top_k=3, hidden=24, empty=(2,)):
    """Tokens with distinct experts, some of them dropped; the experts in `empty` get none."""
    source = torch.Generator().manual_seed(tokens)
    open_experts = torch.tensor([e for e in range(experts) if e not in empty])
    picks = torch.stack([torch.randperm(len(open_experts), generator=source)[:top_k] for _ in range(tokens)])
    ids = open_experts[picks]
    ids[torch.rand(tokens, top_k, generator=source) < 0.2] = -1
    x = torch.randn(tokens, hidden, generator=source)
    return x, ids.int(), torch.rand(tokens, top_k, generator=source)


def test_the_order_is_by_expert_and_keeps_every_copy_once():
    x, ids, _ = routed()
    how = moe_reference.order(ids, 6)
    rows = moe_reference.permute(x, how)
    assert how.counts.tolist() == [int((ids == e).sum()) for e in range(6)] and how.counts[2] == 0
    begin = 0
    for expert, count in enumerate(how.counts.tolist()):
        wanted = [t for t in range(20) for c in ids[t].tolist() if c == expert]
        assert how.token[begin : begin + count].tolist() == wanted
        begin += count
    for token in range(20):
        for choice in range(3):
            place = int(how.place[token, choice])
            assert (place == -1) == (ids[token, choice] == -1)
            assert place == -1 or torch.equal(rows[place], x[token])


def test_a_whole_layer_is_the_sum_over_a_tokens_experts():
    x, ids, weights = routed()
    w = torch.randn(6, 24, 10, generator=torch.Generator().manual_seed(1))
    how = moe_reference.order(ids, 6)
    y = moe_reference.grouped_gemm(moe_reference.permute(x, how), w, how.counts)
    found = moe_reference.unpermute(y, how, weights)
    for token in range(20):
        right = sum(
            (weights[token, c] * (x[token] @ w[e]) for c, e in enumerate(ids[token]) if e >= 0), torch.zeros(10)
        )
        assert float((found[token] - right).abs().max()) < 1e-5


@pytest.mark.parametrize("tokens", [1, 20, pytest.param(70, marks=pytest.mark.full)])
def test_triton_moves_and_multiplies_the_same(tokens):
    x, ids, weights = routed(tokens)
    how = moe_reference.order(ids, 6)
    rows = moe_triton.permute(x, how, block=16)
    assert torch.equal(rows, moe_reference.permute(x, how))
    w = torch.randn(6, 24, 37, generator=torch.Generator().manual_seed(1))
    y = moe_triton.grouped_gemm(rows, w, how.counts, tile=(16, 32, 16))
    assert float((y - moe_reference.grouped_gemm(rows, w, how.counts)).abs().max()) < 1e-5
    back = moe_triton.unpermute(y, how, weights, block=16)
    assert float((back - moe_reference.unpermute(y, how, weights)).abs().max()) < 1e-5


def test_tokens_that_all_go_nowhere():
    x, ids, weights = routed()
    how = moe_reference.order(torch.full_like(ids, -1), 6)
    w = torch.zeros(6, 24, 10)
    for form in (moe_reference, moe_triton):
        rows = form.permute(x, how)
        y = form.grouped_gemm(rows, w, how.counts)
        assert rows.shape == (0, 24) and y.shape == (0, 10)
        assert not moe_reference.unpermute(y, how, weights).any()


@pytest.mark.parametrize("bad", [-2, 6])
def test_an_expert_that_is_not_there(bad):
    with pytest.raises(UsageError, match="there are 0 to 5"):
        moe_reference.order(torch.tensor([[0, bad]]), 6)


def quantised(rows=40, columns=200, depth=384):
    source = torch.Generator().manual_seed(0)
    x, w = torch.randn(rows, depth, generator=source), torch.randn(columns, depth, generator=source)
    x[3, 128:256] = 0
    return x, w, fp8_reference.quantise_rows(x), fp8_reference.quantise_blocks(w)


def test_quantised_values_are_within_half_a_step():
    """e4m3 has 3 bits of mantissa: a step of 1/8, so 1/16 of the value, and 2^-10 of the largest near zero."""
    x, w, rows, blocks = quantised()
    assert rows[1].shape == (40, 3) and blocks[1].shape == (2, 3)
    for wide, (values, scales), tall in ((x, rows, 1), (w, blocks, 128)):
        back = fp8_reference.dequantise(values, scales)
        step = scales.repeat_interleave(tall, 0)[: len(wide)].repeat_interleave(128, 1) * 2**-10
        assert ((back - wide).abs() <= torch.maximum(wide.abs() / 16, step)).all()
    assert not fp8_reference.dequantise(*rows)[3, 128:256].any()


def test_an_outlier_costs_its_own_block_only():
    x = torch.randn(2, 256, generator=torch.Generator().manual_seed(0))
    x[1, 7] = 1e6
    error = (fp8_reference.dequantise(*fp8_reference.quantise_rows(x)) - x).abs()
    assert error[1, 8:128].mean() > 5 * error[1, 128:].mean() and error[0].max() < 0.15


def test_the_product_is_that_of_the_dequantised_and_near_bf16():
    x, w, rows, blocks = quantised()
    found = fp8_reference.matmul(*rows, *blocks)
    exact = fp8_reference.dequantise(*rows).double() @ fp8_reference.dequantise(*blocks).double().T
    assert float((found - exact).abs().max()) < 1e-3
    right = x.double() @ w.double().T
    share = [
        float((y - right).norm() / right.norm()) for y in (found.double(), (x.bfloat16() @ w.bfloat16().T).double())
    ]
    assert 0.01 < share[0] < 0.05 and share[1] < 0.005  # what 8 bits cost beside 16


@pytest.mark.parametrize("sizes", [(40, 200, 384), pytest.param((17, 130, 128), marks=pytest.mark.full)])
def test_triton_multiplies_the_same(sizes):
    """In the interpreter on e4m3 values kept in 16 bits, which it holds exactly."""
    _, _, (x, x_scales), (w, w_scales) = quantised(*sizes)
    ours = fp8_triton.matmul(x.half(), x_scales, w.half(), w_scales, tile=(16, 64))
    right = fp8_reference.matmul(x, x_scales, w, w_scales)
    assert float(((ours - right).abs() / right.abs().clamp_min(1)).max()) < 1e-5


def test_a_scale_of_the_wrong_block_is_seen():
    _, _, (x, x_scales), (w, w_scales) = quantised()
    ours = fp8_triton.matmul(x.half(), x_scales.roll(1, 1).contiguous(), w.half(), w_scales, tile=(16, 64))
    assert float((ours - fp8_reference.matmul(x, x_scales, w, w_scales)).abs().max()) > 1


def test_a_depth_that_does_not_divide():
    with pytest.raises(UsageError, match="a depth of 100 is no multiple of 128; pad it"):
        fp8_reference.quantise_rows(torch.zeros(4, 100))
