"""Which parameters of a shape lie on a rank of a layout.

Attention, dense and shared FFNs, embedding and head are cut by tp, layers by pp. Experts are spread over ep ranks,
which lie within tp x cp x dp, and are not cut further.
"""

from dataclasses import dataclass
from functools import cache

from commbench.planning.layout import Layout
from commbench.planning.pipeline import layers_of_stages
from commbench.shapes import Shape
from commbench.shapes.counts import (
    dense_layers,
    embedding_parameters,
    ffn_parameters,
    head_parameters,
    layer_parameters,
)


@dataclass(frozen=True)
class Stage:
    """A pipeline rank: its layers without and with experts, and whether embedding or head are on it."""

    index: int
    dense: int
    sparse: int
    embedding: bool
    head: bool


def stages(shape: Shape, layout: Layout) -> tuple[Stage, ...]:
    """The pipeline ranks in order. With chunks the layers are taken as if each rank's were neighbours."""
    return _stages(shape.layers, dense_layers(shape), layout.pp)


@cache
def _stages(layers_in_all: int, plain: int, pp: int) -> tuple[Stage, ...]:
    split = layers_of_stages(layers_in_all, pp)
    made, first = [], 0
    for index, layers in enumerate(split):
        dense = min(layers, max(0, plain - first))
        made.append(Stage(index, dense, layers - dense, index == 0, index == pp - 1))
        first += layers
    return tuple(made)


def shared_parameters(shape: Shape, layout: Layout, stage: Stage) -> float:
    """Parameters on the rank that all of its data-parallel group hold: everything but experts."""
    count = (stage.dense * layer_parameters(shape, False)) / layout.tp
    if stage.sparse:
        count += stage.sparse * layer_parameters(shape, True, 0) / layout.tp
    if stage.embedding:
        count += embedding_parameters(shape) / layout.tp
    if stage.head:
        # A tied output layer on another rank than the embedding is a copy of it.
        tied = shape.vocab * shape.hidden if shape.tied and not stage.embedding else 0
        count += (head_parameters(shape) + tied) / layout.tp
    return count


def expert_parameters(shape: Shape, layout: Layout, stage: Stage) -> float:
    """Parameters of the experts on the rank, the shared ones not counted."""
    if not stage.sparse:
        return 0.0
    moe = shape.moe
    return stage.sparse * moe.experts * ffn_parameters(shape, moe.expert_hidden) / layout.ep
