"""The Triton kernels in Triton's interpreter: float32 within 1e-5, float16 within 2e-3 of attention as defined.

bfloat16 is not tried here: the interpreter computes wrongly in it (triton#11584). A GPU checks that.
"""

import os

import pytest
import torch
from test_kernels_attention import all_of, tensors, worst

from commbench.errors import UsageError
from commbench.kernels import attention_reference
from commbench.kernels.masks import CAUSAL, FULL, Mask

# Read when triton is imported, which is now: pytest imports every test file before it runs the first test.
os.environ["TRITON_INTERPRET"] = "1"
triton_form = pytest.importorskip("commbench.kernels.attention_triton")
hopper_form = pytest.importorskip("commbench.kernels.attention_hopper")
del os.environ["TRITON_INTERPRET"]

Tiles = triton_form.Tiles


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # a launch imports more of triton


FEW = (Tiles(16, 16, 4, 1), Tiles(16, 16, 4, 1))
UNEVEN = (Tiles(16, 32, 4, 1), Tiles(32, 16, 4, 1))


def held_to_reference(mask, sq, sk, heads=2, kv_heads=1, dim=16, dim_v=16, tiles=FEW, dlse=True, dtype=torch.float32):
    inputs, do = tensors(sq, sk, heads, kv_heads, dim, dim_v, dtype, batch=1)
    lse_gradient = torch.randn(1, heads, sq, generator=torch.Generator().manual_seed(1)) if dlse else None
    wide = [x.detach().float().requires_grad_() for x in inputs]
    right = all_of(attention_reference.attention, wide, do.float(), mask, lse_gradient)
    ours = all_of(lambda *x: triton_form.attention(*x, tiles=tiles), inputs, do, mask, lse_gradient)
    if dtype == torch.float32:
        assert worst(ours, right) < 1e-5
    for name, a, b in zip("o lse dq dk dv".split(), ours, right):
        # An element of 16 bits is itself rounded by its size, so large gradients are held to a share of theirs.
        assert ((a.float() - b).abs() <= 2e-3 * b.abs().clamp_min(1)).all(), name


@pytest.mark.parametrize(
    "mask, sq, sk",
    [
        (CAUSAL, 33, 33),
        (FULL, 17, 40),
        (Mask(5, 0), 40, 20),  # more queries than keys: the first see nothing
        (Mask(right=0, documents=(9, 0, 1, 20)), 30, 30),
        (CAUSAL, 1, 20),
    ],
    ids=str,
)
def test_triton_is_the_reference(mask, sq, sk):
    held_to_reference(mask, sq, sk)


def test_a_head_dim_that_is_no_power_of_two():
    held_to_reference(CAUSAL, 20, 20, dim=48, dim_v=32)


def test_query_heads_that_share_key_heads():
    held_to_reference(CAUSAL, 20, 20, heads=4, kv_heads=2)


def test_float16():
    held_to_reference(Mask(7, 0), 24, 24, dtype=torch.float16)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("lengths", [(64, 64), (50, 50), (1, 1), (1, 70), (70, 1), (33, 70), (70, 33)], ids=str)
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(3, 0), Mask(20, 9), Mask(0, 0)], ids=str)
def test_every_mask_on_every_length(mask, lengths, dtype):
    held_to_reference(mask, *lengths, tiles=UNEVEN, dtype=dtype)


@pytest.mark.full
@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 4), (4, 2), (6, 2), (5, 1)])
def test_every_ratio_of_query_to_key_heads(heads, kv_heads):
    held_to_reference(CAUSAL, 34, 34, heads, kv_heads, tiles=UNEVEN)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("documents", [(30,), (1,) * 20, (16, 16), (17, 0, 3, 31)], ids=len)
@pytest.mark.parametrize("left", [None, 4])
def test_documents(documents, left, dtype):
    held_to_reference(Mask(left, 0, documents), sum(documents), sum(documents), tiles=UNEVEN, dtype=dtype)


@pytest.mark.full
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (256, 256), (192, 128)], ids=str)
def test_the_head_dims_of_models(dims):
    held_to_reference(CAUSAL, 40, 40, dim=dims[0], dim_v=dims[1], tiles=UNEVEN)


@pytest.mark.full
def test_the_tiles_that_a_gpu_gets():
    held_to_reference(CAUSAL, 200, 200, dim=64, dim_v=64, tiles=triton_form.default_tiles(64, 2))


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")  # rows that the planted fault leaves empty
@pytest.mark.parametrize("mask", [CAUSAL, Mask(4, 0), Mask(right=0, documents=(11, 9))], ids=str)
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_a_bound_off_by_one_is_seen(mask, which, monkeypatch):
    """The kernel takes two bounds for each query and two for each key; each of them matters to its result."""
    right, inputs_do = triton_form.device_bounds, tensors(20, 20, 1, 1, dim_v=16, batch=1)
    expected = all_of(attention_reference.attention, *inputs_do, mask)

    def moved(*arguments):
        bounds = [bound.clone() for bound in right(*arguments)]
        bounds[which] = (bounds[which] + (1 if which in (0, 2) else -1)).clamp(0, 20)
        return tuple(bounds)

    monkeypatch.setattr(triton_form, "device_bounds", moved)
    assert worst(all_of(lambda *x: triton_form.attention(*x, tiles=FEW), *inputs_do, mask), expected) > 0.01


@pytest.mark.parametrize("mask, sq, sk", [(CAUSAL, 40, 40), (Mask(5, 0), 50, 33)], ids=str)
def test_the_hopper_form_is_the_reference(mask, sq, sk):
    inputs, do = tensors(sq, sk, 2, 1, 16, 16, batch=1)
    forms = [all_of(form.attention, inputs, do, mask) for form in (hopper_form, attention_reference)]
    assert worst(*forms) < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("mask", [FULL, Mask(20, 9), Mask(right=0, documents=(17, 0, 3, 31))], ids=str)
def test_the_hopper_form_on_more_masks(mask):
    inputs, do = tensors(51, 51, 4, 2, 32, 16, batch=2)
    forms = [all_of(form.attention, inputs, do, mask) for form in (hopper_form, attention_reference)]
    assert worst(*forms) < 1e-5


@pytest.mark.full
def test_tensors_that_are_views():
    """[B, S, H, D] as training code has it, seen as [B, H, S, D]: no copy is needed."""
    source = torch.Generator().manual_seed(0)
    stored = [torch.randn(1, 20, 2, 16, generator=source) for _ in range(3)]
    views = [x.transpose(1, 2).requires_grad_() for x in stored]
    do = torch.randn(1, 2, 20, 16, generator=source)
    ours = all_of(lambda *x: triton_form.attention(*x, tiles=FEW), views, do, CAUSAL)
    assert worst(ours, all_of(attention_reference.attention, views, do, CAUSAL)) < 1e-5


@pytest.mark.parametrize(
    "dims, dtype, told",
    [((100, 64), "float32", "head dims 100 and 64"), ((64, 48), "float32", "power of two"), ((512, 64), "float32", "512"),
     ((64, 64), "bfloat16", "computes wrongly in bfloat16")],
)  # fmt: skip
def test_what_the_kernels_do_not_take(dims, dtype, told):
    with pytest.raises(UsageError, match=told):
        triton_form.refuse(*dims, dtype)
