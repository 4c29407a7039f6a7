"""DualPipe and DualPipeV: a forward and a backward run through one another in one cell, from both ends at once.

deepseek-ai/DualPipe, dualpipe/dualpipe.py and dualpipev.py, whose eight phases stand below. In DualPipe every rank
holds two stages, one of each of two copies of the model that run in opposite directions. DualPipeV folds it in half:
one copy, laid out as a V, on half the ranks.
"""

from collections import deque

from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, Action, StageSchedule


def dualpipe(p: int, m: int) -> StageSchedule:
    """p is even, m is even and at least 2p; each direction takes half of the micro-batches."""
    rows = []
    for rank in range(p):
        near, far = (rank, 0), (2 * p - 1 - rank, m // 2)  # (stage, first micro-batch) of the two directions
        ends = (near, far) if rank < p // 2 else (far, near)
        rows.append(_row(p // 2, min(rank, p - 1 - rank), m // 2, *ends))
    return StageSchedule("dualpipe", p, m, (*range(p), *reversed(range(p))), p, tuple(rows))


def dualpipe_v(p: int, m: int) -> StageSchedule:
    """m is at least 2p, the number of stages."""
    rows = tuple(_row(p, rank, m, (rank, 0), (2 * p - 1 - rank, 0)) for rank in range(p))
    return StageSchedule("dualpipe_v", p, m, (*range(p), *reversed(range(p))), 2 * p, rows)


def _row(half: int, rank: int, count: int, near, far):
    """The eight phases of rank `rank` of `half`, for `count` micro-batches from each end.

    near, far: (stage, first micro-batch) of what comes from the nearer and from the farther end.
    """
    cells, waiting, done = [], deque(), {}

    def action(kind, end):
        stage, first = end
        number = done.get((kind == FORWARD, stage), 0)
        done[kind == FORWARD, stage] = number + 1
        made = Action(kind, first + number, stage)
        if kind == INPUT:
            waiting.append(made._replace(kind=WEIGHT))
        return made

    def one(kind, end):
        cells.append((action(kind, end),))

    def both(forward, backward):
        cells.append((action(FORWARD, forward), action(BACKWARD, backward)))

    def weights():
        cells.append((waiting.popleft(),))

    outer = half - rank - 1
    for _ in range(2 * outer):
        one(FORWARD, near)
    for _ in range(rank + 1):
        one(FORWARD, near)
        one(FORWARD, far)
    for _ in range(outer):
        one(INPUT, far)
        weights()
        one(FORWARD, far)
    for i in range(count - 2 * half + rank + 1):
        if i == 0 and outer == 0:  # the innermost rank does not overlap these two, so that its neighbour waits less
            one(FORWARD, near)
            one(BACKWARD, far)
        else:
            both(near, far)
        both(far, near)
    for _ in range(outer):
        one(BACKWARD, far)
        both(far, near)
    split = BACKWARD
    for i in range(rank + 1):
        if i == (rank + 1) // 2 and rank % 2 == 1:
            split = INPUT
        one(split, far)
        if i == (rank + 1) // 2 and rank % 2 == 0:
            split = INPUT
        one(split, near)
    for _ in range(outer):
        weights()
        one(INPUT, near)
    while waiting:
        weights()
    return tuple(cells)
