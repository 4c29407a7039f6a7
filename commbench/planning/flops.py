"""Arithmetic of a transformer in closed form: FLOPs a token, model and hardware, and utilisation.

Two conventions are in use, and both are given: "full" counts the whole score matrix (PaLM, arXiv 2204.02311, appendix
B; arXiv 2205.05198, appendix A), "causal" the half that a causal mask leaves (NVIDIA/Megatron-LM,
num_floating_point_operations). At 8k tokens they differ by some percent, at 128k by up to a factor of 1.7.
"""

from commbench.errors import UsageError
from commbench.planning.layout import Layout
from commbench.shapes import Shape
from commbench.shapes.counts import attention_parameters, dense_layers, ffn_parameters

CONVENTIONS = ("causal", "full")


def matmul_flops(shape: Shape, with_experts: bool) -> float:
    """Forward FLOPs a token of one layer's weight matrices: two for each weight that the token passes."""
    if not with_experts:
        return 2 * (attention_parameters(shape) + ffn_parameters(shape, shape.ffn_hidden))
    moe = shape.moe
    taken = (moe.top_k + moe.shared_experts) * ffn_parameters(shape, moe.expert_hidden)
    return 2 * (attention_parameters(shape) + shape.hidden * moe.experts + taken)


def attention_flops(shape: Shape, sequence: int, convention: str = "full") -> float:
    """Forward FLOPs a token of one layer's scores and their product with the values: 2 s (d_qk + d_v) a head."""
    if convention not in CONVENTIONS:
        raise UsageError(f"convention {convention!r} is not known; there are {', '.join(CONVENTIONS)}")
    if shape.mla:
        dims = shape.mla.nope_dim + shape.mla.rope_dim + shape.mla.v_dim
    else:
        dims = 2 * shape.head_dim
    return 2 * sequence * shape.heads * dims * (0.5 if convention == "causal" else 1)


def up_projection_flops(shape: Shape) -> float:
    """Forward FLOPs a token of one layer's products from latents to heads (MLA), which "light" repeats."""
    m = shape.mla
    query = m.q_lora * shape.heads * (m.nope_dim + m.rope_dim)
    return 2 * (query + m.kv_lora * shape.heads * (m.nope_dim + m.v_dim))


def head_flops(shape: Shape) -> float:
    """Forward FLOPs a token of the output layer."""
    return 2 * shape.hidden * shape.vocab


def model_flops_per_token(shape: Shape, sequence: int, convention: str = "full") -> float:
    """FLOPs a token, forward and backward (three times forward), that any implementation must do."""
    dense = dense_layers(shape)
    forward = dense * matmul_flops(shape, False) + head_flops(shape)
    if shape.moe:
        forward += (shape.layers - dense) * matmul_flops(shape, True)
    return 3 * (forward + shape.layers * attention_flops(shape, sequence, convention))


def hardware_flops_per_token(shape: Shape, sequence: int, layout: Layout, convention: str = "full") -> float:
    """FLOPs a token that are executed with the layout's recomputation.

    "full" adds a forward pass of the layers, "light" with MLA its up-projections, "selective" one of the attention core
    (arXiv 2205.05198, appendix A, in words; its equation 8 adds three). A flash kernel's backward adds one more product
    of scores: half of its forward.
    """
    core = shape.layers * attention_flops(shape, sequence, convention)
    model = model_flops_per_token(shape, sequence, convention)
    if layout.recompute == "full":
        model += model / 3 - head_flops(shape)
    elif layout.recompute == "selective" and not layout.flash:
        model += core
    elif layout.recompute == "light" and shape.mla:
        model += shape.layers * up_projection_flops(shape)
    return model + (core / 2 if layout.flash else 0)


def utilisation(flops_per_token: float, tokens_per_s_per_gpu: float, peak_TFLOPs: float) -> float:
    """MFU of model FLOPs, HFU of hardware FLOPs, as a share of 1."""
    return flops_per_token * tokens_per_s_per_gpu / (peak_TFLOPs * 1e12)
