"""Tensor parallelism: Megatron's pairs of a column-parallel and a row-parallel matrix.

Megatron-LM, arXiv 1909.08053, section 3, and its sequence-parallel form, arXiv 2205.05198, section 4.2. The weights of
a layer lie in pairs: the first is cut by columns, so every rank holds some heads or some of the FFN, the second by
rows, so the ranks' results are summed. A pair costs an all_reduce forward and one backward. In the sequence-parallel
form an all_gather and a reduce_scatter stand in place of each, and the input, of which only a part is kept, is gathered
once more for the gradient of the weights.

With recomputation, selective (the attention core) or full, the row also holds the time without it, the bytes that are
kept for the backward pass, and the share of FLOPs that are done twice: full recomputation of a layer is a third.
arXiv 2205.05198 gives 2.7 % for the selective one of GPT-3, s/6h; its equation 8 counts the core three times, and what
is done once more is s/18h, 0.9 %. FLOPs are no bound on time: the core is bound by memory where scores are kept.

Norms have no weights here and there are no position embeddings: neither is cut by tensor parallelism.
"""

from contextlib import nullcontext

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from commbench.layers.kept import kept_as_published, kept_by_formula, kept_bytes
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, draw, itemsize, scaled
from commbench.layers.tensor_parallel_block import Weights, parallel, reference, shard, whole_weights

RECOMPUTE = ("none", "selective", "full", "full_early_stop")
PARTS = ("layer", "mlp", "attention")
OPTIONS = {
    "model": "llama3-8b", "scale": 8, "batch": 1, "tokens": 256, "part": "layer", "sequence_parallel": False,
    "recompute": "none", "scores": False, "seed": 1,
}  # fmt: skip


def problem(params, ranks):
    shape = scaled(params["model"], params["scale"])
    for what in ("batch", "tokens"):
        if params[what] < 1:
            return f"{what} is 0; it must be 1 or more"
    if params["scores"] and shape.heads != shape.kv_heads:
        return f"scores are kept for models of one key head a query head, such as gpt3-175b; {shape.name} has fewer"
    for what, size in (("heads", shape.heads), ("kv_heads", shape.kv_heads), ("ffn_hidden", shape.ffn_hidden)):
        if size % ranks:
            return f"degree {ranks} does not divide {what} {size} of {shape.name} at scale {params['scale']}"
    if params["sequence_parallel"] and params["tokens"] % ranks:
        return f"degree {ranks} does not divide the sequence of {params['tokens']} tokens"
    return None


def _pairs(params) -> int:
    return 2 if params["part"] == "layer" else 1


def traffic(params, place: Place) -> dict:
    """Calls and bytes of one step (arXiv 1909.08053, figure 4; arXiv 2205.05198, figure 5).

    Full recomputation runs the forward calls once more; torch stops early, before the last one, unless told not to.
    """
    if place.ranks == 1:
        return {}
    pairs, again = _pairs(params), params["recompute"].startswith("full")
    size = params["tokens"] * params["batch"] * scaled(params["model"], params["scale"]).hidden * itemsize(params)
    less = params["recompute"] == "full_early_stop"
    if params["sequence_parallel"]:
        gathers, scatters = pairs * (3 + again), pairs * (2 + again) - less
        return {"all_gather": (gathers, gathers * size), "reduce_scatter": (scatters, scatters * size)}
    reduces = pairs * (2 + again) - less
    return {"all_reduce": (reduces, reduces * size)}


def flops(params, place: Place) -> float:
    """Of one step on one rank, what is recomputed included.

    Attention's causal half is counted exactly; with `scores` the whole square is computed, and counted. torch's early
    stop leaves out the last product of a full recomputation, whose result nobody needs.
    """
    shape, rows = scaled(params["model"], params["scale"]), params["tokens"] * params["batch"]
    heads = shape.heads // place.ranks
    mlp = 2 * rows * shape.hidden * (3 if shape.gated else 2) * shape.ffn_hidden // place.ranks
    projections = 2 * rows * shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads) // place.ranks
    scores = params["tokens"] ** 2 if params["scores"] else params["tokens"] * (params["tokens"] + 1) // 2
    core = 4 * params["batch"] * heads * shape.head_dim * scores
    attention = 0 if params["part"] == "mlp" else projections + core
    forward = attention + (0 if params["part"] == "attention" else mlp)
    inner = shape.heads * shape.head_dim if params["part"] == "attention" else shape.ffn_hidden
    again = {
        "none": 0,
        "selective": core if attention else 0,
        "full": forward,
        "full_early_stop": forward - 2 * rows * shape.hidden * inner // place.ranks,
    }
    return float(3 * forward + again[params["recompute"]])


