"""Routings by name, as suites and command lines write them: "uniform", "zipf:1.2", "hot:4:0.5", "node_limited:8:4"."""

import inspect

from commbench.errors import UsageError
from commbench.routing import draw, even, gated, trace
from commbench.routing.routing import Routing

ROUTINGS = {
    "uniform": draw.uniform,
    "zipf": draw.zipf,
    "log_normal": draw.log_normal,
    "hot": draw.hot,
    "round_robin": even.round_robin,
    "ratio": even.ratio,
    "gshard": gated.gshard,
    "switch": gated.switch,
    "node_limited": gated.node_limited,
    "trace": trace.trace,
}


def parse(text: str) -> tuple[str, dict]:
    """(name, what its function takes beside the shapes) of "zipf:1.2" and the like. Raises UsageError."""
    name, _, rest = text.partition(":")
    if name not in ROUTINGS:
        raise UsageError(f"there is no routing {name!r}; there are {', '.join(map(usage, ROUTINGS))}")
    wanted = _own(name)
    values = [rest] if name == "trace" else rest.split(":") if rest else []
    least = sum(p.default is p.empty for p in wanted)
    if not least <= len(values) <= len(wanted) or "" in values:
        raise UsageError(f"routing {text!r} is not understood; write {usage(name)}")
    try:
        return name, {p.name: _number(p.annotation, value) for p, value in zip(wanted, values)}
    except ValueError:
        raise UsageError(f"routing {text!r} is not understood; write {usage(name)}") from None


def generate(text: str, tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int = 0) -> Routing:
    """The routing of that name. Raises UsageError for what cannot be meant, Unreachable for what no routing has."""
    name, arguments = parse(text)
    return ROUTINGS[name](tokens_per_rank, ranks, experts, top_k, seed, **arguments)


def usage(name: str) -> str:
    """How a routing is written: "zipf:S", "gshard:CAPACITY_FACTOR[:SIGMA]"."""
    words = [f":{p.name.upper()}" if p.default is p.empty else f"[:{p.name.upper()}]" for p in _own(name)]
    return name + "".join(words)


def _own(name: str):
    return list(inspect.signature(ROUTINGS[name]).parameters.values())[5:]


def _number(kind, text: str):
    value = kind(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError
    return value
