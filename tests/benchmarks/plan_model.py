"""A small GPT in plain torch and plain collectives, cut by tensor parallelism or into pipeline stages: what
plan_local.py times. Weights are drawn in full from a seed by name and then cut, so that each cut is the same model."""

import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copied(torch.autograd.Function):
    """Megatron's f: as it is forward, gradients added up backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Summed(torch.autograd.Function):
    """Megatron's g: added up forward, as it is backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def drawn(name: str, *size: int) -> torch.Tensor:
    """The weight of that name, the same in each process."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.randn(*size, generator=generator) * 0.02


class Block(nn.Module):
    """One layer; `tp` ranks of `group` share it."""

    def __init__(self, shape, number: int, tp: int, index: int, group):
        super().__init__()
        h, inner, self.tp, self.group = shape.hidden, shape.ffn_hidden, tp, group
        self.heads, self.dim = shape.heads // tp, shape.head_dim

        def cut(name, rows, columns, axis):
            return nn.Parameter(drawn(f"{number} {name}", rows, columns).chunk(tp, axis)[index].contiguous())

        self.norms = nn.ModuleList([nn.LayerNorm(h), nn.LayerNorm(h)])
        self.q, self.k, self.v = (cut(name, h, h, 0) for name in "qkv")
        self.out, self.first, self.second = cut("o", h, h, 1), cut("1", inner, h, 0), cut("2", h, inner, 1)

    def enter(self, x):
        return Copied.apply(x, self.group) if self.tp > 1 else x

    def leave(self, x):
        return Summed.apply(x, self.group) if self.tp > 1 else x

    def forward(self, x):
        y = self.enter(self.norms[0](x))
        batch, length, _ = y.shape
        q, k, v = (
            F.linear(y, w).view(batch, length, self.heads, self.dim).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.leave(F.linear(y.transpose(1, 2).reshape(batch, length, -1), self.out))
        y = F.gelu(F.linear(self.enter(self.norms[1](x)), self.first))
        return x + self.leave(F.linear(y, self.second))


class Part(nn.Module):
    """Some layers, with the embedding before them and the output layer behind them where they are at an end."""

    def __init__(self, shape, numbers: range, tp: int = 1, index: int = 0, group=None):
        super().__init__()
        self.shape, self.tp, self.index, self.group = shape, tp, index, group
        h = shape.hidden
        self.blocks = nn.ModuleList([Block(shape, n, tp, index, group) for n in numbers])
        self.embedding = self.places = self.head = None
        if numbers.start == 0:
            self.embedding = nn.Parameter(drawn("embedding", shape.vocab, h))
            self.places = nn.Parameter(drawn("places", shape.positions, h))
        if numbers.stop == shape.layers:
            self.norm = nn.LayerNorm(h)
            self.head = nn.Parameter(drawn("head", shape.vocab, h).chunk(tp, 0)[index].contiguous())

    def forward(self, x, labels=None):
        """Activations, or the loss where the output layer is here."""
        if self.embedding is not None:
            x = F.embedding(x, self.embedding) + self.places[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.loss(self.norm(x), labels)

    def loss(self, x, labels):
        if self.tp == 1:
            return F.cross_entropy(F.linear(x, self.head).flatten(0, 1), labels.flatten())
        logits = F.linear(Copied.apply(x, self.group), self.head).flatten(0, 1)
        most = logits.detach().amax(1)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.group)
        own = logits - most[:, None]
        total = Summed.apply(own.exp().sum(1), self.group)
        place = labels.flatten() - self.index * len(self.head)
        here = (place >= 0) & (place < len(self.head))
        wanted = torch.where(here, own.gather(1, place.clamp(0, len(self.head) - 1)[:, None])[:, 0], 0.0)
        return (total.log() - Summed.apply(wanted, self.group)).mean()


def data(shape, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences and labels of one step, the same in each process."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(shape.vocab, (rows, shape.sequence + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]
