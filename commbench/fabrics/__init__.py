"""Fabrics as data: one TOML file per machine, each number with its source.

A fabric is what the simulator needs to know of a machine: how many ranks and NICs a node has, and for the two link
classes, `intra` (within an NVLink domain) and `inter` (between domains), the latency of one hop and the one-way payload
rate that was measured, with the datasheet's rate beside it. A rate of `intra` is per rank, one of `inter` per NIC.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from commbench.errors import UsageError
from commbench.toml_file import read_toml

SHIPPED = Path(__file__).parent
_MOST = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Link:
    """A link class: latency of one hop, one-way payload rate, and the datasheet's one-way rate. GB/s of 10^9 bytes."""

    latency_us: float
    latency_source: str
    bandwidth_GBps: float
    bandwidth_source: str
    nominal_GBps: float
    nominal_source: str


@dataclass(frozen=True)
class InSwitch:
    """Reduction in the switch (NVLS): latency of a hop to it or from it, one-way payload rate of a rank's own links."""

    latency_us: float
    latency_source: str
    bandwidth_GBps: float
    bandwidth_source: str


@dataclass(frozen=True)
class Fabric:
    """A machine. `domain_ranks` share the `intra` links: a node's ranks, or a rack's where NVLink leaves the node.

    `gamma_us_per_byte` is the time to reduce a received byte, beyond what the link's payload rate contains already.
    """

    name: str
    shape_source: str
    ranks_per_node: int
    nics_per_node: int
    domain_ranks: int
    gamma_us_per_byte: float
    gamma_source: str
    intra: Link
    inter: Link
    in_switch: InSwitch | None = None


def fabric_names() -> list[str]:
    """Names of the fabrics that come with commbench."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_fabric(name: str) -> Fabric:
    """The fabric of that name, or of the TOML file at that path. Raises UsageError naming the file and the key."""
    path = SHIPPED / f"{name}.toml" if name in fabric_names() else Path(name)
    missing = f"there is no fabric or fabric file {name!r}; fabrics: {', '.join(fabric_names())}"
    return _fabric(read_toml(path, "fabric file", missing), f"fabric file {path}")


def _fabric(tables: dict, file: str) -> Fabric:
    values = _table(tables, Fabric, file, "", optional={"domain_ranks", "in_switch"})
    if not _NAME.fullmatch(values["name"]):
        raise UsageError(f"{file}: name {values['name']!r} is not made of letters, digits, dot, dash and underscore")
    for key in ("intra", "inter", "in_switch"):
        if key in values:
            values[key] = _link(values[key], InSwitch if key == "in_switch" else Link, file, key)
    values.setdefault("domain_ranks", values["ranks_per_node"])
    if values["nics_per_node"] > values["ranks_per_node"]:
        raise UsageError(
            f"{file}: nics_per_node is {values['nics_per_node']} for {values['ranks_per_node']} ranks_per_node; "
            "count the NICs that serve one rank as one, with their rates added up"
        )
    if values["domain_ranks"] % values["ranks_per_node"]:
        raise UsageError(
            f"{file}: domain_ranks is {values['domain_ranks']}, which is no multiple of {values['ranks_per_node']} "
            "ranks_per_node; an NVLink domain is made of whole nodes"
        )
    return Fabric(**values)


def _link(table: dict, kind: type, file: str, key: str):
    link = kind(**_table(table, kind, file, f"{key}."))
    if link.bandwidth_GBps == 0:
        raise UsageError(f"{file}: {key}.bandwidth_GBps is 0, so nothing would ever arrive")
    if kind is Link and link.bandwidth_GBps > link.nominal_GBps:
        raise UsageError(
            f"{file}: {key}.bandwidth_GBps {link.bandwidth_GBps:g} is above nominal_GBps {link.nominal_GBps:g}; "
            "both are rates of one direction"
        )
    return link


def _table(table: dict, kind: type, file: str, prefix: str, optional=frozenset()) -> dict:
    """The keys of `table`, each there and of the type that the field of `kind` has."""
    fields = {name: field.type for name, field in kind.__dataclass_fields__.items()}
    for key in table:
        if key not in fields:
            raise UsageError(f"{file}: {prefix}{key} is not a known key; there are {', '.join(fields)}")
    for key in fields:
        if key not in table and key not in optional:
            raise UsageError(f"{file}: {prefix}{key} is missing")
    return {key: _value(value, fields[key], f"{file}: {prefix}{key}") for key, value in table.items()}


def _value(value, kind: type, where: str):
    if kind is str:
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{where} is {value!r}; it must be a text that is not empty")
    elif kind is int:
        if type(value) is not int or not 1 <= value <= _MOST:
            raise UsageError(f"{where} is {value!r}; it must be a whole number from 1 to {_MOST}")
    elif kind is float:
        if type(value) not in (int, float) or not 0 <= value <= _MOST:
            raise UsageError(f"{where} is {value!r}; it must be a number from 0 to {_MOST}")
        return float(value)
    elif not isinstance(value, dict):
        raise UsageError(f"{where} is {value!r}; it must be a table, [{where.rsplit(' ', 1)[-1]}]")
    return value
