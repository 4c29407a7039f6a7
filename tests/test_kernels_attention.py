"""Attention in plain torch: the reference against torch's own, the tiled form against the reference."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from commbench.kernels import attention_reference, attention_tiled
from commbench.kernels.flops import Attention, score_bytes, tensor_bytes
from commbench.kernels.masks import CAUSAL, FULL, Mask
from commbench.kernels.memory import peak_bytes


def tensors(sq, sk, heads=4, kv_heads=2, dim=16, dim_v=8, dtype=torch.float32, batch=2):
    source = torch.Generator().manual_seed(sq * 1000 + sk)
    shapes = (
        (batch, heads, sq, dim),
        (batch, kv_heads, sk, dim),
        (batch, kv_heads, sk, dim_v),
        (batch, heads, sq, dim_v),
    )
    q, k, v, do = (torch.randn(shape, generator=source, dtype=torch.float32).to(dtype) for shape in shapes)
    return (q.requires_grad_(), k.requires_grad_(), v.requires_grad_()), do


def all_of(form, inputs, do, mask, dlse=None):
    """(o, lse, dq, dk, dv); -inf of lse as -99."""
    o, lse = form(*inputs, mask)
    finite = torch.where(torch.isneginf(lse), 0.0, lse)
    loss = (o * do).sum() + ((finite * dlse).sum() if dlse is not None else 0)
    grads = torch.autograd.grad(loss, inputs)
    return o.detach(), torch.where(torch.isneginf(lse), -99.0, lse).detach(), *grads


def worst(first, second) -> float:
    return max(float((a.float() - b.float()).abs().max()) for a, b in zip(first, second, strict=True))


def tiled(*arguments):
    return attention_tiled.attention(*arguments, tile=4)


MASKS = [FULL, CAUSAL, Mask(3, 0), Mask(2, 1), Mask(0, 0), Mask(right=2)]
LENGTHS = [(7, 7), (8, 8), (1, 9), (9, 1), (5, 12), (12, 5), (1, 1)]


@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(3, 0)], ids=str)
def test_the_reference_is_sdpa_in_float64(mask):
    inputs, do = tensors(9, 9, dtype=torch.float64)
    ours = attention_reference.attention(*inputs, mask)[0]
    with sdpa_kernel(SDPBackend.MATH):
        theirs = F.scaled_dot_product_attention(
            *inputs, attn_mask=attention_reference.allowed(mask, 9, 9), enable_gqa=True
        )
    assert float((ours - theirs).detach().abs().max()) < 1e-14
    gradients = [torch.autograd.grad(o, inputs, do.double()) for o in (ours, theirs)]
    assert max(float((a - b).abs().max()) for a, b in zip(*gradients)) < 1e-13


def test_lse_is_torchs():
    inputs, _ = tensors(16, 16, 2, 2, dim_v=16)
    lse = attention_reference.attention(*inputs, CAUSAL)[1]
    theirs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*inputs, 0.0, True)[1]
    assert float((lse - theirs).detach().abs().max()) < 1e-5


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_tiled_is_the_reference(mask, lengths):
    for heads, kv_heads in ((4, 4), (4, 2), (3, 1)):
        inputs, do = tensors(*lengths, heads, kv_heads)
        dlse = torch.randn(2, heads, lengths[0], generator=torch.Generator().manual_seed(1))
        forms = [all_of(form, inputs, do, mask, dlse) for form in (attention_reference.attention, tiled)]
        assert worst(*forms) < 1e-5


@pytest.mark.parametrize("documents", [(3, 0, 1, 6), (10,), (1,) * 10, (4, 4, 2)])
def test_tiled_keeps_documents_apart(documents):
    inputs, do = tensors(10, 10)
    mask = Mask(right=0, documents=documents)
    whole = all_of(tiled, inputs, do, mask)
    assert worst(whole, all_of(attention_reference.attention, inputs, do, mask)) < 1e-5
    begin = 0
    for length in filter(None, documents):  # each document by itself gives the same
        rows = slice(begin, begin + length)
        alone = tiled(*(x[:, :, rows] for x in inputs), CAUSAL)[0]
        assert float((whole[0][:, :, rows] - alone).detach().abs().max()) < 1e-5
        begin += length


def test_an_empty_row_is_zero_and_has_no_gradient():
    inputs, do = tensors(5, 2)
    for form in (attention_reference.attention, tiled):
        o, lse, dq, dk, dv = all_of(form, inputs, do, CAUSAL)
        assert (o[:, :, :3] == 0).all() and (lse[:, :, :3] == -99).all() and (dq[:, :, :3] == 0).all()
        assert all(torch.isfinite(x).all() for x in (o, dq, dk, dv)) and (o[:, :, 3:] != 0).all()


@pytest.mark.parametrize("dtype, bound", [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
def test_tiled_in_16_bits(dtype, bound):
    inputs, do = tensors(40, 40, dtype=dtype, dim_v=16)
    wide = [x.detach().float().requires_grad_() for x in inputs]
    assert worst(all_of(tiled, inputs, do, CAUSAL), all_of(attention_reference.attention, wide, do, CAUSAL)) < bound


def test_parts_merge_with_gradients():
    """As ring attention and split-K decoding do: each part by itself, then joined by lse."""
    inputs, do = tensors(6, 10)
    offset = 4

    def in_parts(q, k, v, mask):
        # The first six keys: each query sees all those before it; the last four: causal by its own position.
        first = tiled(q, k[:, :, :6], v[:, :, :6], Mask(right=offset))
        last = tiled(q[:, :, 2:], k[:, :, 6:], v[:, :, 6:], CAUSAL)
        empty = torch.zeros_like(first[0][:, :, :2]), torch.full_like(first[1][:, :, :2], float("-inf"))
        last = torch.cat([empty[0], last[0]], 2), torch.cat([empty[1], last[1]], 2)
        return attention_reference.merge(*first, *last)

    assert worst(all_of(in_parts, inputs, do, CAUSAL), all_of(attention_reference.attention, inputs, do, CAUSAL)) < 1e-5


@pytest.mark.parametrize("mask", [CAUSAL, Mask(3, 0), Mask(2, 1), Mask(right=0, documents=(4, 6))], ids=str)
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_mask_off_by_one_is_seen(mask, end, by, monkeypatch):
    """The comparison of these tests must fail when either end of a query's keys is moved by one."""
    right = attention_tiled.key_bounds
    inputs, do = tensors(10, 10)
    expected = all_of(attention_reference.attention, inputs, do, mask)

    def moved(*arguments):
        bounds = list(right(*arguments))
        if end == 0 and by < 0 and not bounds[0].any():
            pytest.skip("a mask without a left end has none to move outwards")
        bounds[end] = (bounds[end] + by).clip(0, 10)
        return tuple(bounds)

    monkeypatch.setattr(attention_tiled, "key_bounds", moved)
    assert worst(all_of(tiled, inputs, do, mask), expected) > 0.01


