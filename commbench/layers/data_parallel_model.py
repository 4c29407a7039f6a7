"""The model of data_parallel.py on one rank: its state, and how it is gathered, reduced and updated by buckets."""

from dataclasses import dataclass, field

import torch

from commbench.layers import tensor_parallel_block as block
from commbench.layers.adam import adam_step
from commbench.layers.buckets import Pool
from commbench.layers.data_parallel_counts import block_params, buckets, matrix_shapes, parallel_ranks
from commbench.layers.data_parallel_reference import whole_blocks
from commbench.layers.layer import Place
from commbench.layers.numbers import scaled
from commbench.layers.wire import DONE

MATRICES = 4  # of a block


@dataclass
class _State:
    """What a rank holds, a flat tensor for each bucket: weights and gradients whole or this rank's part of them, and
    the part of the master weights and of Adam's two moments that it updates. steps: how many it has taken."""

    weights: list = field(default_factory=list)
    gradients: list = field(default_factory=list)
    masters: list = field(default_factory=list)
    moments: list = field(default_factory=list)
    steps: int = 0

    def tensors(self):
        return [*self.weights, *self.gradients, *self.masters, *(moment for pair in self.moments for moment in pair)]


class ShardedModel:
    """The blocks of one rank: its state, and how it is gathered, reduced and updated through the wires."""

    def __init__(self, wires, params, place: Place, device: str):
        self.shard, self.replica, self.tensor = wires["shard"], wires["replica"], wires["tensor"]
        self.params, self.zero = params, params["zero"]
        self.shape = scaled(params["model"], params["scale"])
        self.dtype = getattr(torch, params["dtype"])
        self.gradient_dtype = torch.float32 if params["fp32_gradients"] else self.dtype
        self.ranks = parallel_ranks(params, place.ranks)
        self.tensor_place = Place(place.rank % params["tensor_parallel"], params["tensor_parallel"])
        self.matrices = matrix_shapes(params) * params["layers"]
        self.buckets = buckets(params, place.ranks)
        self.bucket_of = [b for b, bucket in enumerate(self.buckets) for _ in range(bucket.first, bucket.last)]
        self.pool, self.device = Pool(device), device
        self.live = {}  # bucket: (its gathered weights, the call that gathers them)
        self.filling = {}  # bucket: gradients of which not all are there
        self.parts = {}  # bucket: the sum of this rank's part of the gradients, with stage 1
        self.reducing, self.summing = [], {}  # calls on their way
        self.reset()

    def reset(self) -> None:
        """Weights as they were drawn, no gradients, and an optimizer that has not begun."""
        state = self.state = _State()
        drawn = self.flat([block.shard(w, self.shape, self.tensor_place) for w in whole_blocks(self.params, "cpu")])
        for whole in drawn:
            whole = whole.to(self.device)
            part = self.part(whole)
            weights = part.clone() if self.zero == 3 else whole
            own = weights if self.zero == 3 else self.part(whole)
            state.weights.append(weights)
            state.gradients.append(torch.zeros_like(part if self.zero >= 2 else whole, dtype=self.gradient_dtype))
            state.masters.append(own if self.dtype == torch.float32 else own.float())
            state.moments.append([torch.zeros_like(part, dtype=torch.float32) for _ in range(2)])

    def flat(self, blocks) -> list[torch.Tensor]:
        """The buckets that hold these matrices."""
        matrices = [matrix for one in blocks for matrix in one.all()]
        buckets = [matrices[0].new_zeros(bucket.elements) for bucket in self.buckets]
        for number, matrix in enumerate(matrices):
            b = self.bucket_of[number]
            self.buckets[b].view(buckets[b], number, matrix.shape).copy_(matrix)
        return buckets

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.chunk(self.shard.size)[self.shard.rank]

    def used_by(self, number: int) -> list[int]:
        """The buckets that hold matrices of this block, none beyond either end."""
        if not 0 <= number < self.params["layers"]:
            return []
        return sorted(set(self.bucket_of[number * MATRICES : (number + 1) * MATRICES]))

    def weights_of(self, number: int, direction: int):
        """This block's matrices; those of the buckets that follow in `direction` (1 or -1) are asked for."""
        if self.zero < 3:
            flats = self.state.weights
        else:
            mine = self.used_by(number)
            order = mine[::direction]
            ahead = range(order[-1] + direction, order[-1] + direction * (1 + self.params["prefetch"]), direction)
            for b in order + [b for b in ahead if 0 <= b < len(self.buckets)]:
                if b not in self.live:
                    whole = self.pool.take(self.buckets[b].elements, self.dtype)
                    self.live[b] = whole, self.shard.all_gather(whole, self.state.weights[b])
            flats = {}
            for b in mine:
                flats[b], gathering = self.live[b]
                gathering.wait()
                self.live[b] = flats[b], DONE
        views = []
        for matrix in range(number * MATRICES, (number + 1) * MATRICES):
            b = self.bucket_of[matrix]
            views.append(self.buckets[b].view(flats[b], matrix, self.matrices[matrix]).detach().requires_grad_())
        return block.Weights(*views)

    def drop(self, number: int, direction: int) -> None:
        """The gathered weights of a block that the next one does not use."""
        if self.zero == 3:
            for b in set(self.used_by(number)) - set(self.used_by(number + direction)):
                self.pool.give(self.live.pop(b)[0])

    def forward(self, x, number: int):
        """The block of this number on `x`, as a graph from a leaf: (leaf, its weights, its output)."""
        own = self.weights_of(number, 1)
        leaf = x.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            y = block.parallel(leaf, own, self.tensor, block_params(self.params), self.shape)
        self.drop(number, 1)
        return leaf, own.all(), y

    def _pack(self, tensor):
        """For the backward pass a gathered weight is kept as its place only: its memory is lent to others meanwhile."""
        at = tensor.untyped_storage().data_ptr()
        for b, (whole, _) in self.live.items():
            if whole.untyped_storage().data_ptr() == at:
                return b, tensor.size(), tensor.stride(), tensor.storage_offset()
        return tensor

    def _unpack(self, kept):
        if isinstance(kept, torch.Tensor):
            return kept
        b, *place = kept
        return self.live[b][0].as_strided(*place)

    def backward(self, graph, dy, number: int, first: bool, last: bool):
        """The gradient of the block's input; those of its weights go into their buckets, and whole buckets leave.

        first, last: whether this is the first and the last micro-batch of the step.
        """
        leaf, own, y = graph
        self.weights_of(number, -1)
        dx, *gradients = torch.autograd.grad(y, [leaf, *own], dy)
        self.drop(number, -1)
        for matrix, gradient in enumerate(gradients, number * MATRICES):
            b = self.bucket_of[matrix]
            into = self.buckets[b].view(self._whole_gradient(b), matrix, gradient.shape)
            into.copy_(gradient) if first or self.zero >= 2 else into.add_(gradient)
        for b in reversed(self.used_by(number)):
            if self.buckets[b].first >= number * MATRICES:
                self._reduce(b, first, last)
        return dx

    def _whole_gradient(self, b: int):
        """The memory in which the gradients of a bucket come together."""
        if self.zero < 2:
            return self.state.gradients[b]
        if b not in self.filling:
            self.filling[b] = self.pool.take(self.buckets[b].elements, self.gradient_dtype)
            self.filling[b][self.buckets[b].filled :].zero_()
        return self.filling[b]

    def _reduce(self, b: int, first: bool, last: bool) -> None:
        if self.zero < 2 and not last:
            return
        if self.zero == 0:
            self.summing[b] = self.replica.all_reduce(self.state.gradients[b])
            return
        if self.zero >= 2:
            self.settle()  # one bucket on its way at a time: it hides behind the next block
        elements = self.buckets[b].elements // self.shard.size
        part = self.parts[b] if b in self.parts else self.pool.take(elements, self.gradient_dtype)
        whole = self._whole_gradient(b)
        self.reducing.append((b, part, whole, first, last, self.shard.reduce_scatter(part, whole)))

    def settle(self) -> None:
        """Wait for the parts that are on their way and put them in their places."""
        for b, part, whole, first, last, work in self.reducing:
            work.wait()
            if self.zero == 1:
                self.parts[b] = part
            else:
                mine = self.state.gradients[b]
                mine.copy_(part) if first else mine.add_(part)
                self.pool.give(part)
                self.pool.give(whole)
                del self.filling[b]
            if last:
                self.summing[b] = self.replica.all_reduce(self.gradient(b))
        self.reducing = []

    def gradient(self, b: int):
        """The sum over ranks of a bucket's gradients, as far as this rank updates the weights."""
        return self.parts[b] if self.zero == 1 else self.state.gradients[b]

    def update(self, rate: float, epsilon: float) -> None:
        """Adam on this rank's part, bucket by bucket; with stages 1 and 2 the new weights are gathered behind it."""
        self.settle()
        state, gathering = self.state, []
        for b, (master, moments) in enumerate(zip(state.masters, state.moments)):
            self.summing.pop(b).wait()
            mean = self.pool.take(master.numel(), torch.float32)
            adam_step(master, mean.copy_(self.gradient(b)).div_(self.ranks), moments, state.steps, rate, epsilon)
            self.pool.give(mean)
            if self.zero in (1, 2):
                part = self.pool.take(master.numel(), self.dtype).copy_(master)
                gathering.append((part, self.shard.all_gather(state.weights[b], part)))
            elif self.dtype != torch.float32:
                state.weights[b].copy_(master)
        for part, work in gathering:
            work.wait()
            self.pool.give(part)
        state.steps += 1
