"""The whole batch of data_parallel.py on one rank, which every executor is held against."""

import torch

from commbench.layers import tensor_parallel_block as block
from commbench.layers.data_parallel_counts import block_params
from commbench.layers.numbers import draw, scaled

RATE, EPSILON = 1e-6, 1e-8
# With a large epsilon Adam's first step is smooth in the gradient. Its usual one is close to the gradient's sign, in
# which rounding near 0 shows as a large error.
CHECK_RATE, CHECK_EPSILON = 1.0, 30.0


def whole_blocks(params, device):
    """The weights of every block, uncut."""
    shape = scaled(params["model"], params["scale"])
    return [
        block.whole_weights(params | {"seed": params["seed"] + 1 + i}, shape, device) for i in range(params["layers"])
    ]


def data(params, rank: int, micro: int, what: int, device):
    """The input (what = 0) or the gradient of the output (1) of a micro-batch of a data-parallel rank."""
    size = params["tokens"], params["batch"], scaled(params["model"], params["scale"]).hidden
    number = 10 + 2 * (rank * params["micro_batches"] + micro) + what
    return draw(params["seed"], number, *size, dtype=params["dtype"], device=device)


def reference(params, rank: int, ranks: int, device: str):
    """The whole batch on one rank in fp32: (outputs and input gradients of data-parallel rank `rank`, a pair for each
    micro-batch; the gradients of every block's weights, averaged over the `ranks`)."""
    shape = scaled(params["model"], params["scale"])
    blocks = [block.Weights(*(m.float().requires_grad_() for m in w.all())) for w in whole_blocks(params, device)]
    matrices, pairs = [matrix for one in blocks for matrix in one.all()], []
    sums = [torch.zeros_like(matrix) for matrix in matrices]
    for r in range(ranks):
        for micro in range(params["micro_batches"]):
            x = data(params, r, micro, 0, device).float().requires_grad_()
            y = x
            for one in blocks:
                y = block.reference(y, one, block_params(params), shape)
            dx, *gradients = torch.autograd.grad(y, [x, *matrices], data(params, r, micro, 1, device).float())
            for total, gradient in zip(sums, gradients):
                total += gradient / ranks
            if r == rank:
                pairs.append((y.detach(), dx))
    return pairs, [block.Weights(*sums[i : i + 4]) for i in range(0, len(sums), 4)]
