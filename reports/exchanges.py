"""The exchanges of a run whose matrices a router made: how uneven, how long, predicted, and what padding costs."""

import statistics
from dataclasses import dataclass, replace

import numpy as np

from commbench.errors import CommbenchError
from commbench.models.matrix_time import MatrixTime, curves, matrix_time, parted
from commbench.ops.op import call_of
from commbench.results.metrics import flow_words, load, time_us
from commbench.results.records import Point, Sample
from commbench.results.store import Run
from commbench.routing.recipe import Recipe, recipe_of

MOST_RANKS = 256  # of a matrix that is drawn
_MOST_DRAWN = 2**29  # scores of tokens for experts: some seconds


@dataclass(frozen=True)
class Exchange:
    """A measured exchange by a generated matrix: what was asked for on average, how uneven it is, what it took.

    predicted: None where the run does not hold what a prediction needs. padding: the time of the same exchange in
    blocks of one size over this one's, None where that was not measured.
    """

    sample: Sample
    flow: str
    sent: float
    received: float
    busiest: int
    time_us: float
    predicted: MatrixTime | None
    padding: float | None

    @property
    def asked_bytes(self) -> int:
        return self.sample.point.params["requested_bytes"]

    @property
    def off(self) -> float | None:
        return None if self.predicted is None else parted(self.time_us, self.predicted.time_us)


def exchanges(samples: list[Sample], run: Run) -> list[Exchange]:
    """Every exchange by a generated matrix among the good rows, with its prediction from the even ones."""
    node_of, nic_of = _places(run)
    fitted = quietly(curves, samples, node_of, nic_of) or {}
    points = {}
    for sample in samples:
        if flow_words(sample.point) and load(sample) and type(sample.point.params.get("requested_bytes")) is int:
            points.setdefault(sample.point.id, []).append(sample)
    every = [_over_launches(of_point) for of_point in points.values()]
    padded = {_twin(s.point): taken for s, taken in every if s.point.op == "all_to_all_padded"}
    found = []
    for sample, taken in every:
        point, uneven = sample.point, load(sample)
        twin = padded.get(_twin(point)) if point.op == "all_to_all_v" else None
        found.append(Exchange(
            sample, flow_words(point), uneven["sent_max_over_mean"], uneven["received_max_over_mean"],
            point.members[uneven["busiest_rank"]], taken,
            _predicted(point, fitted, node_of, nic_of), twin and twin / taken,
        ))  # fmt: skip
    return found


def _places(run: Run) -> tuple[list[int], list[str | None]]:
    """(node, NIC) of each rank by the last header that tells them; none where it tells no numbers."""
    told = [launch.header["ranks"] for launch in run.launches if launch.header.get("ranks")]
    if not told or any(type(rank.get("node")) is not int for rank in told[-1]):
        return [], []
    return [rank["node"] for rank in told[-1]], [str(rank["nic"]) if rank.get("nic") else None for rank in told[-1]]


def _predicted(point: Point, fitted: dict, node_of, nic_of) -> MatrixTime | None:
    return None if matrix_of(point) is None else quietly(matrix_time, point, fitted, node_of, nic_of)


def _over_launches(samples: list[Sample]) -> tuple[Sample, float]:
    """(one sample with the times of all launches of a point, the median of the launches' medians)."""
    pooled = tuple(time for sample in samples for time in sample.samples_us)
    return replace(samples[0], samples_us=pooled), statistics.median(map(time_us, samples))


def quietly(function, *arguments):
    """None where a recipe cannot be made again here: the measured row stands without what would follow from it."""
    try:
        return function(*arguments)
    except CommbenchError:
        return None


def _twin(point: Point) -> tuple:
    """The same for the padded and the plain exchange of one matrix."""
    return (point.backend, point.group, point.members, point.dtype, point.timing, flow_words(point),
            point.params.get("requested_bytes"))  # fmt: skip


def matrix_of(point: Point) -> np.ndarray | None:
    """The matrix of a point in elements; None where it would have to be made by what a page does not do."""
    recipe = quietly(recipe_of, point.params, len(point.members))
    if recipe is None or (point.params.get("matrix") is None and too_much(recipe)):
        return None
    call = quietly(call_of, point)
    return call and np.array(call.matrix, dtype=np.int64)


def too_much(recipe: Recipe) -> bool:
    """Whether a page would wait long for it to be drawn again, or would have to read a file that a journal names."""
    tokens = str(recipe.tokens).split(",")
    most = max((int(t) for t in tokens if t.isascii() and t.isdecimal()), default=0)
    scores = (most + 1) * recipe.ranks * recipe.experts
    return recipe.recorded or recipe.ranks > MOST_RANKS or scores > _MOST_DRAWN
