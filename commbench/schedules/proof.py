"""A symbolic run: which contributions every rank holds after every step."""

import numpy as np

from commbench.schedules.schedule import Schedule, Step


def prove(schedule: Schedule) -> None:
    """Raise AssertionError unless every rank ends with each contribution that it should have exactly once.

    Also shown on the way: no contribution is ever added twice, nothing is sent by a rank that lacks it, and no rank
    gets a chunk that replaces what it sends in the same step. Takes memory of ranks^2 * chunks numbers where the
    operation reduces, ranks * chunks elsewhere.
    """
    held = _start(schedule)
    for number, one in enumerate(schedule.steps()):
        _apply(held, one, f"{schedule.name} {schedule.op} of {schedule.n_ranks} ranks, step {number}")
    _finish(schedule, held)


def _start(schedule: Schedule) -> np.ndarray:
    """held[rank, chunk, contributor]: how often that contributor's data is in that rank's chunk."""
    n, chunks = schedule.n_ranks, schedule.n_chunks
    endpoints, ranks = n + schedule.switch, np.arange(n)
    reduces = schedule.op in ("all_reduce", "reduce_scatter")
    held = np.zeros((endpoints, chunks, n if reduces else 1), np.int16)
    if reduces:
        held[ranks, :, ranks] = 1
    elif schedule.op == "broadcast":
        held[0] = 1
    elif schedule.op == "all_gather":
        held[ranks, ranks] = 1
    else:
        held[ranks[:, None], np.arange(n) * n + ranks[:, None]] = 1
    return held


def _apply(held: np.ndarray, one: Step, where: str) -> None:
    row = np.repeat(np.arange(one.src.size), one.count)
    chunk = one.first[row] + np.arange(row.size) - np.repeat(np.cumsum(one.count) - one.count, one.count)
    src, dst, reduce = one.src[row], one.dst[row], one.reduce[row]
    assert np.all(src != dst), f"{where}: a rank sends to itself"
    arriving = held[src, chunk]
    assert np.all(arriving.sum(axis=1) > 0), f"{where}: a rank sends a chunk that it does not have"
    n_chunks = held.shape[1]
    kept = dst[~reduce] * n_chunks + chunk[~reduce]
    assert np.unique(kept).size == kept.size, f"{where}: two ranks write the same chunk of one"
    assert not np.isin(kept, src * n_chunks + chunk).any(), f"{where}: a chunk is replaced while it is sent"
    assert not np.isin(kept, (dst * n_chunks + chunk)[reduce]).any(), f"{where}: a chunk is replaced and added to"
    np.add.at(held, (dst[reduce], chunk[reduce]), arriving[reduce])
    held[dst[~reduce], chunk[~reduce]] = arriving[~reduce]
    assert held.max() <= 1, f"{where}: a contribution arrives twice"


def _finish(schedule: Schedule, held: np.ndarray) -> None:
    n, ranks = schedule.n_ranks, np.arange(schedule.n_ranks)
    if schedule.op == "reduce_scatter":
        wanted = held[ranks, ranks]
    elif schedule.op == "all_to_all":
        origin, distance = np.meshgrid(ranks, ranks)
        wanted = held[(origin + distance) % n, distance * n + origin]
    else:
        wanted = held[:n]
    missing = np.argwhere(wanted != 1)
    assert not missing.size, f"{schedule.name} {schedule.op} of {n} ranks: {len(missing)} contributions are missing"
