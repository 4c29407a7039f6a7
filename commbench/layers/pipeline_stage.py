"""The stages of a pipeline: MLP blocks whose backward comes in two halves, or a wait of set length in their place."""

import time

import torch
import torch.nn.functional as F

from commbench.layers.numbers import weight

_WEIGHTS = 500_000  # numbers of drawn tensors from here on; below are those of micro-batches


class MlpStage:
    """Blocks y = x + gelu(x up^T) down^T, one after another; x and y are (tokens, hidden).

    blocks: [(up (ffn, hidden), down (hidden, ffn))]. gradients: theirs in fp32, summed over micro-batches as Megatron
    does. The gradient of the input needs 2 of the 4 matrix products of a block's backward, that of the weights 2.
    """

    def __init__(self, blocks):
        self.blocks = blocks
        self.gradients = [[torch.zeros_like(matrix, dtype=torch.float32) for matrix in block] for block in blocks]
        self.kept = {}  # micro-batch: for each block what its backward needs

    def begin(self) -> None:
        for block in self.gradients:
            for gradient in block:
                gradient.zero_()

    def forward(self, micro_batch: int, x):
        kept = []
        for up, down in self.blocks:
            inner = x @ up.T
            active = F.gelu(inner)
            kept.append([x, inner, active])
            x = torch.addmm(x, active, down.T)
        self.kept[micro_batch] = kept
        return x

    def input_gradient(self, micro_batch: int, dy):
        for (up, down), kept in zip(reversed(self.blocks), reversed(self.kept[micro_batch])):
            d_inner = torch.ops.aten.gelu_backward(dy @ down, kept[1])
            kept[1:2] = [d_inner, dy]
            dy = torch.addmm(dy, d_inner, up)
        return dy

    def weight_gradient(self, micro_batch: int) -> None:
        for (d_up, d_down), (x, d_inner, dy, active) in zip(self.gradients, self.kept.pop(micro_batch)):
            d_up += d_inner.T @ x
            d_down += dy.T @ active


class WaitingStage:
    """In place of computing it sleeps, so that there can be more ranks than cores; what it is given leaves it larger by
    1, which tells whether every message came to its place.

    Times are those of this stage for one micro-batch.
    """

    def __init__(self, forward_us: float, input_us: float, weight_us: float):
        self._times = forward_us, input_us, weight_us
        self.kept = {}

    def begin(self) -> None:
        """Nothing is summed."""

    def forward(self, micro_batch: int, x):
        self.kept[micro_batch] = None
        return self._waited(0, x)

    def input_gradient(self, micro_batch: int, dy):
        return self._waited(1, dy)

    def weight_gradient(self, micro_batch: int) -> None:
        del self.kept[micro_batch]
        time.sleep(self._times[2] / 1e6)

    def _waited(self, which: int, tensor):
        until = time.perf_counter() + self._times[which] / 1e6
        larger = tensor + 1
        time.sleep(max(0.0, until - time.perf_counter()))
        return larger


def block_weights(params: dict, shape, block: int, device: str = "cpu"):
    """(up, down) of the model's block of this number."""
    seed, dtype = params["seed"], params["dtype"]
    up = weight(seed, _WEIGHTS + 2 * block, shape.ffn_hidden, shape.hidden, dtype, device)
    return up, weight(seed, _WEIGHTS + 2 * block + 1, shape.hidden, shape.ffn_hidden, dtype, device)


def reference(x, blocks):
    """The whole model on one rank, one micro-batch."""
    for up, down in blocks:
        x = x + F.gelu(x @ up.T) @ down.T
    return x
