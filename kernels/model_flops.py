"""Operations per trained token of a decoder, as four programs count them, and the utilisation that follows.

The same run has another MFU under each: Llama-3-8B differs by 1.13 at 8k tokens and by 1.7 at 128k. All count forward
and backward (3 times forward) and no recompute.
"""

from commbench.shapes import Shape
from commbench.shapes.counts import active_parameters, embedding_parameters, parameters


def megatron(shape: Shape, seqlen: int) -> float:
    """Causal attention halved, the output layer counted, embeddings and norms not (Megatron-LM
    megatron/training/training.py, num_floating_point_operations; dense layers)."""
    h, d = shape.hidden, shape.heads * shape.head_dim
    attention = 4 * h * d * (1 + shape.kv_heads / shape.heads) + 2 * seqlen * d
    ffn = 4 * h * shape.ffn_hidden * (1.5 if shape.gated else 1)
    return 3 * (shape.layers * (attention + ffn) + 2 * h * shape.vocab)


def torchtitan(shape: Shape, seqlen: int) -> float:
    """Attention not halved, parameters without the embedding (torchtitan/models/utils.py; with experts, those that a
    token takes)."""
    counted = active_parameters(shape) - embedding_parameters(shape)
    return 6 * counted + 12 * shape.layers * shape.heads * shape.head_dim * seqlen


def picotron(shape: Shape, seqlen: int) -> float:
    """Attention not halved, all parameters, the embedding too (picotron/utils.py, get_mfu)."""
    return 6 * parameters(shape) + 12 * shape.layers * shape.hidden * seqlen


def palm(counted_parameters: float, layers: int, heads: int, head_dim: int, seqlen: int) -> float:
    """6N + 12 L H Q T: attention not halved, all parameters as published (Chowdhery et al., arXiv 2204.02311,
    appendix B, which defines MFU)."""
    return 6 * counted_parameters + 12 * layers * heads * head_dim * seqlen


def rate_tflops(flops_per_token: float, tokens_per_s: float, devices: int) -> float:
    """TFLOP/s of each device."""
    return flops_per_token * tokens_per_s / devices / 1e12
