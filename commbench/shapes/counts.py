"""Parameters of a shape, counted matrix by matrix."""

from commbench.shapes import Shape


def attention_parameters(shape: Shape) -> int:
    """Weights and biases of one layer's attention, its inner norms with MLA included."""
    h, heads = shape.hidden, shape.heads
    if shape.mla:
        m = shape.mla
        query_out = heads * (m.nope_dim + m.rope_dim)
        query = h * m.q_lora + m.q_lora + m.q_lora * query_out if m.q_lora else h * query_out
        latent = h * (m.kv_lora + m.rope_dim) + m.kv_lora
        return query + latent + m.kv_lora * heads * (m.nope_dim + m.v_dim) + heads * m.v_dim * h
    q, kv = heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    bias = {"none": 0, "qkv": q + kv, "all": q + kv + h}[shape.biases]
    return h * (q + kv) + q * h + bias


def ffn_parameters(shape: Shape, inner: int) -> int:
    """Weights and biases of one FFN, or one expert, with `inner` hidden units."""
    bias = inner + shape.hidden if shape.biases == "all" else 0
    return (3 if shape.gated else 2) * shape.hidden * inner + bias


def dense_layers(shape: Shape) -> int:
    """Layers with a plain FFN."""
    return shape.moe.dense_layers if shape.moe else shape.layers


def layer_parameters(shape: Shape, with_experts: bool, experts: int | None = None) -> int:
    """One layer. `with_experts`: a layer that has them (and a router); `experts`: only so many of them."""
    norms = (1 if shape.parallel_block else 2) * shape.norm_vectors * shape.hidden
    if not with_experts:
        return attention_parameters(shape) + norms + ffn_parameters(shape, shape.ffn_hidden)
    moe = shape.moe
    taken = (moe.experts if experts is None else experts) + moe.shared_experts
    router = shape.hidden * moe.experts
    return attention_parameters(shape) + norms + router + taken * ffn_parameters(shape, moe.expert_hidden)


def embedding_parameters(shape: Shape) -> int:
    """Input embedding and learned positions."""
    return (shape.vocab + shape.positions) * shape.hidden


def head_parameters(shape: Shape) -> int:
    """The last norm, and the output layer unless it is the embedding."""
    return shape.norm_vectors * shape.hidden + (0 if shape.tied else shape.vocab * shape.hidden)


def parameters(shape: Shape) -> int:
    """All parameters. Prediction heads for further tokens (DeepSeek-V3's MTP module) are not counted."""
    return _all(shape, None)


def active_parameters(shape: Shape) -> int:
    """Parameters that one token passes: with experts, those it takes and the shared ones."""
    return _all(shape, shape.moe.top_k if shape.moe else None)


def _all(shape: Shape, experts: int | None) -> int:
    dense = dense_layers(shape)
    layers = dense * layer_parameters(shape, False)
    if shape.moe:
        layers += (shape.layers - dense) * layer_parameters(shape, True, experts)
    return layers + embedding_parameters(shape) + head_parameters(shape)


def in_words(count: float) -> str:
    """A count of parameters as people write it: 405.9e9, and 16.8e6 for one below 10^8."""
    return f"{count / 1e9:.1f}e9" if count >= 1e8 else f"{count / 1e6:.3g}e6"
