"""One rule of a profile: which rows it is about, what it judges of them, and at which levels.

A rule selects rows by what they are (`op`, `algorithm`, `scope`, `nodes`, `ranks`, `size`, ...) and judges a metric of
them by its check:
value   against `expected`: warn and fail are shares of it, or `minimum` is the fail level as it stands
dip     against the running maximum over the sizes before: no dip on the way to the plateau
spread  against the median of the same thing elsewhere: node against node, rail against rail
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, PositiveInt, Tag, model_validator

from commbench.acceptance.metrics import IMPORTED, METRICS
from commbench.ops import OPS
from commbench.suite.values import algorithm_value, op_value, size_value
from commbench.units import format_size

# Keys of a rule that must equal the same field of a point.
SAME = ("op", "algorithm", "protocol", "scope", "dtype", "redop", "in_place", "timing", "backend")


def _metric(value):
    if not isinstance(value, str) or value not in METRICS:
        raise ValueError(f"there is no metric {value!r}; there are {', '.join(METRICS)}")
    return value


def _op(value):
    """An operation of ours, or one that only other tools measure."""
    return value if value in IMPORTED else op_value(value)


Text = Annotated[str, Field(min_length=1, max_length=500)]
Size = Annotated[int, BeforeValidator(size_value)]
Share = Annotated[float, Field(gt=0, lt=100)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Sizes(Strict):
    """Sizes in bytes from..to, both included."""

    from_: Size = Field(alias="from")
    to: Size

    @model_validator(mode="after")
    def _one_way(self):
        if self.to < self.from_:
            raise ValueError(f"to ({format_size(self.to)}) is smaller than from ({format_size(self.from_)})")
        return self


class Counts(Strict):
    """Numbers from..to, both included; without `to` there is no end."""

    from_: PositiveInt = Field(alias="from")
    to: PositiveInt = 10**9


def _form(value) -> str:
    return "range" if isinstance(value, dict | BaseModel) else "one"


Count = Annotated[
    Annotated[PositiveInt, Tag("one")] | Annotated[Counts, Tag("range")], Discriminator(_form)
]  # a number, or a range of them
OfSize = Annotated[Annotated[Size, Tag("one")] | Annotated[Sizes, Tag("range")], Discriminator(_form)]


class Rule(Strict):
    """One rule. `expects` is the algorithm that a library left alone takes here; `evidence` names what tells machines
    apart, by the same word in each profile."""

    name: Text
    metric: Annotated[str, BeforeValidator(_metric)]
    check: Literal["value", "dip", "spread"] = "value"
    op: Annotated[str, BeforeValidator(_op)] | None = None
    algorithm: Annotated[str, BeforeValidator(algorithm_value)] = "library"
    protocol: str | None = None
    scope: Literal["intra", "inter", "mixed"] | None = None
    dtype: str | None = None
    redop: str | None = None
    in_place: bool | None = None
    timing: Literal["isolated", "streaming"] | None = None
    backend: str | None = None
    window: PositiveInt | None = None
    nodes: Count | None = None
    ranks: Count | None = None
    size: OfSize | None = None
    expected: Annotated[float, Field(gt=0)] | None = None
    minimum: Annotated[float, Field(gt=0)] | None = None
    warn: Share | None = None
    fail: Share | None = None
    two_sided: bool = False
    source: Text
    expects: str | None = None
    evidence: Text | None = None

    @model_validator(mode="after")
    def _whole(self):
        metric = METRICS[self.metric]
        if metric.of_rows and self.op is None:
            raise ValueError(f"rule {self.name!r} judges {self.metric} of no operation; name one by `op`")
        if not metric.of_rows and (self.op or self.size is not None or self.check == "dip"):
            raise ValueError(
                f"rule {self.name!r}: {self.metric} is one figure of a node or a run; it has no op or size"
            )
        if metric.of_rows and self.size is None and self.op in OPS and OPS[self.op].sized:
            raise ValueError(f"rule {self.name!r} names no size at which {self.metric} is judged")
        if self.check == "value" and self.expected is None and self.minimum is None:
            raise ValueError(f"rule {self.name!r} has neither `expected` nor `minimum`")
        if self.check != "value" and (self.expected or self.minimum or not metric.higher_is_better):
            raise ValueError(
                f"rule {self.name!r} checks {self.check}, which compares the bandwidths of a run with one another: "
                "it has no `expected`, and its metric is a bandwidth"
            )
        if self.minimum is not None and (self.fail is not None or not metric.higher_is_better):
            raise ValueError(
                f"rule {self.name!r}: `minimum` is the fail level of a figure where more is better; take it or `fail`"
            )
        if self.minimum is None and self.fail is None:
            raise ValueError(f"rule {self.name!r} has no level at which it fails; give `fail` or `minimum`")
        self._levels_in_order(metric)
        return self

    def _levels_in_order(self, metric):
        warn, fail = self.warn_at, self.fail_at
        if self.minimum is not None and self.expected is not None and self.minimum > self.expected:
            raise ValueError(
                f"rule {self.name!r} contradicts itself: minimum {self.minimum:g} is above expected {self.expected:g}"
            )
        best = self.expected if self.check == "value" else 1.0
        levels = [level for level in (fail, warn, best) if level is not None]
        if levels != sorted(levels, reverse=not metric.higher_is_better):
            order = "fail <= warn <= 1" if metric.higher_is_better else "1 <= warn <= fail"
            raise ValueError(
                f"rule {self.name!r} contradicts itself: fail {fail:g}, warn {'-' if warn is None else f'{warn:g}'}; "
                f"for {self.metric} it must be {order}"
            )

    @property
    def reference(self) -> float | None:
        """What warn and fail are shares of."""
        return self.expected if self.check == "value" else 1.0

    @property
    def fail_at(self) -> float:
        return self.minimum if self.minimum is not None else self.reference * self.fail

    @property
    def warn_at(self) -> float | None:
        return None if self.warn is None or self.reference is None else self.reference * self.warn

    def holds_size(self, size_bytes: int) -> bool:
        return within(size_bytes, self.size)

    @property
    def sizes_text(self) -> str:
        if self.size is None:
            return "any size"
        if isinstance(self.size, int):
            return format_size(self.size)
        return f"{format_size(self.size.from_)} to {format_size(self.size.to)}"


def within(value: int, asked) -> bool:
    """Whether a number is what a rule asks for: anything (None), that number, or one of a range."""
    if asked is None or isinstance(asked, int):
        return asked is None or value == asked
    return asked.from_ <= value <= asked.to
