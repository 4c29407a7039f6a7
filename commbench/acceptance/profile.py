"""A profile: what a machine must reach, as data with sources. No rule holds code (rule.py)."""

from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt, ValidationError, model_validator

from commbench.acceptance.contradictions import no_contradictions
from commbench.acceptance.rule import Rule, Strict, Text
from commbench.errors import UsageError
from commbench.fabrics import Fabric, fabric_names, load_fabric
from commbench.results.nccl_tests import one_line
from commbench.toml_file import read_toml

SHIPPED = Path(__file__).parent / "profiles"


class Profile(Strict):
    """A machine's rules. `fabric` names its links; without one, no bound of the wire is known."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    about: Text
    fabric: str | None = None
    ranks_per_node: PositiveInt | None = None
    backend: str | None = None
    rule: list[Rule] = Field(min_length=1, max_length=5000)

    @cached_property
    def links(self) -> Fabric | None:
        return load_fabric(self.fabric) if self.fabric else None

    @property
    def per_node(self) -> int | None:
        """Ranks of a full node."""
        return self.ranks_per_node or (self.links.ranks_per_node if self.links else None)

    @model_validator(mode="after")
    def _whole(self):
        if self.fabric is not None and self.fabric not in fabric_names():
            raise ValueError(f"there is no fabric {self.fabric!r}; there are {', '.join(fabric_names())}")
        names = [rule.name for rule in self.rule]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"two rules are named {twice!r}; a verdict could not say which one it means")
        if any(rule.metric == "nic_GBps" for rule in self.rule) and not self.fabric:
            raise ValueError("nic_GBps needs `fabric`, which says how many NICs a node has")
        no_contradictions(self.rule)
        return self


def profile_names() -> list[str]:
    """Names of the profiles that come with commbench."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """The profile of that name, or of the TOML file at that path. Raises UsageError, in one sentence, naming the file,
    the rule and what would be right."""
    path = SHIPPED / f"{name}.toml" if name in profile_names() else Path(name)
    missing = f"there is no profile or profile file {name!r}; profiles: {', '.join(profile_names())}"
    return check_profile(read_toml(path, "profile", missing), f"profile {path}")


def check_profile(tables: dict, source: str) -> Profile:
    """The profile that `tables` describe. Raises UsageError with the first error, and how many more there are."""
    try:
        return Profile.model_validate(tables)
    except ValidationError as error:
        first, *more = error.errors()
        message = first["msg"].removeprefix("Value error, ")
        found = (
            "" if first["type"] in ("value_error", "missing", "extra_forbidden") else f", found {first['input']!r:.80}"
        )
        also = f" (and {len(more)} more)" if more else ""
        raise UsageError(
            f"{source}: {_where(first['loc'], tables)}{one_line(message)}{one_line(found)}{also}"
        ) from None


def _where(loc: tuple, tables: dict) -> str:
    """ "rule 'all_reduce in a node', key fail: " for the place that pydantic calls ("rule", 3, "fail")."""
    parts = [str(part) for part in loc if part not in ("one", "range")]
    if len(loc) > 1 and loc[0] == "rule" and isinstance(loc[1], int):
        rule = tables["rule"][loc[1]]
        name = rule.get("name") if isinstance(rule, dict) else None
        parts = [f"rule {name!r}" if isinstance(name, str) else f"rule number {loc[1] + 1}", *parts[2:]]
    return one_line(f"{', key '.join(parts[:1] + ['.'.join(parts[1:])] * (len(parts) > 1))}: ") + " " if parts else ""
