"""What a schedule moves: elements that each rank sends and receives, by link class."""

from dataclasses import dataclass

import numpy as np

from commbench.schedules.schedule import Schedule


@dataclass(frozen=True)
class Count:
    """Elements sent and received per endpoint (the switch, where there is one, is the last), in all and between nodes;
    `links`: elements from endpoint to endpoint, `messages` likewise."""

    sent: np.ndarray
    received: np.ndarray
    sent_between_nodes: np.ndarray
    received_between_nodes: np.ndarray
    links: np.ndarray
    messages: np.ndarray


def bounds(n_chunks: int, count: int, whole_blocks: bool) -> np.ndarray:
    """Where chunk c begins, in elements, and at the end where the last one ends.

    whole_blocks: every chunk has `count` elements; otherwise `count` elements are cut into slices as equal as can be.
    """
    chunk = np.arange(n_chunks + 1)
    return chunk * count if whole_blocks else chunk * count // n_chunks


def count(schedule: Schedule, elements: int, per_node: int | None = None) -> Count:
    """Count `schedule` for a vector of `elements` (all_reduce, broadcast) or blocks of `elements` (the others).

    Rank r lives on node r // per_node; by default all are on one node. A switch is on every node.
    Walks every step with every row: for large N use the simulation, which counts repeated steps once.
    """
    n = schedule.n_ranks + schedule.switch
    blocks = schedule.op not in ("all_reduce", "broadcast")
    at = bounds(schedule.n_chunks, elements, blocks)
    links, messages = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    for one in schedule.steps():
        np.add.at(links, (one.src, one.dst), at[one.first + one.count] - at[one.first])
        pairs = np.unique(one.src * n + one.dst)
        messages[pairs // n, pairs % n] += 1
    node = np.arange(n) // (per_node or n)
    between = node[:, None] != node[None, :]
    if schedule.switch:
        between[-1], between[:, -1] = False, False
    return Count(
        links.sum(axis=1), links.sum(axis=0), (links * between).sum(axis=1), (links * between).sum(axis=0),
        links, messages,
    )  # fmt: skip
