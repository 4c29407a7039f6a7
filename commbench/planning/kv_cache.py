"""The key-value cache of inference: bytes a token."""

from commbench.shapes import Shape


def kv_bytes_per_token(shape: Shape, element_bytes: float = 2) -> float:
    """Bytes that one token leaves in the cache over all layers.

    Multi-head and grouped: 2 L Hkv D e (keys and values). Latent: L (kv_lora + rope_dim) e, one vector for all heads
    (arXiv 2405.04434, 2.1.3).
    """
    if shape.mla:
        return shape.layers * (shape.mla.kv_lora + shape.mla.rope_dim) * element_bytes
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * element_bytes


def multi_head_bytes_per_token(shape: Shape, element_bytes: float = 2) -> float:
    """What the cache would take if each query head had keys and values of its own."""
    dim = (shape.mla.nope_dim + shape.mla.rope_dim + shape.mla.v_dim) if shape.mla else 2 * shape.head_dim
    return shape.layers * shape.heads * dim * element_bytes
