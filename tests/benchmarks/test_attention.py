"""Attention on a CPU by pytest-benchmark: the cases of `commbench kernels attention`, in fixed rounds.

    pytest tests/benchmarks/test_attention.py --benchmark-enable --benchmark-json attention.json

Each entry of the JSON's `benchmarks` has the times of all rounds in seconds (stats.data) and in `extra_info` what was
timed, as a record of `commbench kernels` has it: op, algorithm, device, dtype, flops, size_bytes, params.
`commbench import attention.json` makes a run of it, with the same page.
"""

import pytest
import torch

from commbench.cli.kernels_run import point
from commbench.kernels.backends import BACKENDS
from commbench.kernels.check import compare, expected
from commbench.kernels.flops import Attention, executed_backward_flops, forward_flops
from commbench.kernels.inputs import draw, leaves
from commbench.kernels.masks import CAUSAL, FULL

CASES = [
    Attention(4096 // seqlen, 256 // dim, 256 // dim, seqlen, seqlen, dim, dim, "float32", mask)
    for mask in (CAUSAL, FULL)
    for dim in (64, 128)
    for seqlen in (512, 1024, 2048)
]


def told(case: Attention) -> str:
    return f"{case.mask}-{case.dim}-{case.sq}"


@pytest.mark.full
@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa-math", "sdpa-flash"])
@pytest.mark.parametrize("case", CASES, ids=told)
def test_attention(benchmark, case, name, which):
    q, k, v, do = draw(case, "cpu")
    forward, inputs = BACKENDS[name].setup(case, "cpu"), leaves((q, k, v), "bhsd")
    o = forward(*inputs)
    found = {"o": o, **dict(zip(("dq", "dk", "dv"), torch.autograd.grad(o, inputs, do, retain_graph=True)))}
    assert not compare(case, found, expected(case, q, k, v, do, most_heads=2)).wrong
    what = point(case, name, which, "cpu")
    flops = forward_flops(case) if which == "forward" else executed_backward_flops(case)
    benchmark.extra_info |= {
        "op": what.op, "algorithm": name, "device": "cpu", "dtype": case.dtype, "flops": flops,
        "size_bytes": what.size_bytes, "params": what.params,
    }  # fmt: skip
    call = (lambda: forward(*inputs)) if which == "forward" else (
        lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)
    )  # fmt: skip
    benchmark.pedantic(call, rounds=7, iterations=1, warmup_rounds=1)
