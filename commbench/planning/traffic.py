"""Memory traffic of what is bound by memory and not by arithmetic: norms, residuals, activations, softmax, routing.

Own count: each operation reads what it needs and writes its result once; nothing is fused but what is named here.
Matrix products are not counted. The figures below have 2 bytes an element.
"""

from commbench.planning.activations import Cut
from commbench.shapes import Shape


def layer_traffic_bytes(shape: Shape, cut: Cut, with_experts: bool = False) -> tuple[float, float]:
    """(forward, backward) bytes of one layer, of one micro-batch on one rank; backward with what is recomputed."""
    h, tokens = shape.hidden, cut.tokens
    norms, mask = (1 if shape.parallel_block else 2), int(cut.dropout)
    split = tokens / cut.unsplit
    # Norm: reads x, writes y; backward reads x and dy, writes dx. Residual: reads two, writes one, with dropout a mask
    # of one byte; backward the same.
    forward = norms * 4 * h * split + 2 * (6 + mask) * h * split
    backward = norms * 6 * h * split + 2 * (6 + 5 * mask) * h * split
    rotary = 4 * (shape.heads + shape.kv_heads) * shape.head_dim * tokens / cut.tp
    if not shape.positions:
        forward, backward = forward + rotary, backward + rotary
    if not cut.flash:
        square = shape.heads * tokens * cut.sequence / cut.tp
        # Scores written, softmax read and written, values' product reads; dropout reads, writes, and writes its mask.
        forward += (8 + 5 * mask) * square
        backward += (12 + 5 * mask) * square
    if not with_experts:
        inner = shape.ffn_hidden
    else:
        moe = shape.moe
        inner = (moe.top_k + moe.shared_experts) * moe.expert_hidden
        moved = 2 * 4 * moe.top_k * h * tokens / cut.tp  # permuted and put back: read and written each time
        forward, backward = forward + moved, backward + moved
    gate_in, gate_out = (6, 10) if shape.gated else (4, 6)
    forward, backward = forward + gate_in * inner * tokens / cut.tp, backward + gate_out * inner * tokens / cut.tp
    if cut.recompute == "full":
        backward += forward
    elif cut.recompute == "light":
        backward += norms * 4 * h * split + gate_in * inner * tokens / cut.tp
    elif cut.recompute == "selective" and not cut.flash:
        backward += (8 + 5 * mask) * shape.heads * tokens * cut.sequence / cut.tp
    wide = cut.element_bytes / 2
    return wide * forward, wide * backward


def optimizer_traffic_bytes(parameters: float) -> float:
    """Bytes that Adam moves for its parameters: reads master, two moments and gradient, writes the three and a weight.

    4 x 4 read and 3 x 4 + 2 written: 30 bytes a parameter.
    """
    return 30 * parameters
