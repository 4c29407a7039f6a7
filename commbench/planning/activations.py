"""Activations that a layer keeps for its backward pass: the GPT formula, and a count from the shape itself.

All sizes are bytes of one micro-batch on one rank. The formulas have 2 bytes an element, as their paper; the count
from the shape takes the element's own.
"""

from dataclasses import dataclass

from commbench.errors import UsageError
from commbench.shapes import Shape

RECOMPUTE = ("none", "light", "selective", "full")


@dataclass(frozen=True)
class Cut:
    """How a layer is cut and what it keeps. sequence, micro_batch: of the whole group; tp, cp: ranks it is split over.

    sp: norms and dropout split by tp too (sequence parallelism). flash: no score matrix is kept. fp8: what enters a
    matrix product is kept in one byte (arXiv 2412.19437, 3.3.3). recompute: "none"; "light" (norms, activation
    functions, with MLA its up-projections: arXiv 2412.19437, 3.2.3); "selective" (the attention core, arXiv
    2205.05198, 5); or "full" (all but the layer's input).
    """

    sequence: int
    micro_batch: int = 1
    tp: int = 1
    cp: int = 1
    sp: bool = False
    flash: bool = True
    recompute: str = "none"
    dropout: bool = False
    fp8: bool = False
    element_bytes: int = 2

    def __post_init__(self):
        if self.recompute not in RECOMPUTE:
            raise UsageError(f"recompute {self.recompute!r} is not known; there are {', '.join(RECOMPUTE)}")

    @property
    def tokens(self) -> float:
        """Tokens of a micro-batch on one context-parallel rank."""
        return self.sequence * self.micro_batch / self.cp

    @property
    def unsplit(self) -> int:
        """By what norms, residuals and dropout masks are divided."""
        return self.tp if self.sp else 1


def gpt_parts(sequence: int, micro_batch: int, hidden: int, heads: int) -> dict[str, float]:
    """Bytes of one GPT layer uncut: attention 11 sbh, MLP 19 sbh, norms 4 sbh, square term 5 a s^2 b.

    arXiv 2205.05198, 4.1, equation 1: sbh (34 + 5 a s / h).
    """
    sbh = sequence * micro_batch * hidden
    return {
        "attention": 11 * sbh,
        "mlp": 19 * sbh,
        "norms": 4 * sbh,
        "square": 5 * heads * sequence**2 * micro_batch,
    }


def gpt_layer_bytes(hidden: int, heads: int, cut: Cut) -> float:
    """Bytes of one GPT layer (four times wide, with dropout) as `cut` has it.

    arXiv 2205.05198, table 2: none sbh(34 + 5as/h); TP sbh(10 + 24/t + 5as/(ht)); TP + SP sbh/t (34 + 5as/h); selective
    drops the square term; full 2 sbh, of which SP keeps 1/t.
    """
    sbh, t = cut.tokens * hidden, cut.tp
    if cut.recompute == "full":
        return 2 * sbh / cut.unsplit
    square = 5 * heads * cut.tokens * cut.sequence / t
    if cut.flash or cut.recompute == "selective":
        square = 0.0
    return sbh * (10 / cut.unsplit + 24 / t) + square


def square_dominates_from(hidden: int, heads: int) -> float:
    """The sequence length at which 5 a s^2 b reaches 34 s b h: 34 h / (5 a)."""
    return 34 * hidden / (5 * heads)


def layer_parts(shape: Shape, cut: Cut, with_experts: bool = False) -> dict[str, float]:
    """Bytes of one layer of this very shape at 2 bytes an element, by part; grouped heads, gated FFNs, latent attention
    and experts are counted.

    Own count, in the way of arXiv 2205.05198, 4.1: each tensor that a matrix product, a norm, an activation or the
    attention kernel reads again in its backward pass, once. For a GPT shape with dropout it is gpt_layer_bytes.
    """
    if cut.recompute == "full":
        return {"input": 2 * cut.tokens * shape.hidden / cut.unsplit}
    h, tokens = shape.hidden, cut.tokens
    norms = 1 if shape.parallel_block else 2
    after_norm = 0 if cut.recompute == "light" else _linear_bytes(cut)
    parts = {
        "norms": norms * (2 + after_norm) * h * tokens / cut.unsplit,
        "attention": _attention(shape, cut) * tokens / cut.tp,
    }
    if cut.dropout:
        parts["dropout"] = 2 * h * tokens / cut.unsplit
    if not cut.flash and cut.recompute != "selective":
        # What softmax gave, with dropout also its mask and what the mask left.
        parts["square"] = (5 if cut.dropout else 2) * shape.heads * tokens * cut.sequence / cut.tp
    if not with_experts:
        parts["ffn"] = _ffn(shape, cut, shape.ffn_hidden) * tokens / cut.tp
        return parts
    moe = shape.moe
    # A token that goes to an expert is kept there as its input; what comes back is kept for the router's weights.
    returned = 0 if cut.recompute == "light" else 2 * h
    routed = moe.top_k * (_linear_bytes(cut) * h + _ffn(shape, cut, moe.expert_hidden) + returned) + 4 * moe.experts
    # Tokens lie apart over tp when experts take them: see placement.py.
    parts["experts"] = (routed + moe.shared_experts * _ffn(shape, cut, moe.expert_hidden)) * tokens / cut.tp
    return parts


def layer_bytes(shape: Shape, cut: Cut, with_experts: bool = False) -> float:
    """Sum of layer_parts, at the elements' own width (which masks and fp32 extras do not have: a small excess)."""
    return cut.element_bytes / 2 * sum(layer_parts(shape, cut, with_experts).values())


def _linear_bytes(cut: Cut) -> int:
    return 1 if cut.fp8 else 2


def _attention(shape: Shape, cut: Cut) -> float:
    """Bytes a token: queries, keys, values, output, and with a flash kernel the log-sum-exp in fp32."""
    log_sum = 4 * shape.heads if cut.flash else 0
    if not shape.mla:
        return (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim * 2 + log_sum
    m = shape.mla
    latents = 2 * (m.q_lora + m.kv_lora + m.rope_dim) * cut.tp  # before their norms; not split over tp
    output = 2 * shape.heads * m.v_dim
    if cut.recompute == "light":
        return latents + output + log_sum
    after_norm = _linear_bytes(cut) * (m.q_lora + m.kv_lora) * cut.tp
    return latents + after_norm + 2 * shape.heads * (2 * (m.nope_dim + m.rope_dim) + m.v_dim) + output + log_sum


def _ffn(shape: Shape, cut: Cut, inner: int) -> float:
    """Bytes a token: what enters the activation function (two tensors where it is gated) and what leaves it."""
    entering = 2 if shape.gated else 1
    return _linear_bytes(cut) * (entering + (0 if cut.recompute == "light" else 1)) * inner
