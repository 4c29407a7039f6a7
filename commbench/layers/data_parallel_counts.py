"""What data_parallel.py takes, sends, computes and holds, by formula."""

from commbench.layers import tensor_parallel as block
from commbench.layers.buckets import cut_into_buckets
from commbench.layers.layer import Place
from commbench.layers.numbers import itemsize, scaled

OPTIONS = {
    "model": "llama3-8b", "scale": 16, "layers": 2, "batch": 1, "tokens": 128, "micro_batches": 1, "zero": 0,
    "shard": 0, "tensor_parallel": 1, "bucket": 2**20, "prefetch": 1, "fp32_gradients": False, "executor": "own",
    "seed": 1,
}  # fmt: skip


def parallel_ranks(params, ranks) -> int:
    return ranks // params["tensor_parallel"]


def shard_ranks(params, ranks) -> int:
    """Ranks that share one model state."""
    return 1 if not params["zero"] else params["shard"] or parallel_ranks(params, ranks)


def problem(params, ranks):
    t = params["tensor_parallel"]
    if not t or ranks % t:
        return f"tensor_parallel {t} does not divide the {ranks} ranks"
    inner = block.problem(block_params(params), t)
    if inner:
        return inner
    if params["zero"] > 3:
        return f"ZeRO has the stages 0 (nothing is cut) to 3, not {params['zero']}"
    if params["shard"] and not params["zero"]:
        return "zero 0 cuts nothing, so it has no shard; give zero 1, 2 or 3"
    if params["shard"] and parallel_ranks(params, ranks) % params["shard"]:
        return f"shard {params['shard']} does not divide the {parallel_ranks(params, ranks)} data-parallel ranks"
    if params["executor"] == "torch" and (params["zero"] != 3 or params["shard"] or t != 1):
        return "executor torch is fully_shard, zero 3 over all ranks; give zero=3, no shard, no tensor_parallel"
    for key in ("layers", "batch", "tokens", "micro_batches", "bucket"):
        if not params[key]:
            return f"{key} is 0; it must be 1 or more"
    return None


def backends(params) -> tuple[str, ...]:
    """fully_shard wants a group of torch's."""
    return ("gloo", "nccl") if params["executor"] == "torch" else ("gloo", "nccl", "mpi")


def grids(params, ranks) -> dict:
    """Ranks of a tensor-parallel group lie side by side, then those of a shard, then the replicas."""
    t, s = params["tensor_parallel"], shard_ranks(params, ranks)
    replicas = ranks // (t * s)
    return {
        "tensor": [list(range(first, first + t)) for first in range(0, ranks, t)],
        "shard": [[(r * s + i) * t + k for i in range(s)] for r in range(replicas) for k in range(t)],
        "replica": [[(r * s + i) * t + k for r in range(replicas)] for i in range(s) for k in range(t)],
    }


def block_params(params) -> dict:
    return params | {"part": "layer", "sequence_parallel": False, "recompute": "none", "scores": False}


def matrix_shapes(params) -> list[tuple[int, int]]:
    """Of the matrices of one block on one tensor-parallel rank: qkv, out, up, down."""
    shape, t = scaled(params["model"], params["scale"]), params["tensor_parallel"]
    h, d = shape.hidden, shape.head_dim
    up = (2 if shape.gated else 1) * shape.ffn_hidden
    return [((shape.heads + 2 * shape.kv_heads) * d // t, h), (h, shape.heads * d // t), (up // t, h),
            (h, shape.ffn_hidden // t)]  # fmt: skip


def parameters(params) -> int:
    """Of one tensor-parallel rank, all blocks."""
    return params["layers"] * sum(rows * columns for rows, columns in matrix_shapes(params))


def buckets(params, ranks):
    sizes = [rows * columns for rows, columns in matrix_shapes(params)] * params["layers"]
    return cut_into_buckets(sizes, params["bucket"], shard_ranks(params, ranks))


def _padded_blocks(params, parts: int) -> list[int]:
    """Elements of a block as fully_shard sends it: every matrix cut by rows, filled up to equal parts."""
    return [sum(-(-rows // parts) * parts * columns for rows, columns in matrix_shapes(params))] * params["layers"]


def traffic(params, place: Place) -> dict:
    """Calls and bytes of one step. arXiv 1910.02054, section 7: with P the bytes of all parameters, stages 0 to 2 send
    as much as an all_reduce of P, stage 3 half as much again. With more micro-batches stage 2 repeats its
    reduce_scatter, since gradients are cut as they come, and stage 3 everything. HSDP adds an all_reduce of a rank's
    own part."""
    zero, micro, s = params["zero"], params["micro_batches"], shard_ranks(params, place.ranks)
    cut = (
        _padded_blocks(params, s)
        if params["executor"] == "torch"
        else [bucket.elements for bucket in buckets(params, place.ranks)]
    )
    elements, size = sum(cut), itemsize(params)
    gradient_bytes = elements * (4 if params["fp32_gradients"] else size)
    inner = block.traffic(block_params(params), Place(0, params["tensor_parallel"]))
    found = {
        f"tensor.{op}": (n * params["layers"] * micro, b * params["layers"] * micro) for op, (n, b) in inner.items()
    }
    if s > 1:
        scatters = micro if zero >= 2 else 1
        gathers = 2 * micro if zero == 3 else 1
        found["shard.reduce_scatter"] = (len(cut) * scatters, gradient_bytes * scatters)
        found["shard.all_gather"] = (len(cut) * gathers, elements * size * gathers)
    if parallel_ranks(params, place.ranks) > s:
        found["replica.all_reduce"] = (len(cut), gradient_bytes // s)
    return found


def flops(params, place: Place) -> float:
    """Of the matrices and attention of one step on one rank; Adam's some 15 a parameter are not counted."""
    once = block.flops(block_params(params), Place(0, params["tensor_parallel"]))
    return once * params["layers"] * params["micro_batches"]


def state_bytes(params, ranks) -> float:
    """Model state of one rank. arXiv 1910.02054, figure 1, with 2 bytes a weight and a gradient and 12 of Adam: 16 P,
    4 P + 12 P/N, 2 P + 14 P/N, 16 P/N; with fp32 gradients 18 P, 6 P + 12 P/N, 2 P + 16 P/N, 18 P/N. In fp32 a weight
    is its own master: 4 P weights, 4 P gradients, and 8 P of Adam; so it is in torch's fully_shard always."""
    s, zero = shard_ranks(params, ranks), params["zero"]
    size = 4 if params["executor"] == "torch" else itemsize(params)
    optimizer = 8 if size == 4 else 12
    gradient = 4 if params["fp32_gradients"] else size
    return parameters(params) * (
        size / (s if zero == 3 else 1) + gradient / (s if zero >= 2 else 1) + optimizer / (s if zero else 1)
    )


def memory_bytes(params, place: Place) -> int:
    """The state, buckets on their way, what a micro-batch keeps, and the whole model in fp32 for the reference."""
    shape, whole = scaled(params["model"], params["scale"]), parameters(params) * params["tensor_parallel"]
    kept = params["tokens"] * params["batch"] * params["layers"] * (10 * shape.hidden + 4 * shape.ffn_hidden)
    sent = sum(size for _, size in traffic(params, place).values())
    return int(state_bytes(params, place.ranks) + 2 * sent + 12 * whole + (itemsize(params) + 8) * kept)
