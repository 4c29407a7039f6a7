"""Routings drawn from a popularity of experts: uniform, Zipf, log-normal, and some hot experts.

A token's experts are the k that finish first in a race of exponential clocks whose rates are the popularities, which
draws without replacement one by one (Efraimidis and Spirakis, Information Processing Letters 97, 2006).
"""

import numpy as np

from commbench.errors import UsageError
from commbench.routing.gates import best
from commbench.routing.routing import Routing, Unreachable, check_experts, drawn, rng_of


def uniform(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int) -> Routing:
    """Every expert equally likely."""
    return _raced(tokens_per_rank, ranks, experts, top_k, seed, None)


def zipf(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, s: float) -> Routing:
    """Popularities 1, 2^-s, 3^-s ... dealt to the experts in an order drawn by the seed."""
    if not 0 <= s <= 8:
        raise UsageError(f"zipf has exponent {s:g}; it is between 0 and 8, and 2 is already very uneven")
    popularity = np.arange(1, experts + 1, dtype=np.float64) ** -s
    return _raced(tokens_per_rank, ranks, experts, top_k, seed, rng_of(seed).permutation(popularity))


def log_normal(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, sigma: float) -> Routing:
    """Popularities exp(sigma z), z normal: what fits recorded routing best (DeepEP pull request 393)."""
    if not 0 <= sigma <= 8:
        raise UsageError(f"log_normal has sigma {sigma:g}; it is between 0 and 8, and 2 is already very uneven")
    popularity = np.exp(sigma * rng_of(seed).standard_normal(experts))
    return _raced(tokens_per_rank, ranks, experts, top_k, seed, popularity)


def hot(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, hot_experts: int, share: float) -> Routing:
    """The first `hot_experts` get `share` of all selections (each token's part of it to within one selection); within
    the hot ones and within the others all are equally likely. Raises Unreachable where a token cannot choose so."""
    check_experts(experts, top_k)
    if not 1 <= hot_experts < experts or not 0 <= share <= 1:
        raise UsageError(
            f"{hot_experts} hot experts with a share of {share:g} were asked for; there may be 1 to {experts - 1} of "
            "them, and the share is between 0 and 1"
        )
    of_hot, of_cold = min(hot_experts, top_k), min(experts - hot_experts, top_k)
    if not 1 - of_cold / top_k <= share <= of_hot / top_k:
        raise Unreachable(
            f"{hot_experts} of {experts} experts cannot get a share of {share:g} of the selections of top-{top_k}, "
            f"for a token's experts differ: it is {1 - of_cold / top_k:g} to {of_hot / top_k:g}"
        )
    whole, part = divmod(share * top_k, 1)
    place = np.arange(top_k)

    def chunk(rng, count):
        speed = -rng.standard_exponential((count, experts), np.float32)
        wanted = (whole + (rng.random(count) < part)).astype(np.int64)[:, None]  # hot selections of each token
        ranked = [best(speed[:, :hot_experts], of_hot), hot_experts + best(speed[:, hot_experts:], of_cold)]
        column = np.where(place < wanted, place, of_hot + place - wanted)
        return np.take_along_axis(np.concatenate(ranked, axis=1), column, axis=1), None

    return drawn(tokens_per_rank, ranks, experts, top_k, seed, chunk)


def _raced(tokens_per_rank, ranks, experts, top_k, seed, popularity) -> Routing:
    check_experts(experts, top_k)
    slowness = None if popularity is None else (popularity.max() / popularity).astype(np.float32)

    def chunk(rng, count):
        clock = rng.standard_exponential((count, experts), np.float32)
        if slowness is not None:
            clock *= slowness
        return np.argpartition(clock, top_k - 1, axis=1)[:, :top_k], None

    return drawn(tokens_per_rank, ranks, experts, top_k, seed, chunk)
