"""Data parallelism: every rank computes its own batch, gradients are averaged, and Adam changes the weights.

`zero` says what of the model state is cut over the ranks that share it (ZeRO, arXiv 1910.02054): 0 nothing, which is
plain data parallelism with an all_reduce; 1 the optimizer's state, with a reduce_scatter of the gradients and an
all_gather of the new weights; 2 gradients too; 3 also the weights, which are gathered before each use, forward and
backward, and dropped after it (FSDP, arXiv 2304.11277). `shard` ranks share one model; more ranks than that are
replicas, whose parts of the gradients are summed by an all_reduce (HSDP). Inside, `tensor_parallel` ranks cut each
matrix. Communication goes in buckets behind the computation: gradients as soon as a bucket is whole, weights
`prefetch` buckets ahead. The blocks are those of tensor_parallel.py. executor = "torch" is stage 3 by torch's
fully_shard: see data_parallel_torch.py.
"""

import torch

from commbench.layers import tensor_parallel_block as block
from commbench.layers.adam import adam_reference
from commbench.layers.buckets import held_bytes
from commbench.layers.data_parallel_counts import (
    OPTIONS,
    backends,
    flops,
    grids,
    memory_bytes,
    parallel_ranks,
    parameters,
    problem,
    state_bytes,
    traffic,
)
from commbench.layers.data_parallel_model import ShardedModel
from commbench.layers.data_parallel_reference import CHECK_EPSILON, CHECK_RATE, EPSILON, RATE, data, reference
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare


def build(wires, params, place: Place, device: str) -> Built:
    if params["executor"] == "torch":
        from commbench.layers.data_parallel_torch import build_torch  # its imports take seconds

        return build_torch(wires, params, place, device)
    model = ShardedModel(wires, params, place, device)
    rank, ranks = place.rank // params["tensor_parallel"], parallel_ranks(params, place.ranks)
    micro_batches = params["micro_batches"]
    batches = [[data(params, rank, micro, what, device) for what in (0, 1)] for micro in range(micro_batches)]
    held = {}

    def step(rate=RATE, epsilon=EPSILON):
        held["pairs"] = []
        for micro, (y, dy) in enumerate(batches):
            graphs = []
            for number in range(params["layers"]):
                graphs.append(model.forward(y, number))
                y = graphs[-1][2]
            held["pairs"].append([y])
            for number in reversed(range(params["layers"])):
                dy = model.backward(graphs.pop(), dy, number, micro == 0, micro == micro_batches - 1)
            held["pairs"][-1].append(dy)
        model.update(rate, epsilon)

    def check():
        model.reset()
        before = [weights.to(torch.float32, copy=True) for weights in model.state.weights]
        step(CHECK_RATE, CHECK_EPSILON)
        pairs, gradients = reference(params, rank, ranks, device)
        wanted = model.flat([block.shard(one, model.shape, model.tensor_place) for one in gradients])
        compared = [pair for found, right in zip(held["pairs"], pairs) for pair in zip(found, right)]
        parts = [model.part(whole) for whole in wanted]
        compared += [(model.gradient(b) / ranks, part) for b, part in enumerate(parts)]
        wanted = parts if model.zero == 3 else wanted
        changed = [adam_reference(*pair, CHECK_RATE, CHECK_EPSILON) for pair in zip(before, wanted)]
        compared += zip(model.state.weights, changed)
        return compare(compared, params["dtype"])

    def facts():
        return {
            "parameters": parameters(params),
            "state_bytes": held_bytes(model.state.tensors()),
            "state_formula_bytes": state_bytes(params, place.ranks),
            "bucket_bytes": model.pool.held_bytes,
        }

    return Built(step, check, facts=facts)


LAYER = Layer(
    name="data_parallel",
    options=OPTIONS,
    problem=problem,
    grids=grids,
    traffic=traffic,
    flops=flops,
    memory_bytes=memory_bytes,
    build=build,
    backends=backends,
    words={"executor": ("own", "torch")},
)
