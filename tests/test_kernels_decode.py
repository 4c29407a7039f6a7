"""Decoding over pages: the reference against plain attention, the split-K kernel against the reference."""

import os

import pytest
import torch

from commbench.errors import UsageError
from commbench.kernels.attention_reference import attention, merge
from commbench.kernels.decode_reference import check, decode, decode_bytes
from commbench.kernels.masks import FULL

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
decode_triton = pytest.importorskip("commbench.kernels.decode_triton")
del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def paged(lengths, heads=4, kv_heads=2, dim=16, dim_v=16, page=8, latent=False, dtype=torch.float32):
    """Sequences whose pages lie scattered among others, and a table that names them."""
    source = torch.Generator().manual_seed(sum(lengths))
    most = max(1, -(-max(lengths) // page))
    pages = len(lengths) * most + 3
    k = torch.randn(pages, page, kv_heads, dim, generator=source).to(dtype)
    v = None if latent else torch.randn(pages, page, kv_heads, dim_v, generator=source).to(dtype)
    table = torch.randperm(pages, generator=source)[: len(lengths) * most].view(len(lengths), most).int()
    q = torch.randn(len(lengths), heads, dim, generator=source).to(dtype)
    return q, k, v, table, torch.tensor(lengths, dtype=torch.int32)


def test_pages_are_only_a_way_to_lie():
    q, k, v, table, lengths = paged([13, 40, 1])
    o, lse = decode(q, k, v, table, lengths, 0.25)
    for i, length in enumerate(lengths.tolist()):
        keys, values = (x[table[i].long()].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k, v))
        right, right_lse = attention(q[i, :, None][None], keys, values, FULL, 0.25)
        assert float((o[i] - right[0, :, 0]).abs().max()) < 1e-6
        assert float((lse[i] - right_lse[0, :, 0]).abs().max()) < 1e-6


def held(lengths, splits, keys=16, dim_v=0, tolerance=1e-5, **sizes):
    inputs = paged(lengths, **sizes)
    scale = inputs[0].shape[-1] ** -0.5
    check(*inputs, dim_v)
    right, ours = decode(*inputs, scale, dim_v), decode_triton.decode(*inputs, scale, dim_v, splits, keys)
    for a, b in zip(ours, right):
        a, b = (torch.nan_to_num(x.float(), neginf=-99.0) for x in (a, b))
        assert float((a - b).abs().max()) < tolerance


@pytest.mark.parametrize("splits", [1, 3])
def test_split_k_with_unequal_lengths_one_of_them_empty(splits):
    held([13, 40, 0, 1], splits)


def test_latent_keys_as_mla_has_them():
    """One key head, values the first columns of the keys, a rotary rest: 576 = 512 + 64 made small."""
    held([37, 5], 2, heads=5, kv_heads=1, dim=48, dim_v=32, latent=True)


@pytest.mark.full
@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (8, 8), (16, 1), (24, 1), (6, 2)])
@pytest.mark.parametrize("splits", [1, 2, 5])
def test_every_ratio_of_heads(heads, kv_heads, splits):
    held([50, 17, 3], splits, heads=heads, kv_heads=kv_heads)


@pytest.mark.full
@pytest.mark.parametrize("page", [1, 7, 16, 64])
def test_every_size_of_a_page(page):
    held([33, 64, 1], 3, page=page)


@pytest.mark.full
def test_the_widths_of_deepseek_v3():
    held([70], 2, heads=16, kv_heads=1, dim=576, dim_v=512, latent=True, page=64)


@pytest.mark.full
def test_float16():
    held([33, 64, 1], 3, dtype=torch.float16, tolerance=2e-3)


def test_a_key_too_many_or_too_few_is_seen():
    q, k, v, table, lengths = paged([13, 40])
    right = decode(q, k, v, table, lengths, 0.25)[0]
    for by in (-1, 1):
        moved = decode_triton.decode(q, k, v, table, (lengths + by).clamp(max=40), 0.25, splits=2, keys=16)[0]
        assert float((moved[0] - right[0]).abs().max()) > 1e-3


def test_parts_of_the_keys_merge():
    q, k, v, table, lengths = paged([32])
    first = decode(q, k, v, table[:, :2], lengths // 2, 0.25)
    last = decode(q, k, v, table[:, 2:], lengths // 2, 0.25)
    parts = [x.unsqueeze(-2) if i % 2 == 0 else x.unsqueeze(-1) for i, x in enumerate((*first, *last))]
    o, _ = merge(*parts)
    assert float((o.squeeze(-2) - decode(q, k, v, table, lengths, 0.25)[0]).abs().max()) < 1e-6


def test_bytes_are_those_of_the_keys():
    q, k, v, _, lengths = paged([13, 40])
    assert decode_bytes(q, k, v, lengths) == 53 * 2 * (16 + 16) * 4 + 2 * 4 * (16 + 16) * 4
    q, k, v, _, lengths = paged([13, 40], 4, 1, 48, latent=True)
    assert decode_bytes(q, k, None, lengths, 32) == 53 * 48 * 4 + 2 * 4 * (48 + 32) * 4


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda q, k, v, t, n: (q[:, :3], k, v, t, n), "queries of 3 heads x 16 do not go with keys of 2 heads"),
        (lambda q, k, v, t, n: (q[..., :8], k, v, t, n), "the width must be the same"),
        (lambda q, k, v, t, n: (q, k, None, t, n), "latent values are the first dim_v of one head"),
        (lambda q, k, v, t, n: (q, k, v[:, :4], t, n), "pages of values"),
        (lambda q, k, v, t, n: (q, k, v, t, n * 9), "lengths up to 360 need 45 pages of 8 a sequence; the table has 5"),
        (lambda q, k, v, t, n: (q, k, v, t + 90, n), "there are pages 0 to 12"),
    ],
)
def test_what_does_not_belong_together(change, told):
    with pytest.raises(UsageError, match=told):
        check(*change(*paged([13, 40])))
