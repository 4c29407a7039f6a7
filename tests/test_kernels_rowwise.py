"""RMSNorm, SwiGLU and cross-entropy in Triton's interpreter, forward and backward, against plain torch."""

import os

import pytest
import torch

from commbench.kernels import rowwise_reference

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
rowwise_triton = pytest.importorskip("commbench.kernels.rowwise_triton")
del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def held(name, inputs, tolerance, *more):
    """Outputs and gradients of both forms, of inputs that take gradients."""
    ours, right = (getattr(form, name)(*inputs, *more) for form in (rowwise_triton, rowwise_reference))
    out = torch.randn(right.shape, generator=torch.Generator().manual_seed(5)).to(right.dtype)
    leaves = [x for x in inputs if x.is_floating_point()]
    gradients = [torch.autograd.grad(y, leaves, out) for y in (ours, right)]
    for a, b in zip((ours, *gradients[0]), (right, *gradients[1])):
        error = (a.detach().float() - b.detach().float()).abs() / b.detach().float().abs().clamp_min(1)
        assert float(error.max()) < tolerance, name


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


TYPES = [(torch.float32, 1e-5), pytest.param(torch.float16, 2e-3, marks=pytest.mark.full)]


@pytest.mark.parametrize("dtype, tolerance", TYPES)
@pytest.mark.parametrize("shape", [(1, 5, 33), (7, 64)], ids=str)
def test_rms_norm(shape, dtype, tolerance):
    held("rms_norm", (drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype, seed=1)), tolerance)


def test_rms_norm_over_more_rows_than_programs(monkeypatch):
    monkeypatch.setattr(rowwise_triton, "_MOST_PROGRAMS", 3)
    held("rms_norm", (drawn(11, 16), drawn(16, seed=1)), 1e-5)


@pytest.mark.parametrize("dtype, tolerance", TYPES)
@pytest.mark.parametrize("shape", [(3, 17), (2, 1024)], ids=str)
def test_swiglu(shape, dtype, tolerance):
    held("swiglu", (drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype, seed=1)), tolerance)


@pytest.mark.parametrize("vocabulary", [1, 16, 50, 64])
def test_cross_entropy_over_blocks_of_the_vocabulary(vocabulary, monkeypatch):
    target = torch.arange(6) % vocabulary
    logits = (drawn(6, vocabulary) * 20).detach().requires_grad_()
    monkeypatch.setattr(rowwise_triton, "cross_entropy", lambda x, t: rowwise_triton._CrossEntropy.apply(x, t, 16))
    held("cross_entropy", (logits, target), 1e-5)


def test_a_wrong_target_is_seen():
    logits, target = drawn(6, 50).detach(), torch.arange(6)
    with pytest.raises(AssertionError):
        ours = rowwise_triton.cross_entropy(logits, target + 1, 16)
        assert float((ours - rowwise_reference.cross_entropy(logits, target)).abs().max()) < 1e-2
