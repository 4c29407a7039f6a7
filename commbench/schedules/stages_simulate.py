"""A pipeline schedule run on paper: when each cell begins and ends, who idles, what each rank keeps."""

from dataclasses import dataclass

import numpy as np

from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, Cell, StageSchedule, result, sources


@dataclass(frozen=True)
class Costs:
    """Times of one micro-batch on one rank's share of the model (its p-th part), in any unit.

    message: from one rank to the next, while both go on computing. overlapped: of an F&B cell, None where it takes as
    long as its F, B and W one after another.
    """

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0
    message: float = 0.0
    overlapped: float | None = None

    def of(self, cell: Cell, share: float) -> float:
        """The time of a cell whose stages are `share` of a rank's part."""
        if len(cell) == 2:
            whole = self.forward + self.input + self.weight
            return share * (whole if self.overlapped is None else self.overlapped)
        one = {FORWARD: self.forward, INPUT: self.input, WEIGHT: self.weight, BACKWARD: self.input + self.weight}
        return share * one[cell[0].kind]


@dataclass(frozen=True)
class Timeline:
    """starts[rank], ends[rank]: of each cell of the schedule's row, from the beginning of the step on."""

    schedule: StageSchedule
    starts: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]

    @property
    def makespan(self) -> float:
        return float(max(ends.max() for ends in self.ends))

    @property
    def busy(self) -> np.ndarray:
        """(ranks,) what each rank computes."""
        return np.array([(end - start).sum() for start, end in zip(self.starts, self.ends)])

    @property
    def bubble(self) -> np.ndarray:
        """(ranks,) idle time of each rank in the whole step: makespan less busy."""
        return self.makespan - self.busy

    @property
    def bubble_of_span(self) -> np.ndarray:
        """(ranks,) idle time of each rank between its first and its last cell.

        This is the one that is zero for ZB-V: where steps follow one another, a rank that ends early begins the next.
        """
        spans = np.array([end.max() - start.min() for start, end in zip(self.starts, self.ends)])
        return spans - self.busy


class Deadlock(ValueError):
    """The ranks wait for one another for ever; the message names what each waits for."""


def simulate(schedule: StageSchedule, costs: Costs) -> Timeline:
    """Each cell begins when its rank is free and its inputs are there. Raises Deadlock where that never happens."""
    made = {}  # action: (end, rank)
    starts, ends = ([[] for _ in range(schedule.ranks)] for _ in range(2))
    free = [0.0] * schedule.ranks
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.rows):
            while len(ends[rank]) < len(row):
                cell = row[len(ends[rank])]
                ready = _ready(schedule, cell, rank, made, costs.message)
                if ready is None:
                    break
                starts[rank].append(max(free[rank], ready))
                free[rank] = starts[rank][-1] + costs.of(cell, schedule.share)
                ends[rank].append(free[rank])
                made |= {result(action): (free[rank], rank) for action in cell}
                moved = True
    stuck = [(rank, row[len(ends[rank])]) for rank, row in enumerate(schedule.rows) if len(ends[rank]) < len(row)]
    if stuck:
        waits = "; ".join(f"rank {rank} at {'&'.join(map(str, cell))}" for rank, cell in stuck)
        raise Deadlock(f"{schedule.name} stops with {waits}")
    return Timeline(schedule, tuple(map(np.array, starts)), tuple(map(np.array, ends)))


def _ready(schedule, cell: Cell, rank: int, made: dict, message: float) -> float | None:
    """When the inputs of a cell are on its rank; None while one is not made."""
    ready = 0.0
    for action in cell:
        for source in sources(schedule, action):
            if source not in made:
                return None
            end, maker = made[source]
            ready = max(ready, end + (message if maker != rank else 0.0))
    return ready


def peak_activations(schedule: StageSchedule) -> list[float]:
    """For each rank the most activations it keeps at a time, in those of one rank's share for one micro-batch.

    A forward keeps them until the gradient of its weights is taken; a cell of F and BW holds both meanwhile.
    """
    peaks = []
    for row in schedule.rows:
        held = peak = 0
        for cell in row:
            held += sum(action.kind == FORWARD for action in cell)
            peak = max(peak, held)
            held -= sum(action.kind in (WEIGHT, BACKWARD) for action in cell)
        peaks.append(peak * schedule.share)
    return peaks
