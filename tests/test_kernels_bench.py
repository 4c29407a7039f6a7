"""The gate before timing, the clock, the table of backends: what is wrong is not timed, what is not here says why."""

import time
from dataclasses import replace

import pytest
import torch

from commbench.errors import MeasureError
from commbench.kernels import backends, bench, clock
from commbench.kernels.attention_reference import attention
from commbench.kernels.backends import BACKENDS, Backend
from commbench.kernels.bench import How
from commbench.kernels.check import compare, expected
from commbench.kernels.flops import Attention
from commbench.kernels.inputs import draw
from commbench.kernels.masks import CAUSAL, FULL, Mask
from commbench.timing.stop_rule import StopRule

CASE = Attention(2, 4, 2, 32, 32, 16, 16, mask=CAUSAL)
QUICK = How(0.0, StopRule(fixed=3))


def outcome(forward, case=CASE, **fields):
    inputs = draw(case, "cpu")
    tried = Backend("tried", "", lambda *_: forward, **fields)
    return bench.run(case, tried, "cpu", inputs, expected(case, *inputs), QUICK)


def test_what_is_right_is_timed():
    found = outcome(lambda q, k, v: attention(q, k, v, CAUSAL)[0])
    for which in ("forward", "backward"):
        assert found[which].status == "ok" and found[which].checked.wrong == 0 and found[which].memory_bytes > 0
        assert len(found[which].timed.samples_us) == 3 and min(found[which].timed.samples_us) > 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v: attention(q, k, v, Mask(right=1))[0],  # a mask off by one
        lambda q, k, v: attention(q, k, v, Mask(30, 0))[0],  # one key of one query lost
        lambda q, k, v: attention(q, k, v, CAUSAL, scale=0.2501)[0],
        lambda q, k, v: attention(q, k, v, FULL)[0],
        lambda q, k, v: attention(q, k, v, CAUSAL)[0] * float("nan"),
    ],
    ids=["off by one", "one key lost", "scale", "no mask", "NaN"],
)
def test_what_is_wrong_is_not_timed(wrong):
    found = outcome(wrong)
    assert [(x.status, x.timed) for x in found.values()] == [("wrong", None)] * 2
    assert found["forward"].checked.wrong > 0 and "times SDPA's error" in found["forward"].reason


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


def test_a_wrong_gradient_is_seen_where_the_output_is_right():
    found = outcome(lambda q, k, v: attention(q, _HalfGradient.apply(k), v, CAUSAL)[0])
    assert found["forward"].status == "ok" and found["backward"].status == "wrong"
    assert " in dk," in found["backward"].reason


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_gate_in_16_bits_lets_a_good_kernel_pass_and_a_mask_off_by_one_not(dtype):
    case = replace(CASE, dtype=dtype)
    right, wrong = (
        outcome(lambda q, k, v, mask=mask: attention(q, k, v, mask)[0], case)["forward"].status
        for mask in (CAUSAL, Mask(right=1))
    )
    assert (right, wrong) == ("ok", "wrong")


def test_only_some_heads_of_a_large_case_are_checked_the_first_and_the_last_among_them():
    case = replace(CASE, batch=8)
    inputs = draw(case, "cpu")
    right = expected(case, *inputs, most_heads=3)
    assert right.heads == ((0, 0), (3, 1), (7, 1))
    o = attention(*inputs[:3], CAUSAL)[0]
    assert compare(case, {"o": o}, right).wrong == 0
    o[7, 3, 5, 2] += 1
    assert compare(case, {"o": o}, right).wrong == 1


def test_a_layout_is_undone_before_the_check():
    def forward(q, k, v):
        assert q.shape == (2, 32, 4, 16) and q.is_contiguous()
        return attention(*(x.transpose(1, 2) for x in (q, k, v)), CAUSAL)[0].transpose(1, 2)

    assert {x.status for x in outcome(forward, layout="bshd").values()} == {"ok"}


def test_a_backend_without_a_backward_says_so():
    found = outcome(lambda q, k, v: attention(q, k, v, CAUSAL)[0], no_backward="for inference")
    assert found["forward"].status == "ok" and found["backward"].status == "skip"
    assert found["backward"].reason == "for inference"


