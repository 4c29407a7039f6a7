"""Values that suites and acceptance rules share, as pydantic validators: a ValueError says what there is."""

from commbench.errors import UsageError
from commbench.ops import OPS, algorithms
from commbench.routing.named import parse
from commbench.routing.recipe import replicas_of
from commbench.units import parse_size


def size_value(value) -> int:
    try:
        return parse_size(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def op_value(value):
    if not isinstance(value, str) or value not in OPS:
        raise ValueError(f"there is no operation {value!r}; there are {', '.join(OPS)}")
    return value


def algorithm_value(value):
    algorithms.parse(str(value))
    return value


def routing_value(value):
    try:
        parse(str(value))
    except UsageError as error:
        raise ValueError(str(error)) from None
    return value


def placement_value(value):
    try:
        replicas_of(str(value))
    except UsageError as error:
        raise ValueError(str(error)) from None
    return value
