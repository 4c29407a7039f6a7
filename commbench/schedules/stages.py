"""Pipeline schedules as data: for each rank the list of what it computes, one cell after another.

A model is cut into stages that lie one behind another, and a batch into micro-batches. What a rank does with one
micro-batch on one of its stages is an action: F forward; B the gradient of the input; W the gradient of the weights;
BW both of them at once. (Papers differ: in "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, B is the gradient of
the input as here; in 1F1B's and DualPipe's formulas B is the whole backward.) A cell is one action, or an F and a BW
of two micro-batches that run through one another (DualPipe's F&B): it begins when the inputs of both are there, and
its results leave at its end.
"""

from dataclasses import dataclass
from typing import NamedTuple

FORWARD, INPUT, WEIGHT, BACKWARD = "F", "B", "W", "BW"


class Action(NamedTuple):
    kind: str
    micro_batch: int
    stage: int

    def __str__(self):
        return f"{self.kind}{self.micro_batch}@{self.stage}"


Cell = tuple[Action, ...]


@dataclass(frozen=True)
class StageSchedule:
    """rank_of[stage]: where a stage lies. rows[rank]: its cells in order.

    chain_stages: the stages that a micro-batch passes. DualPipe has two chains, each a whole copy of the model: stages
    0 .. chain_stages - 1 for the first half of the micro-batches, the stages behind them for the second half.
    """

    name: str
    ranks: int
    micro_batches: int
    rank_of: tuple[int, ...]
    chain_stages: int
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def share(self) -> float:
        """A stage as a part of what falls to one rank of a pipeline with as many stages as ranks."""
        return self.ranks / self.chain_stages

    def stages_of(self, rank: int) -> list[int]:
        return [stage for stage, holder in enumerate(self.rank_of) if holder == rank]

    def chain_of(self, micro_batch: int) -> range:
        """The stages that this micro-batch passes, in order."""
        chains = len(self.rank_of) // self.chain_stages
        first = self.chain_stages * (micro_batch * chains // self.micro_batches)
        return range(first, first + self.chain_stages)

    def is_first(self, stage: int) -> bool:
        return stage % self.chain_stages == 0

    def is_last(self, stage: int) -> bool:
        return (stage + 1) % self.chain_stages == 0


def sources(schedule: StageSchedule, action: Action) -> list[Action]:
    """The results that `action` needs, by the actions that make them (see `result`): a forward those of the stage
    before, a backward its own forward and the gradient from the stage behind, W its own B."""
    kind, micro_batch, stage = action
    if kind == FORWARD:
        return [] if schedule.is_first(stage) else [Action(FORWARD, micro_batch, stage - 1)]
    if kind == WEIGHT:
        return [Action(INPUT, micro_batch, stage)]
    own = [Action(FORWARD, micro_batch, stage)]
    return own if schedule.is_last(stage) else [*own, Action(INPUT, micro_batch, stage + 1)]


def result(action: Action) -> Action:
    """The name under which `sources` looks for what `action` makes: BW makes what B makes."""
    return action._replace(kind=INPUT) if action.kind == BACKWARD else action
