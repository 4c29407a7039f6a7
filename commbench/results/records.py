"""The vocabulary of a result: what is measured (Point), what came out (Sample), and how both stand in the journal.

Schema history
1  first version
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from types import NoneType, UnionType

SCHEMA = 1
STATUSES = ("ok", "skip", "wrong", "error")


@dataclass(frozen=True)
class Point:
    """One thing to measure. Sizes are bytes; `members` are ranks of the world, `ranks` is
    how many they are; `batch` is calls per sample."""

    op: str
    backend: str
    size_bytes: int
    kind: str = "collective"
    params: dict = field(default_factory=dict)
    algorithm: str = "library"
    protocol: str = "default"
    group: str = "all"
    members: tuple[int, ...] = ()
    ranks: int = 0
    world_size: int = 0
    scope: str = "intra"
    nodes: int = 1
    send_bytes: int = 0
    recv_bytes: int = 0
    count: int = 0
    dtype: str = "float32"
    redop: str = "none"
    root: int = -1
    in_place: bool = False
    timing: str = "isolated"
    batch: int = 1
    over_ranks: str = "max"
    status: str = "ok"  # "skip" where it is known beforehand that it cannot be done; `reason` says why
    reason: str = ""

    @property
    def choice(self) -> str:
        """The algorithm as `--algorithm` takes it: ring, ring/ll, own:ring."""
        return self.algorithm if self.protocol == "default" else f"{self.algorithm}/{self.protocol}"

    @cached_property
    def id(self) -> str:
        """The hash of what is measured; the launch and the outcome are no part of it."""
        what = self.to_json()
        for outcome in ("status", "reason"):
            del what[outcome]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict:
        return {name: getattr(self, name) for name in _POINT}  # asdict would copy all below it

    @staticmethod
    def from_json(data: dict) -> "Point":
        known = {name: data[name] for name in _POINT if name in data}
        if "members" in known:
            known["members"] = tuple(known["members"])
        return Point(**known)


_POINT = tuple(f.name for f in fields(Point))


@dataclass(frozen=True)
class Sample:
    """A measured point: raw times and what is needed to believe them. Bandwidths are computed, never stored.

    samples_us: per sample the maximum over ranks (or what `over_ranks` says). rank_median_us: each rank's own median.
    slowest_count: in how many samples a rank was the slowest. skew_us: median of (maximum - minimum over ranks of the
    own duration), None where the operation does not synchronise. foreign_cores: how many cores' worth of work other
    programs (and the hypervisor) did on the busiest node meanwhile, None where the time was too short to tell.
    wrong: elements that differed (of a layer: tensors), None if unchecked.
    parts_us: of a layer, the samples of its parts, each the maximum over ranks: "compute" without its calls, "comm" the
    calls alone, and others by name. flops: of one step on the rank with most. On the first rank, counted: the calls of
    a step, {"tp.all_reduce": [calls, bytes]}, and wires: its groups, {"tp": [ranks, nodes]}. rank_facts: name -> one
    value per rank, a number or a list of them.
    """

    point: Point
    launch: int
    started_at: str
    clock: str = "host"
    warmup: int = 0
    samples_us: tuple[float, ...] = ()
    parts_us: dict = field(default_factory=dict)
    rank_median_us: tuple[float, ...] = ()
    slowest_count: tuple[int, ...] = ()
    skew_us: float | None = None
    foreign_cores: float | None = None
    binding_us: float | None = None
    aligned: bool = True
    oversubscribed: bool = False
    stop_reason: str = ""
    wrong: int | None = None
    error_max: float | None = None
    flops: float | None = None
    counted: dict = field(default_factory=dict)
    wires: dict = field(default_factory=dict)
    rank_facts: dict = field(default_factory=dict)
    algorithm_seen: str = "not observed"
    protocol_seen: str = "not observed"
    status: str = "ok"
    reason: str = ""
    reported: dict = field(default_factory=dict)

    def to_json(self) -> dict:
        line = {"record": "point", "schema": SCHEMA, "id": self.point.id, **self.point.to_json()}
        return {**line, **{name: getattr(self, name) for name in _SAMPLE}}

    @staticmethod
    def from_json(data: dict) -> "Sample":
        """Raises TypeError for a record whose values cannot be a measurement."""
        _check_types(Point, data)
        _check_types(Sample, data)
        samples_us, status = data.get("samples_us", ()), data.get("status", "ok")
        if not isinstance(data.get("launch"), int) or status not in STATUSES or not _times(samples_us):
            raise TypeError("launch is no number, samples_us no list of times, or status none that is known")
        if status in ("ok", "wrong") and not samples_us and not data.get("reported"):
            raise TypeError("a measured point without a sample")
        own = {name: data[name] for name in _SAMPLE if name in data}
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
        return Sample(point=Point.from_json({**data, "status": "ok", "reason": ""}), **own)


_SAMPLE = tuple(f.name for f in fields(Sample) if f.name != "point")


def _check_types(kind, data: dict) -> None:
    """Raise TypeError for a field of `kind` that does not hold what its annotation says: a journal may come from
    anywhere, and readers rely on it."""
    for field_ in kind.__dataclass_fields__.values():
        if field_.name in data:
            value = data[field_.name]
            if not _always_fits(type(value), field_.type) and not _fits(value, field_.type):
                raise TypeError(f"{field_.name} is {value!r:.40}")


@cache
def _always_fits(of, kind) -> bool:
    """Whether every value of type `of` is one of `kind`; of numbers and lists that hangs on the value."""
    if kind in (str, bool, dict, NoneType):
        return of is kind
    if kind is float:
        return of in (int, float)
    return isinstance(kind, UnionType) and any(_always_fits(of, one) for one in kind.__args__)


def _fits(value, kind) -> bool:
    if kind in (str, bool, dict):
        return type(value) is kind
    if kind is int:
        return type(value) is int and -(2**63) <= value < 2**63
    if kind is float:
        return type(value) in (int, float)
    if str(kind).startswith("tuple"):
        inner = int if "int" in str(kind) else float
        return isinstance(value, list | tuple) and all(entry is None or _fits(entry, inner) for entry in value)
    return value is None or any(_fits(value, one) for one in kind.__args__ if one is not type(None))


def _times(values) -> bool:
    return isinstance(values, list | tuple) and all(type(x) in (int, float) and 0 < x < float("inf") for x in values)
