"""Figures that cannot be what they are called are refused, and the likely reason is named."""

import pytest

from commbench.errors import UsageError
from commbench.planning.gpus import gpu_named
from commbench.planning.traps import (
    checked_mfu,
    dualpipe_activations,
    peak_for,
    recompute_overhead,
    refuse_gpu_utilisation,
)

H100 = gpu_named("h100")


def test_fp8_work_over_a_bf16_peak():
    percent = 100 * 0.76 * H100.fp8_TFLOPs / H100.bf16_TFLOPs
    assert round(percent) == 152
    with pytest.raises(UsageError, match=r"152 % cannot be: the work was done in fp8 .* it is 76 %"):
        checked_mfu(152, H100)
    assert checked_mfu(46.2, H100) == 46.2


def test_over_100_where_fp8_explains_nothing():
    with pytest.raises(UsageError, match="more FLOPs were counted than were done"):
        checked_mfu(152, gpu_named("a100"))
    with pytest.raises(UsageError, match="more FLOPs were counted"):
        checked_mfu(250, H100)
    with pytest.raises(UsageError, match="is none"):
        checked_mfu(0, H100)


def test_sparse_peaks():
    with pytest.raises(UsageError, match="3958 TFLOP/s is the sparse one; h100 does 989.4 in dense bf16"):
        checked_mfu(40, H100, 3958)
    assert [peak_for(H100, peak) for peak in (989, 1979, 3958)] == ["bf16", "fp8", "fp8 sparse"]
    assert peak_for(gpu_named("a100"), 624) == "bf16 sparse"
    with pytest.raises(UsageError, match=r"1513 TFLOP/s is no peak of h100; it has 989.4 \(bf16\)"):
        peak_for(H100, 1513)


def test_gpu_utilisation_is_no_mfu():
    for word in ("GPU-Util", "gpu_utilization", "nvidia-smi utilization", "DCGM SM active"):
        with pytest.raises(UsageError, match="in which any kernel ran, not an MFU"):
            refuse_gpu_utilisation(word)
    refuse_gpu_utilisation("MFU")


def test_33_percent_is_a_bound():
    with pytest.raises(UsageError, match="is the count of FLOPs"):
        recompute_overhead(33.3, measured=True)
    assert recompute_overhead(33.3, measured=False) == 33.3 and recompute_overhead(39, measured=True) == 39


def test_dualpipes_two_is_of_parameters():
    with pytest.raises(UsageError, match="2 times the parameters, not the activations"):
        dualpipe_activations(2)
    assert dualpipe_activations(17 / 16) == 17 / 16
