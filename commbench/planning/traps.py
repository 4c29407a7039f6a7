"""Figures that are quoted and cannot be what they are called: each is refused with the likely reason."""

from commbench.errors import UsageError
from commbench.planning.gpus import Gpu

SPARSE = 2.0  # NVIDIA's 2:4 sparsity doubles the printed peak


def checked_mfu(percent: float, gpu: Gpu, peak_TFLOPs: float | None = None) -> float:
    """The percentage, or UsageError where it is no utilisation: above 100, with the denominator that would explain it.

    peak_TFLOPs: the denominator it was computed with, where it is known (else the dense bf16 peak).
    """
    peak = gpu.bf16_TFLOPs if peak_TFLOPs is None else peak_TFLOPs
    if peak_TFLOPs is not None and peak > 1.5 * gpu.peak_TFLOPs("fp8" if gpu.fp8_TFLOPs else "bf16"):
        raise UsageError(
            f"a peak of {peak:g} TFLOP/s is the sparse one; {gpu.name} does {gpu.bf16_TFLOPs:g} in dense bf16"
        )
    if percent <= 0:
        raise UsageError(f"an MFU of {percent:g} % is none; it lies between 0 and 100")
    if percent <= 100:
        return percent
    if gpu.fp8_TFLOPs:
        of_fp8 = percent * peak / gpu.fp8_TFLOPs
        if of_fp8 <= 100:
            raise UsageError(
                f"an MFU of {percent:g} % cannot be: the work was done in fp8 and divided by the bf16 peak of {peak:g} "
                f"TFLOP/s, it seems; of the fp8 peak of {gpu.fp8_TFLOPs:g} it is {of_fp8:.0f} %"
            )
    raise UsageError(
        f"an MFU of {percent:g} % cannot be: more FLOPs were counted than were done (recomputation, whole score "
        f"matrices under a causal mask, all experts of an MoE), or the peak of {peak:g} TFLOP/s is another GPU's"
    )


def peak_for(gpu: Gpu, peak_TFLOPs: float) -> str:
    """Which peak of the GPU a denominator is: "bf16", "fp8", "bf16 sparse", "fp8 sparse"; UsageError for none of them.

    A dense fp8 peak and a sparse bf16 peak are the same number; it is taken for the dense one.
    """
    known = {"bf16": gpu.bf16_TFLOPs}
    if gpu.fp8_TFLOPs:
        known["fp8"] = gpu.fp8_TFLOPs
    known |= {f"{name} sparse": SPARSE * peak for name, peak in list(known.items())}
    for name, peak in known.items():
        if abs(peak_TFLOPs / peak - 1) < 0.02:
            return name
    raise UsageError(
        f"{peak_TFLOPs:g} TFLOP/s is no peak of {gpu.name}; it has "
        + ", ".join(f"{peak:g} ({name})" for name, peak in known.items())
    )


def refuse_gpu_utilisation(word: str) -> None:
    """UsageError where a figure called so is no MFU: nvidia-smi's GPU-Util says only that some kernel ran."""
    told = word.lower().replace("_", " ").replace("-", " ")
    if any(name in told for name in ("gpu util", "nvidia smi", "sm activ", "gr engine")):
        raise UsageError(
            f"{word!r} is the share of time in which any kernel ran, not an MFU: 90 % of it can be 15 % of the peak; "
            "give tokens a second, or the step time"
        )


def recompute_overhead(percent: float, measured: bool) -> float:
    """The overhead of full recomputation, or UsageError where the bound of 33 % is quoted as if it were measured.

    One more forward pass of three (backward is two) is 4/3: a bound on FLOPs. Measured were 30 % (arXiv 1604.06174) and
    36 to 39 % (arXiv 2205.05198, section 6.2: backward otherwise hides communication).
    """
    if measured and abs(percent - 100 / 3) < 0.5:
        raise UsageError(
            f"{percent:g} % is the count of FLOPs (4 forward passes in place of 3), not a measurement; measured were "
            "30 % (arXiv 1604.06174) and 39 % (arXiv 2205.05198, table 4)"
        )
    return percent


def dualpipe_activations(factor: float) -> float:
    """Activations of DualPipe over 1F1B's at p stages is (p + 1)/p; UsageError for the 2 of its parameters."""
    if factor >= 2:
        raise UsageError(
            f"DualPipe keeps {factor:g} times the parameters, not the activations; its activations are (p + 1)/p times "
            "those of 1F1B (deepseek-ai/DualPipe README, the columns Parameter and Activation)"
        )
    return factor
