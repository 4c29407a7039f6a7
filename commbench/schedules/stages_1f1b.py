"""GPipe, 1F1B and interleaved 1F1B. Gradients of input and weights are taken together."""

from commbench.schedules.stages import BACKWARD, FORWARD, Action, StageSchedule


def gpipe(p: int, m: int) -> StageSchedule:
    """All forwards, then all backwards (arXiv 1811.06965)."""
    rows = tuple(tuple((Action(kind, i, rank),) for kind in (FORWARD, BACKWARD) for i in range(m)) for rank in range(p))
    return StageSchedule("gpipe", p, m, tuple(range(p)), p, rows)


def one_f_one_b(p: int, m: int) -> StageSchedule:
    """p - rank - 1 forwards ahead, then one forward and one backward by turns (PipeDream-Flush, arXiv 2006.09503)."""
    rows = tuple(_row(min(p - rank - 1, m), lambda k, s=rank: (k, s), lambda k, s=rank: (k, s), m) for rank in range(p))
    return StageSchedule("1f1b", p, m, tuple(range(p)), p, rows)


def interleaved(p: int, m: int, chunks: int) -> StageSchedule:
    """1F1B with `chunks` stages on each rank, p micro-batches at a time through each (arXiv 2104.04473, 2.2).

    Ahead are 2 (p - rank - 1) + (chunks - 1) p forwards: NVIDIA/Megatron-LM, get_pp_rank_microbatches.
    """
    rows = []
    for rank in range(p):

        def forward(k, rank=rank):
            return k // (p * chunks) * p + k % p, k // p % chunks * p + rank

        def backward(k, rank=rank):
            return k // (p * chunks) * p + k % p, (chunks - 1 - k // p % chunks) * p + rank

        ahead = min(2 * (p - rank - 1) + (chunks - 1) * p, m * chunks)
        rows.append(_row(ahead, forward, backward, m * chunks))
    rank_of = tuple(stage % p for stage in range(p * chunks))
    return StageSchedule("interleaved", p, m, rank_of, p * chunks, tuple(rows))


def _row(ahead: int, forward, backward, count: int):
    """`ahead` forwards, then forward and backward by turns, then the backwards that are left.

    forward(k), backward(k): micro-batch and stage of the k-th of `count`.
    """
    cells = [(Action(FORWARD, *forward(k)),) for k in range(ahead)]
    for k in range(count):
        if ahead + k < count:
            cells.append((Action(FORWARD, *forward(ahead + k)),))
        cells.append((Action(BACKWARD, *backward(k)),))
    return tuple(cells)
