"""Which experts each token was sent to: what a router decides, and all that the traffic follows from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from commbench.errors import CommbenchError, UsageError

CHUNK = 8192  # tokens that are drawn at a time: the scores of 256 experts then take 8 MB


class Unreachable(CommbenchError):
    """A skew that no routing of these ranks, experts and top-k has; the message names the bound."""


@dataclass(frozen=True)
class Routing:
    """The choice of `top_k` of `experts` experts for each token of each source rank.

    ids[rank]: int32 (tokens, top_k), -1 where a selection is masked or was dropped; the valid ones of a token differ.
    weights[rank]: float32 of the same shape, what the expert's output is multiplied by; 0 where the id is -1.
    """

    experts: int
    top_k: int
    ids: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]

    @property
    def ranks(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> list[int]:
        """Tokens of each source rank."""
        return [len(ids) for ids in self.ids]


def check_experts(experts: int, top_k: int) -> None:
    """Raise UsageError unless `top_k` different experts can be chosen of `experts`."""
    if experts < 1 or top_k < 1:
        raise UsageError(f"{experts} experts and top-{top_k} were asked for; both are 1 or more")
    if top_k > experts:
        raise UsageError(f"top-{top_k} of {experts} experts: a token's experts differ, so k is at most {experts}")


def tokens_of(tokens_per_rank: int | Sequence[int], ranks: int) -> list[int]:
    """The tokens of each of `ranks` ranks from one number for all or one for each. Raises UsageError."""
    tokens = [tokens_per_rank] * ranks if isinstance(tokens_per_rank, int) else [int(t) for t in tokens_per_rank]
    if len(tokens) != ranks:
        raise UsageError(f"token counts for {len(tokens)} ranks were given, the group has {ranks}")
    if min(tokens) < 0:
        raise UsageError(f"{min(tokens)} tokens on rank {tokens.index(min(tokens))}: a count of tokens is 0 or more")
    return tokens


def rng_of(seed: int, rank: int | None = None) -> np.random.Generator:
    """The random stream of one source rank, or the one for what all ranks share (popularity of experts)."""
    return np.random.default_rng([seed, 0 if rank is None else rank + 1])


def drawn(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, chunk: Callable) -> Routing:
    """A routing of `ranks` ranks, drawn rank by rank in chunks of tokens, so that memory stays small.

    chunk(rng, count) gives (ids, weights) of the next `count` tokens; weights None stands for random ones.
    """
    check_experts(experts, top_k)
    ids, weights = [], []
    for rank, tokens in enumerate(tokens_of(tokens_per_rank, ranks)):
        rng = rng_of(seed, rank)
        ids.append(np.empty((tokens, top_k), np.int32))
        weights.append(np.empty((tokens, top_k), np.float32))
        for first in range(0, tokens, CHUNK):
            part = slice(first, min(first + CHUNK, tokens))
            chosen, of_chosen = chunk(rng, part.stop - part.start)
            ids[rank][part] = chosen
            weights[rank][part] = random_weights(rng, chosen) if of_chosen is None else of_chosen
    return Routing(experts, top_k, tuple(ids), tuple(weights))


def random_weights(rng: np.random.Generator, ids: np.ndarray) -> np.ndarray:
    """Positive float32 weights of the shape of `ids`; those of a token add up to 1, and are 0 where the id is -1."""
    weights = np.where(ids < 0, np.float32(0), rng.random(ids.shape, np.float32) + np.float32(0.05))
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def masked(routing: Routing, share: float, seed: int) -> Routing:
    """`routing` with about `share` of its selections masked, chosen at random as DeepEP's --masked-ratio does."""
    if not 0 <= share <= 1:
        raise UsageError(f"a masked share of {share:g} was asked for; it is between 0 and 1")
    ids, weights = [], []
    for rank, (own, of_own) in enumerate(zip(routing.ids, routing.weights)):
        hidden = np.random.default_rng([seed, rank + 1, 1]).random(own.shape, np.float32) < share
        ids.append(np.where(hidden, np.int32(-1), own))
        weights.append(np.where(hidden, np.float32(0), of_own))
    return Routing(routing.experts, routing.top_k, tuple(ids), tuple(weights))
