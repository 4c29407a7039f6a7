"""A traffic matrix by its recipe: name, shapes and seed of a routing in place of the million numbers that they make."""

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np

from commbench.errors import MeasureError, UsageError
from commbench.routing.balance import balanced
from commbench.routing.matrices import Traffic, traffic
from commbench.routing.named import generate
from commbench.routing.placement import Placement, linear
from commbench.routing.routing import Routing, Unreachable, masked

COPIES = {
    "selection": "per_selection", "rank": "per_rank", "first_hop": "first_hop", "second_hop": "second_hop"
}  # fmt: skip
_MOST_SELECTIONS = 2**27  # 1 GB at 8 bytes each: 16 million tokens of top-8
_KINDS = {"routing": (str,), "placement": (str,), "copies": (str,), "tokens": (int, str), "masked": (int, float)}


@dataclass(frozen=True)
class Recipe:
    """What makes a matrix of tokens: `routing` is a name as in routing/named.py, `placement` "linear", "balanced" or
    "balanced:32" (with so many copies of experts, by the load of this very routing), `copies` a key of COPIES.

    tokens: of each rank, or one count for each ("128,128,4"). masked: the share of selections that are masked.
    Nodes are ranks_per_node consecutive ranks.
    """

    routing: str
    ranks: int
    ranks_per_node: int
    tokens: int | str = 4096
    experts: int = 256
    top_k: int = 8
    routing_seed: int = 0
    masked: float = 0.0
    placement: str = "linear"
    copies: str = "selection"

    @property
    def recorded(self) -> bool:
        """True for a trace: its file is read where a run is planned and nowhere else, so a point keeps the matrix."""
        return self.routing.startswith("trace:")

    def params(self) -> dict:
        """What a point keeps of it: all but the number of ranks, and no defaults of the rarer keys."""
        rare = {"masked": 0.0, "placement": "linear", "copies": "selection", "ranks_per_node": self.ranks}
        return {k: v for k, v in asdict(self).items() if k != "ranks" and not (k in rare and v == rare[k])}


def recipe_of(params: dict, ranks: int) -> Recipe | None:
    """The recipe that a point's params hold; None where they hold none. Raises UsageError where they cannot be one:
    a journal may come from anywhere."""
    if "routing" not in params:
        return None
    names = {field.name for field in fields(Recipe)}
    kept = {"ranks_per_node": ranks} | {name: value for name, value in params.items() if name in names}
    for name, value in kept.items():
        low = 1 if name == "ranks_per_node" else 0
        if type(value) not in _KINDS.get(name, (int,)) or (type(value) is not str and not low <= value < 2**31):
            raise UsageError(f"{name} {value!r:.40} is no part of a routing")
    return Recipe(ranks=ranks, **kept)


def routed(recipe: Recipe) -> tuple[Routing, Placement, Traffic]:
    """The routing, the placement and the traffic of a recipe. Raises UsageError and Unreachable as they do."""
    return _routed(replace(recipe, copies="selection"))


@lru_cache(maxsize=4)
def _routed(recipe: Recipe) -> tuple[Routing, Placement, Traffic]:
    routing = _drawn(replace(recipe, placement="linear", ranks_per_node=recipe.ranks))
    placement = linear(recipe.experts, recipe.ranks)
    if recipe.placement == "linear":
        return routing, placement, traffic(routing, placement, recipe.ranks_per_node)
    load = traffic(routing, placement, recipe.ranks_per_node).expert_load
    nodes = recipe.ranks // recipe.ranks_per_node
    placement = balanced(load, recipe.ranks, nodes, replicas_of(recipe.placement))
    return routing, placement, traffic(routing, placement, recipe.ranks_per_node)


@lru_cache(maxsize=1)  # 8 bytes a selection: 270 MB for 1,024 ranks of 4096 tokens
def _drawn(recipe: Recipe) -> Routing:
    words = str(recipe.tokens).split(",")
    if not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        raise UsageError(f"tokens {recipe.tokens!r:.40} are no count for all ranks and none for each")
    tokens = [int(word) for word in words]
    each = tokens[0] if len(tokens) == 1 else tokens
    selections = (tokens[0] * recipe.ranks if len(tokens) == 1 else sum(tokens)) * recipe.top_k
    if selections > _MOST_SELECTIONS:
        raise UsageError(
            f"tokens {recipe.tokens} of top-{recipe.top_k} are {selections} selections on {recipe.ranks} ranks, more "
            f"than the {_MOST_SELECTIONS} that every rank can draw; use fewer tokens"
        )
    routing = generate(recipe.routing, each, recipe.ranks, recipe.experts, recipe.top_k, recipe.routing_seed)
    return masked(routing, recipe.masked, recipe.routing_seed) if recipe.masked else routing


def replicas_of(placement: str) -> int:
    """The copies beyond one of each expert in "balanced" or "balanced:32". Raises UsageError."""
    name, colon, count = placement.partition(":")
    if placement == "linear" or (name == "balanced" and not colon):
        return 0
    if name != "balanced" or not count.isascii() or not count.isdecimal() or len(count) > 6:
        raise UsageError(f"placement {placement!r} is not understood; write linear, balanced or balanced:REPLICAS")
    return int(count)


def shares(recipe: Recipe) -> np.ndarray:
    """The matrix of a recipe in tokens, int64 (R, R). Raises Unreachable where nothing would move."""
    if recipe.copies not in COPIES:
        raise UsageError(f"copies {recipe.copies!r:.40} are none; there are {', '.join(COPIES)}")
    matrix = getattr(routed(recipe)[2], COPIES[recipe.copies])
    if not matrix.any():
        raise Unreachable(f"routing {recipe.routing} of {recipe.tokens} tokens moves nothing of kind {recipe.copies}")
    return matrix


@lru_cache(maxsize=4)
def elements(recipe: Recipe, each: int) -> tuple[tuple[int, ...], ...]:
    """The matrix in elements, where all selections of a rank are `each` elements on average.

    So skew moves the same work to other places, and copies "rank" and the hops move less than "selection" does.
    """
    selections = routed(recipe)[2].counts["selections"]
    return tuple(tuple(cell * each * recipe.ranks // selections for cell in row) for row in shares(recipe).tolist())


def matrix_of(params: dict, ranks: int, each: int) -> tuple[tuple[int, ...], ...]:
    """The matrix that a point's params stand for, in elements; () where it has none.

    Raises MeasureError where a recipe makes other sums here than where it was planned.
    """
    recipe, matrix = recipe_of(params, ranks), params.get("matrix")
    if recipe is None or matrix is not None:
        return tuple(tuple(row) for row in matrix or ())
    planned = params.get("sent"), params.get("received")
    if planned != (None, None) and planned != element_sums(recipe, each):
        raise MeasureError(
            f"routing {recipe.routing} with seed {recipe.routing_seed} makes other sums here (numpy {np.__version__}) "
            "than where the run was planned; use one version of numpy, or write the matrix to a file for --matrix"
        )
    return elements(recipe, each)


@lru_cache(maxsize=4)
def element_sums(recipe: Recipe, each: int) -> tuple[list[int], list[int]]:
    """The sums of `elements`."""
    return sums(elements(recipe, each))


def sums(matrix) -> tuple[list[int], list[int]]:
    """(what each rank sends, what each receives), the own share counted."""
    return [sum(row) for row in matrix], [sum(column) for column in zip(*matrix)]
