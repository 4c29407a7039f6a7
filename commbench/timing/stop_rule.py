"""How many samples are enough: a precision, a time budget or a maximum, whichever comes first."""

from dataclasses import dataclass

from commbench.timing.statistics import relative_half_width


@dataclass(frozen=True)
class StopRule:
    """`target` is the half-width of the median's 95 % interval over the median; `fixed` asks for that many samples."""

    target: float = 0.02
    budget_s: float = 1.0
    max_samples: int = 1000
    fixed: int | None = None

    def next_block(self, groups: list[list[float]], elapsed_s: float, call_s: float) -> tuple[int, str | None]:
        """(how many more samples to take, None) or (0, why it is over).

        `groups` holds the samples of each group that runs at the same time; the least precise one decides.
        `call_s` is what one sample was seen to take.
        """
        have = min(len(samples) for samples in groups)
        if self.fixed is not None:
            return (self.fixed - have, None) if have < self.fixed else (0, "fixed")
        if have:
            widths = [relative_half_width(samples) for samples in groups]
            if all(width is not None and width <= self.target for width in widths):
                return 0, "precise"
            if have >= self.max_samples:
                return 0, "max"
            if elapsed_s >= self.budget_s:
                return 0, "budget"
        affordable = int((self.budget_s - elapsed_s) / max(call_s, 1e-7))
        wanted = have or 10  # double what there is
        return max(1, min(wanted, affordable, self.max_samples - have)), None
