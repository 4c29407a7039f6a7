"""The form of a suite file. pydantic reports all errors of a file at once, each with its path."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from commbench.errors import UsageError
from commbench.layers import NAMES as LAYERS
from commbench.ops import OPS
from commbench.routing.recipe import COPIES
from commbench.suite import traffic
from commbench.suite.values import algorithm_value, op_value, placement_value, routing_value, size_value
from commbench.toml_file import read_toml
from commbench.world.dtypes import ALIASES, DTYPES

SHIPPED = Path(__file__).parent
BACKENDS = ("gloo", "nccl", "mpi")
_MOST_SIZES = 10_000  # a step of 8 up to 1G would be 134 million points


def _listed(value):
    if value == []:
        raise ValueError(
            "the list is empty, so nothing would be measured; name at least one value, or leave the key out"
        )
    return value if isinstance(value, list) else [value]


def _dtype(value):
    name = ALIASES.get(str(value).lower(), str(value))
    if name not in DTYPES:
        raise ValueError(f"there is no dtype {value!r}; there are {', '.join(DTYPES)}")
    return name


Size = Annotated[int, BeforeValidator(size_value)]
Listed = BeforeValidator(_listed)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Sweep(_Strict):
    """Sizes from..to, multiplied by `factor` or increased by `step`."""

    from_: Size = Field(alias="from")
    to: Size
    factor: Annotated[float, Field(gt=1)] | None = None
    step: Size | None = None

    @model_validator(mode="after")
    def _one_way(self):
        if self.to < self.from_:
            raise ValueError(f"to ({self.to}) is smaller than from ({self.from_})")
        if self.factor is not None and self.step is not None:
            raise ValueError("give either factor or step, not both")
        if self.step == 0:
            raise ValueError("step is 0; the sweep would never end")
        if self.from_ == 0 and self.step is None and self.to > 0:
            raise ValueError("a sweep by factor cannot start at 0; start at 1 or more, or use step")
        return self

    def sizes(self) -> list[int]:
        sizes, size = [], self.from_
        while size <= self.to:
            sizes.append(size)
            if len(sizes) > _MOST_SIZES:
                raise ValueError(f"the sweep has more than {_MOST_SIZES} sizes; use a larger factor or step")
            size = size + self.step if self.step else max(size + 1, int(size * (self.factor or 2)))
        return sizes


def _sizes(value):
    if isinstance(value, dict):
        return Sweep.model_validate(value).sizes()
    return _listed(value)


LAYER_KEYS = {"layer", "set", "degree", "split", "backend", "ranks", "dtype", "stage"}


class Measure(_Strict):
    """One [[measure]] table. A list sweeps; an axis that an operation does not have does not multiply it."""

    op: Annotated[list[Annotated[str, BeforeValidator(op_value)]], Listed] = []
    layer: Annotated[list[Literal[LAYERS]], Listed] = []
    set: dict[str, str | bool | int | float | list[str | bool | int | float]] = {}  # options of the layers
    degree: Annotated[list[PositiveInt], Listed] | None = None  # layers: groups of so many consecutive ranks
    backend: Annotated[list[Literal[BACKENDS]], Listed] | None = None
    ranks: PositiveInt | None = None
    algorithm: Annotated[list[Annotated[str, BeforeValidator(algorithm_value)]], Listed] = ["library"]
    size: Annotated[list[Size], BeforeValidator(_sizes)] = Field(default=[2**20], min_length=1)
    dtype: Annotated[list[Annotated[str, BeforeValidator(_dtype)]], Listed] = ["float32"]
    redop: Annotated[list[Literal["sum", "prod", "min", "max", "avg"]], Listed] = ["sum"]
    root: Annotated[list[Annotated[int, Field(ge=0)]], Listed] = [0]
    in_place: Annotated[list[bool], Listed] = [False]
    timing: Annotated[list[Literal["isolated", "streaming"]], Listed] = ["isolated"]
    batch: Annotated[list[PositiveInt], Listed] = [20]
    split: Annotated[list[str], Listed] = ["all"]
    window: Annotated[list[PositiveInt], Listed] = [64]
    matrix: str | list[list[float]] = "ramp"
    skew: Annotated[list[Annotated[float, Field(ge=1)]], Listed] = []  # busiest receiver over the mean
    routing: Annotated[list[Annotated[str, BeforeValidator(routing_value)]], Listed] = []
    placement: Annotated[list[Annotated[str, BeforeValidator(placement_value)]], Listed] = ["linear"]
    copies: Annotated[list[Literal[tuple(COPIES)]], Listed] = ["selection"]
    # Of every rank, or a number for each of them: no sweep.
    tokens: NonNegativeInt | Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    experts: PositiveInt | None = None
    top_k: PositiveInt = 8
    masked: Annotated[float, Field(ge=0, lt=1)] = 0.0
    routing_seed: NonNegativeInt = 0
    ranks_per_node: PositiveInt | None = None  # declared for a routing's hops; else as the ranks lie
    align: PositiveInt = 1
    soak_s: Annotated[float, Field(gt=0)] | None = None  # samples for so long, whatever the settings say of precision
    stage: Annotated[str, Field(min_length=1, max_length=64)] | None = None  # of a ladder: each waits for those before

    @model_validator(mode="after")
    def _one_kind(self):
        if bool(self.op) == bool(self.layer):
            raise ValueError("give either op or layer, one of the two")
        if self.op and (self.set or self.degree):
            raise ValueError("set and degree are for layers; an operation has keys of its own")
        if self.layer and (odd := sorted(self.model_fields_set - LAYER_KEYS)):
            known = ", ".join(sorted(LAYER_KEYS))
            raise ValueError(f"{', '.join(odd)}: for operations; a measure of layers has {known}")
        if self.degree and "split" in self.model_fields_set:
            raise ValueError("give degree or split, not both: a degree is a split into consecutive ranks")
        if contradiction := traffic.problem(self):
            raise ValueError(contradiction)
        return self


class SettingsTable(_Strict):
    """How points are measured; see Settings in results/plan.py."""

    warmup: Annotated[int, Field(ge=0)] = 10
    warmup_s: Annotated[float, Field(ge=0)] = 0.25
    iters: PositiveInt | None = None
    target: Annotated[float, Field(gt=0, lt=1)] = 0.02
    budget_s: Annotated[float, Field(gt=0)] = 1.0
    max_samples: PositiveInt = 1000
    checks: Annotated[int, Field(ge=0)] = 1
    timeout_s: Annotated[float, Field(gt=0)] = 60.0


class Suite(_Strict):
    """A whole suite file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    ranks: PositiveInt | None = None
    backend: Annotated[list[Literal[BACKENDS]], Listed] | None = None
    launches: PositiveInt = 1
    seed: Annotated[int, Field(ge=0)] | None = None
    refine: bool = False
    settings: SettingsTable = SettingsTable()
    measure: list[Measure] = Field(min_length=1)


def shipped_suites() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_suite(name: str) -> dict:
    """The tables of a shipped suite or of a TOML file. Raises UsageError when there is no such, or it is no TOML."""
    path = SHIPPED / f"{name}.toml" if name in shipped_suites() else Path(name)
    missing = (
        f"there is no suite, suite file, operation or layer {name!r}; suites: {', '.join(shipped_suites())}; "
        f"operations: {', '.join(OPS)}; layers: {', '.join(LAYERS)}"
    )
    return read_toml(path, "suite file", missing)


def check_suite(tables: dict, source: str) -> Suite:
    """The suite that `tables` describe. Raises UsageError with every error and its path, one a line."""
    try:
        return Suite.model_validate(tables)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"]) or "the file"
            message = item["msg"].removeprefix("Value error, ")
            found = (
                f" (found {item['input']!r})"
                if item["type"] not in ("value_error", "missing", "extra_forbidden")
                else ""
            )
            lines.append(f"  {where}: {message}{found}")
        raise UsageError(f"{source} has {len(lines)} error{'s' * (len(lines) > 1)}:\n" + "\n".join(lines)) from None