def test_a_backend_that_raises_is_an_error_with_its_words():
    def raises(q, k, v):
        raise RuntimeError("no kernel image is available\nmore")

    assert outcome(raises)["forward"].reason == "tried: RuntimeError: no kernel image is available"
    assert outcome(raises)["backward"].status == "error"


@pytest.mark.filterwarnings("ignore")  # torch tells at length why its kernel does not fit
def test_torch_without_a_kernel_for_a_case_is_no_error():
    found = outcome(backends._sdpa("FLASH_ATTENTION")(replace(CASE, mask=FULL), "cpu"), replace(CASE, dim_v=8))
    assert found["forward"].status == "skip" and "no such kernel for this case" in found["forward"].reason


@pytest.mark.parametrize("error", [AssertionError(), ImportError("undefined symbol"), TypeError("unexpected keyword")])
def test_whatever_a_library_raises_ends_its_row_only(error):
    def setup(case, device):
        raise error

    inputs = draw(CASE, "cpu")
    broken = Backend("broken", "", setup)
    found = bench.run(CASE, broken, "cpu", inputs, expected(CASE, *inputs), QUICK)
    assert found["forward"].status == "error" and type(error).__name__ in found["forward"].reason


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_gives_a_forward_or_a_reason(name):
    made = BACKENDS[name].setup(CASE, "cpu")
    if isinstance(made, str):
        assert len(made) > 10
    else:
        assert made(*draw(CASE, "cpu")[:3]).shape == (2, 4, 32, 16)


@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(5, 0), Mask(4, 2)], ids=str)
@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa-math", "sdpa-flash"])
def test_backends_of_a_cpu_are_right_with_every_mask_and_unequal_lengths(name, mask):
    for sq, sk in ((32, 32), (20, 45)):
        case = replace(CASE, sq=sq, sk=sk, mask=mask)
        inputs = draw(case, "cpu")
        found = bench.run(case, BACKENDS[name], "cpu", inputs, expected(case, *inputs), QUICK)
        assert {x.status for x in found.values()} == {"ok"}, found


def test_a_library_that_is_not_installed_or_does_not_take_the_case_says_so(monkeypatch):
    flash = BACKENDS["flash2"].setup
    assert "flash-attn is not installed: pip install flash-attn" in flash(CASE, "cuda")
    monkeypatch.setattr(backends, "_found", lambda module: True)
    assert "needs a GPU" in flash(CASE, "cpu")
    assert "not float32" in flash(CASE, "cuda")
    half = replace(CASE, dtype="float16")
    assert "up to 256, queries and values alike; these are 192 and 128" in flash(
        replace(half, dim=192, dim_v=128), "cuda"
    )
    assert "documents" in flash(replace(half, mask=Mask(right=0, documents=(16, 16))), "cuda")


def test_more_than_the_memory(monkeypatch):
    monkeypatch.setattr(bench, "free_bytes", lambda device: 2**30)
    large = replace(CASE, sq=2**15, sk=2**15)
    found = bench.run(large, BACKENDS["reference"], "cpu", None, None, QUICK)
    assert found["forward"].status == "skip" and "its scores take 32 GiB" in found["forward"].reason
    with pytest.raises(MeasureError, match="GiB, and 1 GiB are free on cpu; take fewer --tokens"):
        bench.fits(replace(CASE, batch=1024, sq=2**14, sk=2**14), "cpu")


def test_the_clock_takes_turns_and_warms_up_by_time():
    taken = []
    calls = [lambda n=n: (taken.append(n), time.sleep(0.002)) for n in range(3)]
    begin = time.perf_counter()
    found = clock.timed(calls, "cpu", StopRule(fixed=5), warmup_s=0.05)
    assert time.perf_counter() - begin >= 0.06 and 1 <= found.warmup <= 25  # a call takes 2 ms and more
    assert len(found.samples_us) == 5 and found.stop_reason == "fixed"
    assert taken == [i % 3 for i in range(found.warmup + 5)]
    assert min(found.samples_us) >= 2000


def test_turns_are_more_than_the_cache(monkeypatch):
    monkeypatch.setattr(clock, "cache_bytes", lambda device: 32 * 2**20)
    assert clock.turns(2**20, "cpu") == 16
    assert clock.turns(20 * 2**20, "cpu") == 4
    assert clock.turns(2**30, "cpu") == 1
    assert clock.turns(2**20, "cuda") == 1  # flushed instead