def memory_bytes(params, place: Place) -> int:
    """Weights and their gradients of a rank, and the whole layer once more in fp32 for the reference."""
    shape, size = scaled(params["model"], params["scale"]), itemsize(params)
    rows = params["tokens"] * params["batch"]
    weights = shape.hidden * (
        (3 if shape.gated else 2) * shape.ffn_hidden + 2 * shape.head_dim * (shape.heads + shape.kv_heads)
    )
    kept = rows * (10 * shape.hidden + 4 * shape.ffn_hidden + 3 * shape.heads * params["tokens"] * params["scores"])
    return int(2 * size * (weights // place.ranks) + 8 * weights + (size + 8) * kept)


def build(wires, params, place: Place, device: str) -> Built:
    wire, shape, dtype = wires[""], scaled(params["model"], params["scale"]), params["dtype"]
    size = params["tokens"], params["batch"], shape.hidden
    whole_x, whole_dy = (draw(params["seed"], what, *size, dtype=dtype, device=device) for what in (5, 6))

    def rows(tensor):
        return tensor.chunk(place.ranks)[place.rank].clone() if params["sequence_parallel"] else tensor

    own = shard(whole_weights(params, shape, device), shape, place)
    x, dy = rows(whole_x).requires_grad_(), rows(whole_dy)
    used = [w.requires_grad_() for w, part in zip(own.all(), ("attention", "attention", "mlp", "mlp"))
            if params["part"] in ("layer", part)]  # fmt: skip
    held = {}

    def forward(params=params):
        if params["recompute"].startswith("full"):
            return checkpoint(parallel, x, own, wire, params, shape, use_reentrant=False)
        return parallel(x, own, wire, params, shape)

    def step(params=params):
        early = params["recompute"] == "full_early_stop"
        with set_checkpoint_early_stop(early) if params["recompute"].startswith("full") else nullcontext():
            y = forward(params)
            held["y"], held["gradients"] = y, torch.autograd.grad(y, [x, *used], dy)

    def without_recompute():
        step(params | {"recompute": "none"})

    def facts():
        published = kept_as_published(params, place)
        return {
            "kept_bytes": kept_bytes(forward, used),
            "kept_formula_bytes": kept_by_formula(params, place),
            "extra_flops_share": flops(params, place) / flops(params | {"recompute": "none"}, place) - 1,
        } | ({} if published is None else {"kept_published_bytes": published})

    def check():
        step()
        whole = Weights(*(w.float().requires_grad_() for w in whole_weights(params, shape, device).all()))
        ref_x = whole_x.detach().float().requires_grad_()
        ref_y = reference(ref_x, whole, params, shape)
        gradients = torch.autograd.grad(ref_y, [ref_x, *whole.all()], whole_dy.float(), allow_unused=True)
        of_weights = [g for g in shard(Weights(*_zeros_for(gradients[1:], whole)), shape, place).all()]
        wanted = [g for g, given in zip(of_weights, gradients[1:]) if given is not None]
        return compare(zip([held["y"], *held["gradients"]], [rows(ref_y), rows(gradients[0]), *wanted]), dtype)

    parts = {} if params["recompute"] == "none" else {"without_recompute": without_recompute}
    return Built(step, check, parts, facts)


def _zeros_for(gradients, whole: Weights):
    """Gradients with zeros for the matrices that are not part of the layer."""
    return [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, whole.all())]


LAYER = Layer(
    name="tensor_parallel",
    options=OPTIONS,
    problem=problem,
    traffic=traffic,
    flops=flops,
    memory_bytes=memory_bytes,
    build=build,
    words={"recompute": RECOMPUTE, "part": PARTS},
)
