"""A transformer layer as tensor_parallel.py cuts it: its pairs of matrices, and the same layer uncut on one rank."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from commbench.layers.layer import Place
from commbench.layers.numbers import weight


class _Enter(torch.autograd.Function):
    """Into a pair: x times a column-parallel matrix. The gradient of x is summed while that of the matrix is taken."""

    @staticmethod
    def forward(ctx, x, matrix, wire, sequence_parallel):
        ctx.wire, ctx.sequence_parallel = wire, sequence_parallel
        ctx.save_for_backward(x, matrix)
        return _gathered(x, wire).matmul(matrix.T) if sequence_parallel else x.matmul(matrix.T)

    @staticmethod
    def backward(ctx, dy):
        (x, matrix), wire = ctx.saved_tensors, ctx.wire
        if not ctx.sequence_parallel:
            dx = dy.matmul(matrix)
            summing = wire.all_reduce(dx)
            d_matrix = _weight_gradient(dy, x)
            summing.wait()
            return dx, d_matrix, None, None
        whole = x.new_empty(x.shape[0] * wire.size, *x.shape[1:])
        gathering = wire.all_gather(whole, x)
        dx_whole, dx = dy.matmul(matrix), torch.empty_like(x)
        gathering.wait()
        scattering = wire.reduce_scatter(dx, dx_whole)
        d_matrix = _weight_gradient(dy, whole)
        scattering.wait()
        return dx, d_matrix, None, None


class _Leave(torch.autograd.Function):
    """Out of a pair: the sum of the ranks' results; with sequence parallelism this rank's rows of it."""

    @staticmethod
    def forward(ctx, y, wire, sequence_parallel):
        ctx.wire, ctx.sequence_parallel = wire, sequence_parallel
        if sequence_parallel:
            mine = y.new_empty(y.shape[0] // wire.size, *y.shape[1:])
            wire.reduce_scatter(mine, y.contiguous()).wait()
            return mine
        total = y.clone()
        wire.all_reduce(total).wait()
        return total

    @staticmethod
    def backward(ctx, dy):
        return (_gathered(dy.contiguous(), ctx.wire) if ctx.sequence_parallel else dy), None, None


def _gathered(x, wire):
    whole = x.new_empty(x.shape[0] * wire.size, *x.shape[1:])
    wire.all_gather(whole, x.contiguous()).wait()
    return whole


def _weight_gradient(dy, x):
    return dy.reshape(-1, dy.shape[-1]).T.matmul(x.reshape(-1, x.shape[-1]))


@dataclass(frozen=True)
class Weights:
    """The matrices of a layer. qkv: (query heads + 2 kv heads) * head size x hidden; out: hidden x query heads * head
    size; up (gate and up where the FFN is gated): rows x hidden; down: hidden x ffn."""

    qkv: torch.Tensor
    out: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    def all(self):
        return [self.qkv, self.out, self.up, self.down]


def whole_weights(params, shape, device) -> Weights:
    seed, dtype, h, d = params["seed"], params["dtype"], shape.hidden, shape.head_dim
    return Weights(
        qkv=weight(seed, 1, (shape.heads + 2 * shape.kv_heads) * d, h, dtype, device),
        out=weight(seed, 2, h, shape.heads * d, dtype, device),
        up=weight(seed, 3, (2 if shape.gated else 1) * shape.ffn_hidden, h, dtype, device),
        down=weight(seed, 4, h, shape.ffn_hidden, dtype, device),
    )


def shard(whole: Weights, shape, place: Place) -> Weights:
    """This rank's heads of q, k and v, its part of gate and of up, and the columns of the second matrices for them."""
    rank, n, d = place.rank, place.ranks, shape.head_dim
    q, k, v = whole.qkv.split([shape.heads * d, shape.kv_heads * d, shape.kv_heads * d])
    qkv = torch.cat([part.chunk(n)[rank] for part in (q, k, v)])
    up = torch.cat([part.chunk(n)[rank] for part in whole.up.chunk(2 if shape.gated else 1)])
    out, down = (matrix.chunk(n, dim=1)[rank].contiguous() for matrix in (whole.out, whole.down))
    return Weights(qkv, out, up, down)


def _core(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def _core_with_scores(q, k, v):
    """The same with the whole score matrix in memory, as arXiv 2205.05198 counts it: softmax's result is kept."""
    heads, tokens, d = q.shape[1:]
    q, k, v = (t.reshape(-1, tokens, d) for t in (q, k, v))
    mask = torch.full((tokens, tokens), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
    shares = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=d**-0.5).softmax(-1)
    return torch.bmm(shares, v).view(-1, heads, tokens, d)


def _attend(qkv, heads: int, kv_heads: int, d: int, core):
    """(tokens, batch, heads * d) from the projections, which lie as (tokens, batch, all heads * d)."""
    tokens, batch = qkv.shape[:2]
    q, k, v = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=-1)
    q, k, v = (t.view(tokens, batch, -1, d).permute(1, 2, 0, 3) for t in (q, k, v))
    return core(q, k, v).permute(2, 0, 1, 3).reshape(tokens, batch, heads * d)


def _activate(up, gated: bool):
    if not gated:
        return F.gelu(up)
    gate, up = up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _norm(x, shape):
    """Without weights. A model whose norms have a bias beside their weight has LayerNorm, the others RMSNorm."""
    return (F.layer_norm if shape.norm_vectors == 2 else F.rms_norm)(x, (x.shape[-1],))


def parallel(x, own: Weights, wire, params, shape):
    """The layer on one rank of the group."""
    n, sp = wire.size, params["sequence_parallel"]

    inner = _core_with_scores if params["scores"] else _core

    def core(q, k, v):
        return checkpoint(inner, q, k, v, use_reentrant=False) if params["recompute"] == "selective" else inner(q, k, v)

    if params["part"] != "mlp":
        qkv = _Enter.apply(_norm(x, shape), own.qkv, wire, sp)
        mixed = _attend(qkv, shape.heads // n, shape.kv_heads // n, shape.head_dim, core)
        x = x + _Leave.apply(F.linear(mixed, own.out), wire, sp)
    if params["part"] != "attention":
        activated = _activate(_Enter.apply(_norm(x, shape), own.up, wire, sp), shape.gated)
        x = x + _Leave.apply(F.linear(activated, own.down), wire, sp)
    return x


def reference(x, whole: Weights, params, shape):
    """The same layer on one rank, without a cut."""
    if params["part"] != "mlp":
        x = x + F.linear(
            _attend(F.linear(_norm(x, shape), whole.qkv), shape.heads, shape.kv_heads, shape.head_dim, _core), whole.out
        )
    if params["part"] != "attention":
        x = x + F.linear(_activate(F.linear(_norm(x, shape), whole.up), shape.gated), whole.down)
    return x
