"""The bubble of a pipeline that ran, beside that of its simulation and its formula for the times its cells took."""

import numpy as np
import torch

from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, StageSchedule
from commbench.schedules.stages_formulas import bubble
from commbench.schedules.stages_simulate import Costs, simulate

_KINDS = (FORWARD, INPUT, WEIGHT, BACKWARD, FORWARD + BACKWARD)


def bubble_facts(run, wire, chunks: int) -> dict:
    """Of this rank, medians over the steps in us; every rank of the pipeline takes part.

    bubble_us: what is idle in the whole step, until the last rank ends; bubble_of_span_us: between this rank's first
    and last cell. simulated_bubble_us, and formula_bubble_us where one is published: for the times that F, B and W took
    here on the mean of the ranks, with messages that take no time. peak_activations: as kept, in those of one
    micro-batch on a rank's share. timeline_us: begin and end of each cell of the last step.
    """
    schedule, times = run.schedule, run.durations_us()
    durations = np.array([one[:, 1] - one[:, 0] for one in times])
    own = [[one.sum() for one in durations], [one[0, 0] for one in times], [one[-1, 1] for one in times]]
    table = _gathered(wire, run, np.array([*np.concatenate(own), *_by_kind(schedule, wire.rank, durations)]))
    each = table[:, : -len(_KINDS)].reshape(wire.size, 3, len(times))
    busy, first, last = each[wire.rank]
    costs = _costs([column[column > 0].mean() if column.any() else 0.0 for column in table[:, -len(_KINDS) :].T])
    timeline = simulate(schedule, costs)
    published = bubble(schedule.name, schedule.ranks, schedule.micro_batches, costs, chunks)
    return {
        "busy_us": _median(busy),
        "bubble_us": _median(each[:, 2].max(axis=0) - busy),
        "bubble_of_span_us": _median(last - first - busy),
        "simulated_bubble_us": _median(timeline.bubble[wire.rank]),
        "simulated_bubble_of_span_us": _median(timeline.bubble_of_span[wire.rank]),
        **({} if published is None else {"formula_bubble_us": _median(published)}),
        "peak_activations": run.most_kept * schedule.share,
        "timeline_us": [round(float(value), 2) for value in times[-1].ravel()],
    }


def _by_kind(schedule: StageSchedule, rank: int, durations) -> list[float]:
    """The median time of each kind of cell, of a rank's whole share; 0 for a kind that the rank does not have."""
    kinds = np.array(["".join(action.kind for action in cell) for cell in schedule.rows[rank]])
    return [
        float(np.median(durations[:, kinds == kind])) / schedule.share if (kinds == kind).any() else 0.0
        for kind in _KINDS
    ]


def _costs(of_kind) -> Costs:
    """From the times of F, B, W, BW and F&BW. Where nothing is split, half of BW stands for B and half for W."""
    forward, gradient, weight, backward, both = map(float, of_kind)
    gradient, weight = (gradient, weight) if gradient else (backward / 2, backward / 2)
    return Costs(forward, gradient, weight, overlapped=both or None)


def _gathered(wire, run, values):
    """(ranks, values) of all ranks."""
    own = torch.from_numpy(values).to(run.device)
    table = own.new_empty(wire.size * own.numel())
    wire.all_gather(table, own).wait()
    return table.cpu().numpy().reshape(wire.size, -1)


def _median(values) -> float:
    return round(float(np.median(values)), 3) + 0.0  # no -0.0
