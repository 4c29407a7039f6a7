"""The same pipeline by torch's own runtime, torch.distributed.pipelining, where it has the schedule."""

import torch
import torch.nn.functional as F
from torch import nn

_CLASSES = {
    "gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
    "zb_v": "ScheduleZBVZeroBubble", "dualpipe_v": "ScheduleDualPipeV",
}  # fmt: skip
SCHEDULES = tuple(_CLASSES)


class _Blocks(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.matrices = nn.ParameterList(nn.Parameter(matrix) for block in blocks for matrix in block)

    def forward(self, x):
        for up, down in zip(self.matrices[::2], self.matrices[1::2]):
            x = x + F.gelu(x @ up.T) @ down.T
        return x


class TorchPipeline:
    """step() as PipelineRun's, over `process_group`; outputs: {micro-batch: y} where this rank has the last stage.

    blocks: {stage: [(up, down)]}; inputs and output_gradients: {micro-batch: tensor}, empty away from the ends. torch
    sends by itself, so that nothing of it is counted or left out.
    """

    def __init__(self, schedule, process_group, blocks: dict, device: str, inputs: dict, output_gradients: dict):
        from torch.distributed import pipelining  # takes a second to import

        self._modules = [_Blocks(of_stage) for of_stage in blocks.values()]
        stages = [
            pipelining.PipelineStage(module, number, schedule.chain_stages, torch.device(device), group=process_group)
            for number, module in zip(blocks, self._modules)
        ]
        kind = getattr(pipelining, _CLASSES[schedule.name])
        one = schedule.chain_stages == schedule.ranks
        self._schedule = kind(stages[0] if one else stages, schedule.micro_batches, loss_fn=_loss, scale_grads=False)
        self._input = [torch.cat([inputs[i] for i in sorted(inputs)])] if inputs else []
        self._target = torch.cat([output_gradients[i] for i in sorted(output_gradients)]) if output_gradients else None
        self._count, self.outputs = schedule.micro_batches, {}

    def step(self) -> None:
        for module in self._modules:
            module.zero_grad()
        y = self._schedule.step(*self._input, target=self._target)
        if self._target is not None:
            self.outputs = dict(enumerate(y.chunk(self._count)))

    def gradients(self):
        """[[gradient of each matrix] of each stage]."""
        return [[matrix.grad for matrix in module.matrices] for module in self._modules]


def _loss(y, gradient):
    """What has `gradient` as its gradient."""
    return (y * gradient).sum()
