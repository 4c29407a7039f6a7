"""Zero-bubble schedules: the gradient of the weights, which nobody waits for, fills what would be idle time.

"Zero Bubble Pipeline Parallelism", arXiv 2401.10241: ZB-H1 (section 2.3) and ZB-V (section 6).
"""

from commbench.schedules.stages import FORWARD, INPUT, WEIGHT, Action, StageSchedule


def zb_h1(p: int, m: int) -> StageSchedule:
    """1F1B whose W of rank r come r micro-batches late, so that no rank keeps more than p micro-batches."""
    rows = []
    for rank in range(p):
        ahead = min(p - rank - 1, m)
        cells = [Action(FORWARD, i, rank) for i in range(ahead)]
        for i in range(m):
            if ahead + i < m:
                cells.append(Action(FORWARD, ahead + i, rank))
            cells.append(Action(INPUT, i, rank))
            if i >= rank:
                cells.append(Action(WEIGHT, i - rank, rank))
        cells += [Action(WEIGHT, i, rank) for i in range(max(m - rank, 0), m)]
        rows.append(tuple((action,) for action in cells))
    return StageSchedule("zb_h1", p, m, tuple(range(p)), p, tuple(rows))


def zb_v(p: int, m: int) -> StageSchedule:
    """Two stages a rank, the model laid out as a V: the first rank holds the first stage and the last.

    No rank idles between its first and its last cell where F, B and W take the same time. Fewer than 2p - 1
    micro-batches run in the order of so many, with those that are not there left out.
    """
    rows = []
    for rank in range(p):
        down, up = rank, 2 * p - 1 - rank
        row = _Row()
        for _ in range(2 * (p - rank) - 1):
            row.add(FORWARD, down)
        for _ in range(rank):
            row.add(FORWARD, up)
            row.add(FORWARD, down)
        for _ in range(p - rank):
            row.add(FORWARD, up)
            row.add(INPUT, up)
            row.add(WEIGHT, up)
        count = max(m, 2 * p - 1)
        while row.done(FORWARD, up) < count:
            if row.done(FORWARD, down) < count:
                row.add(FORWARD, down)
            row.add(INPUT, down)
            row.add(WEIGHT, down)
            row.add(FORWARD, up)
            row.add(INPUT, up)
            row.add(WEIGHT, up)
        for _ in range(rank):
            row.add(INPUT, down)
            row.add(INPUT, up)
        for _ in range(p - rank):
            row.add(INPUT, down)
            row.add(WEIGHT, down)
        for stage in (up, down):
            while row.done(WEIGHT, stage) < count:
                row.add(WEIGHT, stage)
        rows.append(tuple((action,) for action in row.actions if action.micro_batch < m))
    rank_of = (*range(p), *reversed(range(p)))
    return StageSchedule("zb_v", p, m, rank_of, 2 * p, tuple(rows))


class _Row:
    """Actions of one rank; each kind takes the micro-batches of a stage in their order."""

    def __init__(self):
        self.actions, self._next = [], {}

    def done(self, kind: str, stage: int) -> int:
        return self._next.get((kind, stage), 0)

    def add(self, kind: str, stage: int) -> None:
        self.actions.append(Action(kind, self.done(kind, stage), stage))
        self._next[kind, stage] = self.done(kind, stage) + 1
