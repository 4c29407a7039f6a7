"""One rank of a pipeline schedule carried out: its cells in their order, its messages in theirs."""

import time
from collections import deque

import numpy as np
import torch

from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, Action, StageSchedule, result
from commbench.schedules.stages_messages import messages_in, messages_out, posts

_KEPT_STEPS = 64  # whose times are kept


class PipelineRun:
    """step() runs all micro-batches through the stages of this rank once, forward and backward.

    stages: {number: stage (layers/pipeline_stage.py)}. like: a tensor of a message's shape. inputs: {micro-batch: x} of
    a first stage, output_gradients: {micro-batch: dy} of a last one; afterwards outputs and input_gradients hold what
    left the pipeline here. most_kept: the most forwards whose backward was not yet done.
    """

    def __init__(
        self, schedule: StageSchedule, rank: int, wire, stages: dict, like, inputs: dict, output_gradients: dict
    ):
        self.schedule, self.stages, self._rank, self._wire = schedule, stages, rank, wire
        self._like, self._inputs, self._output_gradients = like, inputs, output_gradients
        self.outputs, self.input_gradients, self._times = {}, {}, deque(maxlen=_KEPT_STEPS)
        self.most_kept = 0
        cells = schedule.rows[rank]
        self._posts = posts(schedule)[rank]
        self._needs = [[_made(m) for m in messages_in(schedule, rank, k)] for k in range(len(cells))]
        self._leaves = {_made(m) for k in range(len(cells)) for m in messages_out(schedule, rank, k)}
        self._free = []  # buffers of messages
        self.device = like.device
        self._mark, self._since = _clock(self.device)

    def step(self) -> None:
        for stage in self.stages.values():
            stage.begin()
        self._held, self._lent, self._due, self._leaving, sends = {}, {}, {}, {}, []
        origin, marks = self._mark(), []
        for k, cell in enumerate(self.schedule.rows[self._rank]):
            self._post(k, sends)
            for made in self._needs[k]:
                self._due.pop(made).wait()
            marks.append(self._mark())
            for action in cell:
                self._compute(action)
            marks.append(self._mark())
        self._post(len(self._posts) - 1, sends)
        for work, _ in sends:
            work.wait()
        if self._wire.on:
            self._times.append((origin, marks))

    def forget(self) -> None:
        """Leave out the times of the steps so far: the first ones are slow."""
        self._times.clear()

    def durations_us(self) -> list[np.ndarray]:
        """For each step that is kept: (cells, 2), begin and end of each cell since the step began on this rank."""
        return [np.array([self._since(origin, mark) for mark in marks]).reshape(-1, 2) for origin, marks in self._times]

    def _post(self, k: int, sends: list) -> None:
        for message in self._posts[k]:
            made = _made(message)
            if message.src == self._rank:
                tensor = self._leaving.pop(made)
                sends.append((self._wire.exchange([], [(message.dst, tensor)]), tensor))
            else:
                buffer = self._free.pop() if self._free else torch.zeros_like(self._like)
                user = message.stage + (1 if message.kind == FORWARD else -1)
                self._lent.setdefault((message.micro_batch, user), []).append(buffer)
                self._held[made] = buffer
                self._due[made] = self._wire.exchange([(message.src, buffer)], [])

    def _compute(self, action: Action) -> None:
        kind, i, number = action
        stage = self.stages[number]
        if kind == FORWARD:
            first = self.schedule.is_first(number)
            x = self._inputs[i] if first else self._held.pop(Action(FORWARD, i, number - 1))
            self._give(action, stage.forward(i, x), self.outputs if self.schedule.is_last(number) else None)
            self.most_kept = max(self.most_kept, sum(len(one.kept) for one in self.stages.values()))
        if kind in (INPUT, BACKWARD):
            last = self.schedule.is_last(number)
            dy = self._output_gradients[i] if last else self._held.pop(Action(INPUT, i, number + 1))
            first = self.schedule.is_first(number)
            self._give(result(action), stage.input_gradient(i, dy), self.input_gradients if first else None)
        if kind in (WEIGHT, BACKWARD):
            stage.weight_gradient(i)
            self._free += self._lent.pop((i, number), ())

    def _give(self, made: Action, tensor, end: dict | None) -> None:
        if end is not None:
            end[made.micro_batch] = tensor
        elif made in self._leaves:
            self._leaving[made] = tensor
        else:
            self._held[made] = tensor


def _made(message) -> Action:
    return Action(message.kind, message.micro_batch, message.stage)


def _clock(device):
    """(a function that marks now, a function of two marks: the microseconds between them)."""
    if device.type == "cpu":
        return time.perf_counter_ns, lambda begin, end: (end - begin) / 1e3

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return mark, lambda begin, end: begin.elapsed_time(end) * 1e3
