"""ZeRO-3 as torch does it: fully_shard (FSDP2) over the same blocks, its calls sent through a Wire.

FSDP2 takes the functions that gather and reduce from outside (set_custom_all_gather, set_custom_reduce_scatter), so its
calls are counted, left out and repeated like the own executor's. It cuts each matrix by rows, gathers a block at a time
and keeps the master weights and the gradients' parts in fp32. It waits for a call where it makes it, unless a stream of
the device does so: on a CPU nothing hides.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from commbench.layers import tensor_parallel_block as block
from commbench.layers.adam import adam_reference, adam_step
from commbench.layers.buckets import held_bytes
from commbench.layers.data_parallel_counts import block_params, parameters, state_bytes
from commbench.layers.data_parallel_reference import (
    CHECK_EPSILON,
    CHECK_RATE,
    EPSILON,
    RATE,
    data,
    reference,
    whole_blocks,
)
from commbench.layers.layer import Built, Place
from commbench.layers.numbers import compare, scaled


class _Block(nn.Module):
    def __init__(self, weights, wire, params):
        super().__init__()
        self.matrices = nn.ParameterList(nn.Parameter(matrix.float()) for matrix in weights.all())
        self.wire, self.params = wire, params
        self.shape = scaled(params["model"], params["scale"])

    def forward(self, x):
        return block.parallel(x, block.Weights(*self.matrices), self.wire, block_params(self.params), self.shape)


class _Stack(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for one in self.blocks:
            x = one(x)
        return x


class _ThroughWire:
    """torch's interface of a collective: memory, and the call."""

    def __init__(self, wire):
        self.wire = wire

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_ThroughWire):
    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        work = self.wire.all_gather(output_tensor, input_tensor)
        return work if async_op else work.wait()


class _ReduceScatter(_ThroughWire):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        work = self.wire.reduce_scatter(output_tensor, input_tensor)
        return work if async_op else work.wait()


class TorchModel:
    """The blocks of one rank under fully_shard."""

    def __init__(self, wires, params, device: str):
        self.wires, self.params, self.device = wires, params, device
        self.reset()

    def reset(self) -> None:
        wire, params = self.wires["shard"], self.params
        mesh = DeviceMesh.from_group(wire.process_group, self.device)
        drawn = whole_blocks(params, self.device)
        self.stack = _Stack([_Block(weights, self.wires["tensor"], params) for weights in drawn])
        reduced = torch.float32 if params["fp32_gradients"] else None
        policy = MixedPrecisionPolicy(param_dtype=getattr(torch, params["dtype"]), reduce_dtype=reduced)
        for module in [*self.stack.blocks, self.stack]:
            fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
            module.set_custom_all_gather(_AllGather(wire))
            module.set_custom_reduce_scatter(_ReduceScatter(wire))
            module.set_force_sum_reduction_for_comms(True)
        self.parameters = list(self.stack.parameters())
        self.moments = [[torch.zeros_like(p.to_local()) for _ in range(2)] for p in self.parameters]
        self.steps = 0

    def micro_batch(self, x, dy):
        """(output, gradient of the input); those of the weights are added to what is there."""
        leaf = x.detach().requires_grad_()
        y = self.stack(leaf)
        torch.autograd.backward(y, dy)
        return y, leaf.grad

    def update(self, rate: float, epsilon: float) -> None:
        for parameter, moments in zip(self.parameters, self.moments):
            adam_step(parameter.to_local().detach(), parameter.grad.to_local(), moments, self.steps, rate, epsilon)
        self.steps += 1

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def part(self, matrix):
        """This rank's rows of a whole matrix."""
        wire = self.wires["shard"]
        rows = -(-matrix.shape[0] // wire.size)
        return matrix[wire.rank * rows : (wire.rank + 1) * rows]

    def held_bytes(self) -> int:
        """Of weights, gradients and moments that are held between steps."""
        own = [p.to_local() for p in self.parameters] + [
            p.grad.to_local() for p in self.parameters if p.grad is not None
        ]
        return held_bytes(own + [moment for pair in self.moments for moment in pair])


def build_torch(wires, params, place: Place, device: str) -> Built:
    """The layer with torch's executor."""
    model, micro_batches = TorchModel(wires, params, device), range(params["micro_batches"])
    batches = [[data(params, place.rank, micro, what, device) for what in (0, 1)] for micro in micro_batches]
    held = {}

    def step(rate=RATE, epsilon=EPSILON):
        model.forget_gradients()
        held["pairs"] = [model.micro_batch(x, dy) for x, dy in batches]
        model.update(rate, epsilon)

    def check():
        model.reset()
        before = [parameter.to_local().detach().clone() for parameter in model.parameters]
        step(CHECK_RATE, CHECK_EPSILON)
        pairs, gradients = reference(params, place.rank, place.ranks, device)
        compared = [pair for found, right in zip(held["pairs"], pairs) for pair in zip(found, right)]
        wanted = [model.part(matrix) for one in gradients for matrix in one.all()]
        for parameter, first, gradient in zip(model.parameters, before, wanted):
            compared.append((parameter.grad.to_local(), gradient))
            compared.append((parameter.to_local(), adam_reference(first, gradient, CHECK_RATE, CHECK_EPSILON)))
        return compare(compared, params["dtype"])

    def facts():
        return {
            "parameters": parameters(params),
            "state_bytes": model.held_bytes(),
            "state_formula_bytes": state_bytes(params, place.ranks),
        }

    return Built(step, check, facts=facts)
