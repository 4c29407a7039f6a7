"""The traffic of operations that follow a matrix: from a suite's keys to the params of a point."""

from itertools import product
from math import lcm
from pathlib import Path

from commbench.routing import traffic
from commbench.routing.placement import experts_per_rank
from commbench.routing.recipe import Recipe, element_sums, elements, recipe_of, replicas_of, shares
from commbench.routing.routing import Unreachable

_EXPERTS = 256  # DeepSeek-V3's; more where they would not divide over the ranks and into 8 groups
_TOKENS = 4096  # of a rank, as in DeepEP's tests
_TOKENS_IN_ALL = 2**18  # fewer from 64 ranks up, since every rank draws the tokens of all, and shares need no more


def choices(measure) -> list[dict | None]:
    """The traffics that `measure` (suite/schema.py) sweeps: keys of a Recipe, or None for its matrix.

    A skew is the routing whose busiest rank receives so many times the mean.
    """
    routings = [*(f"ratio:{skew:g}" for skew in measure.skew), *measure.routing]
    if not routings:
        return [None]
    return [
        {"routing": routing, "placement": placement, "copies": copies}
        for routing, placement, copies in product(routings, measure.placement, measure.copies)
    ]


def params_of(measure, choice: dict | None, nodes: list[int]) -> dict:
    """The params of a point on ranks that live on `nodes`: a matrix of shares, or a recipe.

    Raises UsageError for a matrix or shapes that do not fit the group, Unreachable for a skew that it cannot have.
    """
    if choice is None:
        return {"matrix": _shares(measure, len(nodes))}
    n = len(nodes)
    tokens = min(_TOKENS, max(1, _TOKENS_IN_ALL // n)) if measure.tokens is None else measure.tokens
    if isinstance(tokens, list):
        tokens = tokens[0] if len(tokens) == 1 else ",".join(map(str, tokens))
    recipe = Recipe(
        ranks=n,
        ranks_per_node=measure.ranks_per_node or _ranks_per_node(nodes, choice),
        tokens=tokens,
        experts=measure.experts or -(-_EXPERTS // lcm(n, 8)) * lcm(n, 8),
        top_k=measure.top_k,
        routing_seed=measure.routing_seed,
        masked=measure.masked,
        **choice,
    )
    experts_per_rank(recipe.experts, n)
    replicas = replicas_of(recipe.placement)
    if replicas % n:
        raise Unreachable(f"{replicas} further copies of experts do not divide over {n} ranks; use a multiple of {n}")
    shares(recipe)  # whatever is wrong with it is told now
    return recipe.params()


def _ranks_per_node(nodes: list[int], choice: dict) -> int:
    """How many consecutive ranks share a node; all, where they do not lie so and nothing hangs on it. Raises
    Unreachable where it does."""
    each = nodes.count(nodes[0])
    blocks = [set(nodes[first : first + each]) for first in range(0, len(nodes), each)]
    even = len(nodes) % each == 0 and all(len(block) == 1 for block in blocks)
    if even and len(set.union(*blocks)) == len(blocks):
        return each
    if choice["placement"] != "linear" or choice["copies"].endswith("hop"):
        raise Unreachable("the group's ranks do not lie in order, equally many on each node, as traffic by node needs")
    return len(nodes)


def at_size(params: dict, ranks: int, count: int) -> dict:
    """What follows the size: the matrix in elements, and of a recipe what each rank sends and receives; a recipe that
    can be made again anywhere needs no matrix."""
    recipe = recipe_of(params, ranks)
    if recipe is None:
        return {"matrix": [list(row) for row in traffic.scaled(params["matrix"], count)]}
    sent, received = element_sums(recipe, count)
    matrix = {"matrix": [list(row) for row in elements(recipe, count)]} if recipe.recorded else {}
    return {"sent": sent, "received": received} | matrix


def _shares(measure, n: int):
    if isinstance(measure.matrix, str):
        if measure.matrix in traffic.PRESETS:
            return traffic.PRESETS[measure.matrix](n)
        weights, name = traffic.read_csv(Path(measure.matrix)), f"matrix file {measure.matrix}"
    else:
        weights, name = measure.matrix, "matrix"
    traffic.check(weights, n, name)
    return weights


_SHAPES = {"placement", "copies", "tokens", "experts", "top_k", "masked", "routing_seed", "ranks_per_node"}


def problem(measure) -> str | None:
    """What contradicts itself in a measure's keys of traffic, in a sentence; None where nothing does."""
    given = measure.model_fields_set
    if measure.layer and (keys := sorted((_SHAPES | {"skew", "routing"}) & given)):
        return f"{keys[0]} is of operations that follow a matrix; a layer takes it as {keys[0]} in `set`, if at all"
    generated = measure.skew or measure.routing
    if generated and "matrix" in given:
        return "give a matrix, or skew and routing, not both"
    if not generated and (keys := sorted(_SHAPES & given)):
        return f"{keys[0]} is of a routing, and there is none; give skew or routing"
    return None
