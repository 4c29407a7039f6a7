"""What a layer states about itself. Each strategy is one file of this folder, which holds the layer, its reference on
one rank, and its formulas."""

from collections.abc import Callable
from dataclasses import dataclass, field

Params = dict


@dataclass(frozen=True)
class Place:
    """Where one rank stands: `rank` of `ranks` in its group."""

    rank: int
    ranks: int


@dataclass(frozen=True)
class Built:
    """A layer on one rank, ready to run. `step` is what is timed: forward and backward.

    check(): (tensors that are wrong, the largest relative error) of outputs and gradients against the reference on one
    rank. parts: further functions that are timed apart, by name.
    facts(): what else a row should hold, of this rank: {"name": number or list}; the row keeps one value per rank.
    sampling(): called once, before the first sample; facts that are measured are those of the steps from here on.
    computes: False where a step is its calls alone, so that there is no computation to time without them.
    """

    step: Callable[[], None]
    check: Callable[[], tuple[int, float]]
    parts: dict[str, Callable[[], None]] = field(default_factory=dict)
    facts: Callable[[], dict] = dict
    computes: bool = True
    sampling: Callable[[], None] = lambda: None


def _everywhere(params: Params) -> tuple[str, ...]:
    return ("gloo", "nccl", "mpi")


def _one_group(params: Params, ranks: int) -> dict[str, list[list[int]]]:
    return {"": [list(range(ranks))]}


@dataclass(frozen=True)
class Layer:
    """options: the params with their defaults. words: of the options that take one of a few words, those words.
    problem(params, ranks): why that cannot be, in a sentence, or None.

    grids(params, ranks): for each of its wires the groups of ranks (numbers within the layer's own group).
    traffic(params, place): what one rank calls in one step, {"tp.all_reduce": (calls, bytes)}, bytes as nccl-tests'
    size. flops(params, place): of one step on one rank. memory_bytes(params, place): what one rank will hold.
    build(wires, params, place, device): the layer; wires by the names of `grids`.
    backends(params): those that it runs on with these options.
    moved(params, place): (bytes that the rank sends to others in one step, bytes that it receives), where its calls are
    not as even as their sizes say.
    """

    name: str
    options: Params
    problem: Callable[[Params, int], str | None]
    traffic: Callable[[Params, Place], dict]
    flops: Callable[[Params, Place], float]
    memory_bytes: Callable[[Params, Place], int]
    build: Callable
    grids: Callable[[Params, int], dict[str, list[list[int]]]] = _one_group
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    backends: Callable[[Params], tuple[str, ...]] = _everywhere
    moved: Callable[[Params, Place], tuple[int, int]] | None = None
