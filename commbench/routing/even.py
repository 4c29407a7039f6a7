"""Routings without chance: round robin, and one whose busiest rank gets a set multiple of the mean, exactly."""

import numpy as np

from commbench.routing.placement import experts_per_rank
from commbench.routing.routing import Routing, Unreachable, check_experts, random_weights, rng_of, tokens_of


def round_robin(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int) -> Routing:
    """Token t of a rank takes the next k experts after those of token t - 1; every rank begins at expert 0."""
    check_experts(experts, top_k)
    ids = []
    for tokens in tokens_of(tokens_per_rank, ranks):
        ids.append((np.arange(tokens * top_k, dtype=np.int64) % experts).astype(np.int32).reshape(tokens, top_k))
    return _weighted(experts, top_k, ids, seed)


def highest_ratio(ranks: int, experts: int, top_k: int) -> float:
    """The most that one rank can receive over the mean, in selections: R min(k, E/R) / k, experts placed linearly."""
    return ranks * min(top_k, experts_per_rank(experts, ranks)) / top_k


def ratio(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, max_over_mean: float) -> Routing:
    """Rank 0 receives `max_over_mean` times the mean of selections, rounded to a whole selection; the others share the
    rest evenly, to within one; every source rank does alike. Experts are placed linearly.

    Raises Unreachable below 1 and above highest_ratio.
    """
    check_experts(experts, top_k)
    own, most = experts_per_rank(experts, ranks), highest_ratio(ranks, experts, top_k)
    if not 1 <= max_over_mean <= most:
        raise Unreachable(
            f"a rank cannot receive {max_over_mean:g} times the mean: with {ranks} ranks and top-{top_k} of {experts} "
            f"experts, {own} on each, it is 1 to {most:g} times"
        )
    tokens = tokens_of(tokens_per_rank, ranks)
    to_hot = round(max_over_mean * sum(tokens) * top_k / ranks)
    edge = np.arange(sum(tokens) + 1, dtype=object if sum(tokens) * to_hot >= 2**63 else np.int64)
    before = (edge * to_hot // max(sum(tokens), 1)).astype(np.int64)  # selections of rank 0 by the tokens before
    place = np.arange(top_k)
    hot = np.diff(before)[:, None]
    nth_hot = before[:-1, None] + place
    nth_cold = np.arange(len(hot))[:, None] * top_k - before[:-1, None] + place - hot
    others = max(ranks - 1, 1)
    cold = (1 + nth_cold % others) * own + nth_cold // others % own
    ids = np.where(place < hot, nth_hot % own, cold).astype(np.int32)
    return _weighted(experts, top_k, np.split(ids, np.cumsum(tokens)[:-1]), seed)


def _weighted(experts: int, top_k: int, ids, seed: int) -> Routing:
    weights = tuple(random_weights(rng_of(seed, rank), own) for rank, own in enumerate(ids))
    return Routing(experts, top_k, tuple(ids), weights)
