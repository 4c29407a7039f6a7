"""Activations that a layer keeps for its backward pass: measured, by its own formula, and by the published one."""

import torch

from commbench.layers.layer import Place
from commbench.layers.numbers import itemsize, scaled


def kept_bytes(forward, but_for) -> int:
    """Bytes of memory that autograd holds on to after `forward`, each piece once; without the tensors `but_for`."""
    kept = {}

    def note(tensor):
        memory = tensor.untyped_storage()
        kept[memory.data_ptr()] = tensor, memory.nbytes()  # the tensor is held, so that its memory is not used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        forward()
    return sum(size for _, size in kept.values()) - sum(
        kept[t.untyped_storage().data_ptr()][1] for t in but_for if t.untyped_storage().data_ptr() in kept
    )


def kept_by_formula(params, place: Place) -> int:
    """What a rank's layer of tensor_parallel.py keeps, by count, on a CPU.

    A norm: its input, mean and spread (RMSNorm: the input in fp32, as torch computes it there, and its spread).
    A pair: its input; queries, keys, values; what attention gives, with the log of each sum in fp32, or with `scores`
    what softmax gives; what enters the activation and what it gives, with SwiGLU also the gate's own.
    Recomputed: only what goes in.
    """
    shape, e, t = scaled(params["model"], params["scale"]), itemsize(params), place.ranks
    batch, tokens = params["batch"], params["tokens"]
    rows, heads, d = batch * tokens, shape.heads // t, shape.head_dim
    own_rows = rows // (t if params["sequence_parallel"] else 1)
    if params["recompute"].startswith("full"):
        return own_rows * shape.hidden * e
    norm = own_rows * ((shape.hidden + 2) * e if shape.norm_vectors == 2 else shape.hidden * 4 + 4)
    entering = norm + own_rows * shape.hidden * e
    total = 0
    if params["part"] != "mlp":
        total += entering + rows * 2 * (heads + shape.kv_heads // t) * d * e
        if params["recompute"] == "none":
            total += batch * heads * tokens * (tokens * e if params["scores"] else 4)
    if params["part"] != "attention":
        total += entering + rows * (4 if shape.gated else 2) * (shape.ffn_hidden // t) * e
    return total


def kept_as_published(params, place: Place) -> float | None:
    """arXiv 2205.05198, table 2, for 2 bytes an element: sbh (10 + 24/t + 5as/(ht)), with sequence parallelism all
    of it over t, selective without the square term, full 2 sbh.

    It counts a GPT layer with dropout, so 2 sbh of masks and 3 as^2b of the softmax's dropout are more than the layer
    here keeps. None for another kind of layer. The square term is left out where no scores are kept.
    """
    shape, t = scaled(params["model"], params["scale"]), place.ranks
    like_gpt = shape.ffn_hidden == 4 * shape.hidden and shape.heads == shape.kv_heads and not shape.gated
    if not like_gpt or params["part"] != "layer" or itemsize(params) != 2:
        return None
    sbh, unsplit = params["tokens"] * params["batch"] * shape.hidden, t if params["sequence_parallel"] else 1
    if params["recompute"].startswith("full"):
        return 2 * sbh / unsplit
    square = params["scores"] and params["recompute"] == "none"
    return sbh * (10 / unsplit + 24 / t + (5 * shape.heads * params["tokens"] / (shape.hidden * t) if square else 0))