@pytest.mark.parametrize("tokens", [2048, pytest.param(16384, marks=pytest.mark.full)])
def test_memory_grows_with_tokens_not_with_their_square(tokens):
    """Beyond inputs and outputs, forward and backward: under 2 % of the score matrix at 16k tokens."""
    q, k, v = (torch.randn(1, 1, tokens, 64, requires_grad=True) for _ in range(3))
    forward = peak_bytes(lambda: attention_tiled.attention(q, k, v, CAUSAL), "cpu")
    o, _ = attention_tiled.attention(q, k, v, CAUSAL)
    backward = peak_bytes(lambda: torch.autograd.grad(o, (q, k, v), torch.ones_like(o), retain_graph=True), "cpu")
    share = 0.02 * 16384 / tokens  # what grows with the tokens is a larger share of fewer
    assert 0 < max(forward, backward) < share * score_bytes(Attention(1, 1, 1, tokens, tokens, 64, 64))


def test_the_meter_of_memory_reads_what_is_known():
    """A form that holds the scores is seen to hold them; a plain copy of x holds nothing but its result."""
    x = torch.ones(1 << 20)
    assert peak_bytes(lambda: x.clone(), "cpu") == 0
    assert peak_bytes(lambda: (x + 1).add_(1).sum(), "cpu") == pytest.approx(x.nbytes, rel=0.01)
    case = Attention(1, 2, 2, 512, 512, 16, 16)
    q, k, v = (torch.randn(1, 2, 512, 16) for _ in range(3))
    held = peak_bytes(lambda: attention_reference.attention(q, k, v, FULL), "cpu")
    assert score_bytes(case) <= held < 4 * score_bytes(case) + sum(tensor_bytes(case).values())
