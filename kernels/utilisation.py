"""Shares of a peak, in percent. More than 100 is no result but a mistake, and the error says which is likely."""

from dataclasses import dataclass

from commbench.errors import MeasureError
from commbench.kernels.flops import Attention, backward_flops, executed_backward_flops, forward_flops
from commbench.kernels.peaks import Peak

PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one pass: executed (what the kernel did; flash-attention's figure), model (without the repeated
    QK^T), unmasked (the model, as if the mask let everything through)."""

    executed: float
    model: float
    unmasked: float


def rates(case: Attention, which: str, time_us: float) -> Rates:
    """The rates of a pass ("forward" or "backward") that took `time_us`."""
    if which == "forward":
        model = executed = forward_flops(case)
        unmasked = forward_flops(case, masked=False)
    else:
        model, executed = backward_flops(case), executed_backward_flops(case)
        unmasked = backward_flops(case, masked=False)
    return Rates(*(flops / time_us / 1e6 for flops in (executed, model, unmasked)))


def percent(tflops: float, peak: Peak, exact_tflops: float | None = None) -> float:
    """`tflops` in percent of the peak. Raises MeasureError above 100, naming the likely reason.

    exact_tflops: where `tflops` counts masked work too, the rate without it.
    """
    share = 100 * tflops / peak.tflops
    if share <= 100:
        return share
    raise MeasureError(f"{tflops:.4g} TFLOP/s is {share:.0f} % of {peak}: {_reason(tflops, peak, exact_tflops)}")


def _reason(tflops: float, peak: Peak, exact_tflops: float | None) -> str:
    if exact_tflops is not None and exact_tflops <= peak.tflops:
        return (
            f"work that the mask leaves out was counted; counted exactly it is {exact_tflops:.4g} TFLOP/s, "
            f"{100 * exact_tflops / peak.tflops:.0f} %"
        )
    if peak.source == "the user":
        return "the peak given by --peak is too low for this device and data type"
    if peak.sparse_tflops and tflops <= peak.sparse_tflops:
        return (
            "no dense kernel is faster than the dense peak, so the clock stopped before the work did (a missing "
            "synchronisation), or the device is not the one of the table"
        )
    return "the clock stopped before the work did: a synchronisation is missing, or the result was never computed"
