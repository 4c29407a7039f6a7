"""What the page shows of one sample, computed once."""

from dataclasses import dataclass

from commbench.results import metrics
from commbench.results.records import Point, Sample


@dataclass(frozen=True)
class Row:
    """A sample with its median time, the 95 % interval of that median, and its bandwidths; None where there is none."""

    sample: Sample
    id: str  # of the point; making it takes a hash, so it is made once
    time_us: float | None
    interval_us: tuple[float, float] | None
    algbw_GBps: float | None
    busbw_GBps: float | None

    @property
    def point(self) -> Point:
        return self.sample.point

    @property
    def ok(self) -> bool:
        return self.sample.status == "ok"

    def busbw_at(self, time_us: float) -> float | None:
        """The bus bandwidth this point would have if it took `time_us`, in GB/s."""
        algbw, factor = metrics.bandwidth_GBps(self.sample, time_us), metrics.bus_factor(self.sample)
        return None if algbw is None or factor is None else algbw * factor


def rows_of(samples) -> list[Row]:
    return [
        Row(s, s.point.id, metrics.time_us(s), metrics.interval_us(s), metrics.algbw_GBps(s), metrics.busbw_GBps(s))
        for s in samples
    ]


def figure(value: float | None) -> str:
    """Four significant digits, never an exponent: 0.0042, 12.35, 48120; an en dash where there is nothing."""
    if value is None:
        return "–"
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def span(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{figure(interval[0])} – {figure(interval[1])}"
