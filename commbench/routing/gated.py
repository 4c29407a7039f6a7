"""Routings through a real gate, whose scores are drawn: normal logits, some experts favoured by a bias of `sigma`."""

import numpy as np

from commbench.errors import UsageError
from commbench.routing import gates
from commbench.routing.routing import Routing, check_experts, drawn, rng_of, tokens_of


def gshard(tokens_per_rank, ranks, experts, top_k, seed, capacity_factor: float, sigma: float = 0.0) -> Routing:
    """GShard's top-2 gate; capacity is of each source rank (its group): factor 2 T / E places of each expert."""
    return _with_drops(tokens_per_rank, ranks, experts, top_k, seed, capacity_factor, sigma, gates.gshard_top2, 2)


def switch(tokens_per_rank, ranks, experts, top_k, seed, capacity_factor: float, sigma: float = 0.0) -> Routing:
    """Switch Transformer's top-1 gate; capacity as in gshard: factor T / E."""

    def gate(logits, rng):
        return gates.switch_top1(logits)

    return _with_drops(tokens_per_rank, ranks, experts, top_k, seed, capacity_factor, sigma, gate, 1)


def node_limited(tokens_per_rank, ranks, experts, top_k, seed, groups: int, limit: int, score: str = "max") -> Routing:
    """The best `limit` of `groups` groups of experts, then the top k among their experts, for uniform scores."""
    check_experts(experts, top_k)
    gates.check_groups(experts, groups, limit, top_k, score)

    def chunk(rng, count):
        return gates.node_limited(rng.random((count, experts), np.float32), groups, limit, top_k, score, rng)

    return drawn(tokens_per_rank, ranks, experts, top_k, seed, chunk)


def _with_drops(tokens_per_rank, ranks, experts, top_k, seed, factor, sigma, gate, of_gate: int) -> Routing:
    if top_k != of_gate:
        raise UsageError(f"this gate chooses {of_gate} expert{'s' * (of_gate > 1)}, but top_k is {top_k}; set it so")
    tokens = tokens_of(tokens_per_rank, ranks)
    capacity = [gates.capacity_of(factor, count, experts, top_k) for count in tokens]
    bias = (sigma * rng_of(seed).standard_normal(experts)).astype(np.float32)

    def chunk(rng, count):
        return gate(rng.standard_normal((count, experts), np.float32) + bias, rng)

    chosen = drawn(tokens, ranks, experts, top_k, seed, chunk)
    # An expert's places are counted over all tokens of a rank, so drops come after the last chunk.
    kept = [gates.within_capacity(*own, experts) for own in zip(chosen.ids, chosen.weights, capacity)]
    ids, weights = zip(*kept)
    return Routing(experts, top_k, ids, weights)
