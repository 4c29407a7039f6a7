"""What real gates choose, from the scores they are given: pure functions of arrays.

Each returns (ids, weights) of (tokens, k), int32 and float32; id -1 and weight 0 where a selection was dropped.
"""

import numpy as np

from commbench.errors import UsageError

NODE_SCORES = ("max", "top2", "uniform")


def capacity_of(factor: float, tokens: int, experts: int, top_k: int) -> int:
    """The places that each expert has for the tokens of one rank: factor k T / E, rounded up.

    Raises UsageError where that would be no place at all.
    """
    if not 0 < factor < float("inf"):
        raise UsageError(f"a capacity factor of {factor:g} leaves experts without a place; it is above 0, often 1 to 2")
    return max(1, int(np.ceil(factor * top_k * tokens / experts)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def best(scores: np.ndarray, count: int) -> np.ndarray:
    """The columns of the `count` largest of each row, the largest first."""
    if count < scores.shape[1]:
        columns = np.argpartition(scores, -count, axis=1)[:, -count:]
    else:
        columns = np.broadcast_to(np.arange(count), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1)
    return np.take_along_axis(columns, order, axis=1).astype(np.int32)


def within_capacity(ids, weights, capacity: int, experts: int) -> tuple[np.ndarray, np.ndarray]:
    """(ids, weights) with -1 and 0 for whoever came when an expert's `capacity` places were taken.

    First choices come in the order of the tokens, then second choices, and so on, as in GShard.
    Raises UsageError for a capacity below 1.
    """
    if capacity < 1:
        raise UsageError(f"a capacity of {capacity} would drop every token; an expert has at least 1 place")
    in_order = ids.T.ravel()
    kept = (_place(in_order, experts) < capacity).reshape(ids.shape[::-1]).T & (ids >= 0)
    return np.where(kept, ids, np.int32(-1)), np.where(kept, weights, np.float32(0))


def _place(chosen: np.ndarray, experts: int) -> np.ndarray:
    """For each entry, how many before it chose the same expert."""
    order = np.argsort(chosen, kind="stable")
    count = np.bincount(chosen + 1, minlength=experts + 1)
    place = np.empty(len(chosen), np.int64)
    place[order] = np.arange(len(chosen)) - np.repeat(np.cumsum(count) - count, count)
    return place


def switch_top1(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Switch Transformer (Fedus, Zoph and Shazeer, JMLR 23, 2022, section 2.1): the best expert, weighted by its
    probability. (tokens, 1). Its drops: within_capacity."""
    ids = best(logits, 1)
    return ids, np.take_along_axis(softmax(logits), ids, axis=1).astype(np.float32)


def gshard_top2(logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """GShard (Lepikhin et al., arXiv 2006.16668, algorithm 1): the two best experts, their gates normalised; a second
    choice is kept with probability 2 g2. (tokens, 2). Its drops: within_capacity; what chance left out takes no place.
    """
    ids = best(logits, 2)
    gates = np.take_along_axis(softmax(logits), ids, axis=1)
    gates = (gates / gates.sum(axis=1, keepdims=True)).astype(np.float32)
    left_out = 2 * gates[:, 1] <= rng.random(len(ids))
    ids[left_out, 1], gates[left_out, 1] = -1, 0
    return ids, gates


def node_limited(
    scores: np.ndarray, groups: int, limit: int, top_k: int, score: str = "max", rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The best `limit` of `groups` groups of experts (a group is what one node holds), then the best k among those.

    A group's score is its largest ("max": DeepEP's tests, deep_ep/utils/gate.py), the sum of its two largest ("top2":
    DeepSeek-V3, arXiv 2412.19437, section 2.1.2), or drawn from `rng` ("uniform": groups without regard to experts).
    `scores` are 0 or more; weights are the chosen ones' shares of their sum.
    """
    tokens, experts = scores.shape
    check_groups(experts, groups, limit, top_k, score)
    of_group = scores.reshape(tokens, groups, -1)
    if score == "max":
        group_score = of_group.max(axis=2)
    elif score == "top2":
        group_score = np.partition(of_group, of_group.shape[2] - min(2, of_group.shape[2]), axis=2)[..., -2:].sum(
            axis=2
        )
    else:
        group_score = rng.random((tokens, groups), np.float32)
    chosen = np.sort(best(group_score, limit), axis=1)
    width = experts // groups
    candidates = (chosen[:, :, None] * width + np.arange(width, dtype=np.int32)).reshape(tokens, -1)
    picked = best(np.take_along_axis(scores, candidates, axis=1), top_k)
    ids = np.take_along_axis(candidates, picked, axis=1).astype(np.int32)
    weights = np.take_along_axis(scores, ids, axis=1)
    return ids, (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def check_groups(experts: int, groups: int, limit: int, top_k: int, score: str) -> None:
    """Raise UsageError unless k experts can be chosen within `limit` of `groups` groups."""
    if groups < 1 or experts % groups:
        raise UsageError(f"{experts} experts do not divide into {groups} groups; node-limited routing needs equal ones")
    if not 1 <= limit <= groups:
        raise UsageError(f"the best {limit} of {groups} groups were asked for; it is 1 to {groups}")
    if top_k > limit * (experts // groups):
        raise UsageError(f"{limit} groups of {experts // groups} experts hold fewer than the top-{top_k}")
    if score not in NODE_SCORES:
        raise UsageError(f"a group's score is {', '.join(NODE_SCORES)}; found {score!r}")
