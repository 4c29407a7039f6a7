"""What `commbench kernels` prints as it goes: the lines of flash-attention's benchmark, with more to their right."""

import numpy as np

from commbench.cli.columns import figure
from commbench.errors import MeasureError
from commbench.kernels.flops import Attention, backward_bytes, executed_backward_flops, forward_bytes, forward_flops
from commbench.kernels.peaks import Peak
from commbench.kernels.utilisation import PASSES, percent, rates
from commbench.results.metrics import BUSY_CORES, time_us
from commbench.results.records import Sample
from commbench.timing.statistics import relative_half_width

_NAME = 15
_SHORT = {"forward": "fwd", "backward": "bwd"}


class View:
    """Prints a line for each kernel of a case; what is not here is told once, with its reason."""

    def __init__(self):
        self._peak: Peak | None = None
        self._told: set[tuple[str, str]] = set()
        self._roofs = 0.0, 0.0

    def begin(self, name: str, device: str, case: Attention, peak: Peak | None) -> None:
        self._peak = peak
        print(f"attention in {case.dtype} on {name} ({device})")
        if peak:
            print(f"percentages are of {peak}; source: {peak.source}")
        elif device == "cpu":
            print("no percentages: a processor's peak is not in the table; --peak gives one")
        else:
            print(f"no percentages: {name} with {case.dtype} is not in the table of peaks; --peak gives one")

    def yardsticks(self, copy: Sample, matmul: Sample) -> None:
        """Roofs that were measured here: memory in GB/s, arithmetic in TFLOP/s."""
        side = matmul.point.params["side"]
        self._roofs = 2 * copy.point.size_bytes / time_us(copy) / 1e3, matmul.flops / time_us(matmul) / 1e6
        memory, arithmetic = map(figure, self._roofs)
        print(f"measured here: copy {memory} GB/s (read and written), matrix product {arithmetic} TFLOP/s ({side}^3)")

    def case(self, case: Attention) -> None:
        causal = case.mask.right == 0
        dim = f"{case.dim}" if case.dim == case.dim_v else f"{case.dim}/{case.dim_v}"
        more = f", seqlen_k={case.sk}" if case.sk != case.sq else ""
        more += f", window={case.mask.left}" if case.mask.left is not None else ""
        print(f"### causal={causal}, headdim={dim}, batch_size={case.batch}, seqlen={case.sq}{more} ###")
        heads = f"{case.heads} heads" + (f" over {case.kv_heads}" if case.kv_heads != case.heads else "")
        documents = f", {len(case.mask.documents)} documents" if case.mask.documents else ""
        print(f"  {heads}{documents}; " + ", ".join(self._bound(case, which) for which in PASSES))

    def _bound(self, case: Attention, which: str) -> str:
        """Operations per byte of the least traffic, against what the device was measured to do of both."""
        if which == "forward":
            intensity = forward_flops(case) / forward_bytes(case)
        else:
            intensity = executed_backward_flops(case) / backward_bytes(case)
        ridge = 1e3 * self._roofs[1] / self._roofs[0]
        bound = "arithmetic" if intensity > ridge else "memory"
        return f"{which} {figure(intensity)} FLOP/byte: bound by {bound}"

    def row(self, case: Attention, backend, samples: dict[str, Sample]) -> None:
        if all(sample.status == "skip" for sample in samples.values()):
            reason = samples["forward"].reason
            if (backend.name, reason) not in self._told:
                self._told.add((backend.name, reason))
                print(f"{backend.name:<{_NAME}}not here: {reason}")
            return
        cells, times = [], {which: time_us(sample) for which, sample in samples.items() if sample.status == "ok"}
        for which in PASSES:
            if which in times:
                cells.append(f"{_SHORT[which]}: {_rate(rates(case, which, times[which]).executed)} TFLOPs/s")
        if len(times) == 2:
            both = (samples["forward"].flops + samples["backward"].flops) / sum(times.values()) / 1e6
            cells.append(f"fwd + bwd: {_rate(both)} TFLOPs/s")
        if times:
            rates_of = ", ".join(cells)
            print(f"{backend.name:<{_NAME}}{rates_of:<80}| " + ", ".join(_more(w, samples[w]) for w in times))
        if times and self._peak:
            print(" " * _NAME + self._percentages(case, times))
        for which, sample in samples.items():
            if sample.status != "ok":
                print(f"{backend.name:<{_NAME}}{_SHORT[which]} {sample.status}: {sample.reason}")

    def _percentages(self, case: Attention, times: dict[str, float]) -> str:
        """Model and hardware utilisation of each pass, and the model's as if nothing were masked."""
        told = []
        for which, time in times.items():
            found = rates(case, which, time)
            model, executed = (percent(rate, self._peak) for rate in (found.model, found.executed))
            try:
                unmasked = f"{percent(found.unmasked, self._peak, found.model):.3g} %"
            except MeasureError:
                unmasked = "over 100 %, as it counts masked work"
            told.append(f"{_SHORT[which]} MFU {model:.3g} %, HFU {executed:.3g} %, MFU unmasked {unmasked}")
        return f"{'; '.join(told)}; of {self._peak}"

    def end(self, run, code: int, reason: str) -> None:
        samples = run.samples()
        counts = {status: sum(s.status == status for s in samples) for status in ("ok", "skip", "wrong", "error")}
        print(", ".join(f"{count} {status}" for status, count in counts.items() if count) + f" of {len(samples)} rows")
        busy = sum((sample.foreign_cores or 0) >= BUSY_CORES for sample in samples)
        if busy:
            print(f"{busy} rows were disturbed: other programs used the cores")
        print(f"run: {run.path}")
        if code:
            print(f"exit code {code}: {reason}")


def _rate(tflops: float) -> str:
    """Four digits and never an exponent, which readers of these lines do not know."""
    return np.format_float_positional(tflops, 4, fractional=False, trim="-")


def _more(which: str, sample: Sample) -> str:
    """Time with its interval, and the memory that the call takes beyond its inputs and its result."""
    width = relative_half_width(sample.samples_us)
    spread = "" if width is None else f" ±{100 * width:.{0 if width > 0.1 else 1}f} %"
    memory = sample.reported["memory_bytes"] / 2**20
    return f"{_SHORT[which]} {figure(time_us(sample) / 1e3)} ms{spread} {memory:.4g} MiB"
