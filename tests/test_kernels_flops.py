"""Operations, bytes, peaks and percentages, against published figures and against each other."""

from unittest.mock import ANY

import pytest

from commbench.errors import MeasureError, UsageError
from commbench.kernels.flops import (
    Attention,
    backward_bytes,
    backward_flops,
    executed_backward_flops,
    forward_bytes,
    forward_flops,
    score_bytes,
)
from commbench.kernels.masks import CAUSAL, Mask
from commbench.kernels.params import from_params, to_params
from commbench.kernels.peaks import Peak, given_peak, peak_of, peaks_of_entry
from commbench.kernels.utilisation import percent, rates
from commbench.planning.flops import attention_flops
from commbench.shapes import read_shape


def test_a_plan_counts_the_attention_that_the_kernel_count_has():
    """2 S d a layer and token forward is the causal pair count times 2 (d + d), up to the diagonal."""
    shape, seqlen = read_shape("llama3-8b"), 65536
    attention = attention_flops(shape, seqlen, "causal")
    case = Attention(1, shape.heads, shape.kv_heads, seqlen, seqlen, 128, 128, mask=CAUSAL)
    assert attention == pytest.approx(forward_flops(case) / seqlen, rel=1e-4)


def test_flash_attention_counts():
    """4 B H S^2 D, half of it causal, backward 2.5 times forward (benchmarks/benchmark_flash_attention.py)."""
    full, causal = (Attention(2, 16, 16, 4096, 4096, 128, 128, "float16", mask) for mask in (Mask(), CAUSAL))
    assert forward_flops(full) == 4 * 2 * 16 * 4096**2 * 128
    assert forward_flops(causal) / forward_flops(full) == pytest.approx(0.5, abs=2e-4)
    assert executed_backward_flops(causal) == 2.5 * forward_flops(causal)
    assert backward_flops(causal) == 2 * forward_flops(causal)
    assert forward_flops(causal, masked=False) == forward_flops(full)


def test_unequal_widths_are_counted_apart():
    case = Attention(1, 2, 1, 3, 5, 192, 128)
    assert forward_flops(case) == 2 * (2 * 15) * (192 + 128)
    assert executed_backward_flops(case) == 2 * 30 * (3 * 192 + 2 * 128)


def test_bytes():
    case = Attention(2, 8, 2, 100, 300, 64, 32, "bfloat16")
    q, k, v, o = 2 * 8 * 100 * 64 * 2, 2 * 2 * 300 * 64 * 2, 2 * 2 * 300 * 32 * 2, 2 * 8 * 100 * 32 * 2
    assert forward_bytes(case) == q + k + v + o
    assert backward_bytes(case) == 2 * (q + k + v) + o
    assert score_bytes(case) == 2 * 8 * 100 * 300 * 4


@pytest.mark.parametrize(
    "sizes, told",
    [
        ((0, 4, 4, 8, 8, 64, 64), "batch 0"),
        ((1, 6, 4, 8, 8, 64, 64), "6 query heads cannot share 4 key heads"),
        ((1, 4, 4, 0, 8, 64, 64), "0 queries and 8 keys"),
        ((1, 4, 4, 8, 8, 64, 64, "int8"), "attention in 'int8' is not known"),
    ],
)
def test_sizes_that_cannot_be(sizes, told):
    with pytest.raises(UsageError, match=told):
        Attention(*sizes)


@pytest.mark.parametrize(
    "device, dtype, tflops",
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "float16", 835),
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4),
        ("NVIDIA H20", "bfloat16", 148),
        ("NVIDIA B200", "bfloat16", 2250),
        ("NVIDIA GB200", "bfloat16", 2500),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A100-PCIE-40GB", "bfloat16", 312),
        ("NVIDIA RTX A6000", "bfloat16", 154.8),  # the dense one
        ("NVIDIA H200", "float32", 66.9),  # not TF32
    ],
)
def test_peaks_are_dense(device, dtype, tflops):
    peak = peak_of(device, dtype)
    assert peak.tflops == tflops and peak.source and (peak.sparse_tflops is None or peak.sparse_tflops > tflops)


@pytest.mark.parametrize(
    "device", ["AMD EPYC", "NVIDIA H1000", "NVIDIA GeForce RTX 5090", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
)
def test_what_is_not_in_the_table_has_no_peak(device):
    assert peak_of(device, "bfloat16") is None


def test_an_entry_has_the_peaks_that_its_device_has():
    entry = peaks_of_entry("H100 SXM")
    assert set(entry) == {"bfloat16", "float16", "tf32", "float32", "float8"}
    assert all(entry[dtype] == peak_of("NVIDIA H100 80GB HBM3", dtype) for dtype in entry)
    assert peaks_of_entry("TPU v4")["bfloat16"] == Peak(275, "TPU v4, dense bfloat16", ANY, None, 1200)


def test_dense_is_half_of_sparse_everywhere():
    from commbench.kernels.peaks import _table

    for gpu in _table():
        for dtype, sparse in gpu["sparse"].items():
            assert gpu["dense"][dtype] == pytest.approx(sparse / 2, rel=0.005), (gpu["name"], dtype)


@pytest.mark.parametrize("peak", [0, -3, float("nan"), float("inf")])
def test_a_given_peak_is_a_rate(peak):
    with pytest.raises(UsageError, match="--peak"):
        given_peak(peak)


def test_over_100_percent_names_the_likely_reason():
    h200 = peak_of("NVIDIA H200", "bfloat16")
    assert percent(494.7, h200) == pytest.approx(50)
    with pytest.raises(MeasureError, match="work that the mask leaves out was counted.*600 TFLOP/s, 61 %"):
        percent(1200, h200, 600)
    with pytest.raises(MeasureError, match="152 %.*the clock stopped before the work did"):
        percent(1500, h200)
    with pytest.raises(MeasureError, match="the result was never computed"):
        percent(50_000, h200)
    with pytest.raises(MeasureError, match="--peak is too low"):
        percent(2.0, given_peak(1.0))
    assert "989.4 TFLOP/s (H200, dense bfloat16)" in str(h200)


def test_rates_of_a_pass():
    case = Attention(1, 1, 1, 1000, 1000, 64, 64, mask=CAUSAL)
    found = rates(case, "backward", 1e6)  # one second
    assert found.executed == pytest.approx(executed_backward_flops(case) / 1e12)
    assert found.model == pytest.approx(0.8 * found.executed)
    assert found.unmasked == pytest.approx(found.model * 2000 / 1001)


def test_a_case_survives_a_record():
    case = Attention(2, 8, 2, 100, 100, 64, 32, "bfloat16", Mask(7, 0, (60, 40)))
    params = to_params(case)
    assert from_params(params, "bfloat16") == case
    for damaged in ({**params, "nheads": "8"}, {**params, "window": 3}, {**params, "nheads": 7}, {"headdim": "64"}):
        assert from_params(damaged, "bfloat16") is None
