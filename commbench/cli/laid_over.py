"""Flags that are for some measures of a suite: traffic for operations that follow a matrix, options for layers."""

from commbench.errors import UsageError
from commbench.layers import NAMES as LAYER_NAMES
from commbench.layers import load
from commbench.ops import OPS
from commbench.suite.schema import LAYER_KEYS

BY_MATRIX = tuple(name for name, op in OPS.items() if op.by_matrix)


def lay_traffic(suite: str, measures: list, given: dict) -> list:
    """`measures` with skew, routing and what shapes them: each replaces its like, and stands where nothing else is said
    of the traffic. Raises UsageError where a flag is for none of the measures."""
    fitting = {key: [i for i, measure in enumerate(measures) if _takes(measure, key)] for key in given}
    for key, places in fitting.items():
        if not places:
            raise UsageError(f"--{key.replace('_', '-')} is for {' and '.join(BY_MATRIX)}; {suite} has none it suits")
    return [_over(m, {key: given[key] for key in given if i in fitting[key]}) for i, m in enumerate(measures)]


def lay_layers(measures: list, degree: dict, options: dict) -> list:
    """`measures` with the degree and the options of --set over the layers; an option over those that have it. What is
    for none stands where the check of the suite will tell what is wrong with it."""
    layers = [i for i, m in enumerate(measures) if isinstance(m, dict) and "layer" in m] or range(len(measures))
    laid = [_over(m, degree if i in layers else {}) for i, m in enumerate(measures)]
    for name, values in options.items():
        fitting = [i for i in layers if _has(laid[i], name)] or layers
        for i in fitting:
            own = laid[i].get("set", {}) if isinstance(laid[i], dict) else {}
            laid[i] = _over(laid[i], {"set": {**own, name: values}})
    return laid


def lay_axes(suite: str, measures: list, given: dict) -> list:
    """`measures` with the axes that flags give: all over operations, over layers those that layers have. Raises
    UsageError where a flag is for none of the measures."""
    layers = [isinstance(m, dict) and "layer" in m for m in measures]
    for key in given:
        if layers and all(layers) and key not in LAYER_KEYS:
            raise UsageError(f"--{key.replace('_', '-')} is for operations; {suite} measures layers alone")
    of_layers = {key: value for key, value in given.items() if key in LAYER_KEYS}
    return [_over(m, of_layers if layer else given) for m, layer in zip(measures, layers, strict=True)]


def _takes(measure, key: str) -> bool:
    if not isinstance(measure, dict):
        return False
    named = {"skew", "routing"} & set(measure)
    if not named:
        return "matrix" not in measure and any(op in BY_MATRIX for op in _listed(measure.get("op")))
    return key in measure if key in ("skew", "routing") else True


def _has(measure, option: str) -> bool:
    names = _listed(measure.get("layer")) if isinstance(measure, dict) else []
    return bool(names) and all(name in LAYER_NAMES and option in load(name).options for name in names)


def _listed(value) -> list:
    return value if isinstance(value, list) else [] if value is None else [value]


def _over(measure, given: dict):
    return {**measure, **given} if isinstance(measure, dict) else measure
