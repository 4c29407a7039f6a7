"""What interruptions leave of a run: rates, the best checkpoint interval, effective MFU."""

import math
from dataclasses import dataclass

from commbench.errors import UsageError


@dataclass(frozen=True)
class Interruptions:
    """`count` unexpected interruptions in `days` on `gpus` GPUs, and their source."""

    count: int
    days: float
    gpus: int
    source: str

    @property
    def per_day(self) -> float:
        return self.count / self.days

    @property
    def hours_between(self) -> float:
        return 24 / self.per_day

    def on(self, gpus: int) -> "Interruptions":
        """The same parts on another number of GPUs: the rate grows in proportion."""
        return Interruptions(
            1, self.days / self.count * self.gpus / gpus, gpus, f"{self.source}, scaled to {gpus} GPUs"
        )


LLAMA3 = Interruptions(
    419, 54, 16384, "arXiv 2407.21783, 3.3.4: 419 unexpected interruptions in 54 days on 16,384 H100"
)


def young_interval_s(checkpoint_s: float, between_s: float) -> float:
    """Time between checkpoints by Young: sqrt(2 C M) (Communications of the ACM 17(9), 1974). checkpoint_s: what one
    costs the run; between_s: mean time between interruptions."""
    _above_zero(checkpoint_s, between_s)
    return math.sqrt(2 * checkpoint_s * between_s)


def daly_interval_s(checkpoint_s: float, between_s: float) -> float:
    """Time between checkpoints by Daly's higher-order estimate (Future Generation Computer Systems 22, 2006).

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / (18 M)) - C for C < 2M, else M.
    """
    _above_zero(checkpoint_s, between_s)
    if checkpoint_s >= 2 * between_s:
        return between_s
    x = checkpoint_s / (2 * between_s)
    return math.sqrt(2 * checkpoint_s * between_s) * (1 + math.sqrt(x) / 3 + x / 9) - checkpoint_s


def goodput(interval_s: float, checkpoint_s: float, restart_s: float, between_s: float) -> float:
    """Share of the time that is useful work, checkpoints every `interval_s` of it.

    Daly's complete model for exponential interruptions (the same paper): a segment of interval plus
    checkpoint takes M e^(R/M) (e^((t + C)/M) - 1). restart_s: until the run is where the last checkpoint was.
    """
    _above_zero(interval_s, between_s)
    if not 0 <= restart_s < math.inf:
        raise UsageError(f"a restart takes 0 seconds or more, not {restart_s:g}")
    try:
        wall_s = between_s * math.exp(restart_s / between_s) * math.expm1((interval_s + checkpoint_s) / between_s)
    except OverflowError:  # checkpoints and restarts are so long that none ends before the next interruption
        return 0.0
    return interval_s / wall_s


def effective_mfu(mfu: float, share: float) -> float:
    """MFU over the whole elapsed time: of the running job, times the share of time it made progress."""
    return mfu * share


def _above_zero(*times_s: float) -> None:
    for time_s in times_s:
        if not 0 < time_s < math.inf:
            raise UsageError(f"times must be above 0 seconds; there is {time_s:g}")
