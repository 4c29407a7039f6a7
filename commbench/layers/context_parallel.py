"""Context parallelism: attention over a sequence that is cut over ranks, in three forms, forward and backward.

ring: keys and values travel (ring_attention.py). all_gather: they are gathered (Llama 3, all_gather_attention.py).
ulysses: the cut moves from the sequence to the heads and back (ulysses.py). With `balance` a rank holds two chunks of
the sequence, paired first and last, else one; a causal mask then gives ranks very unequal work (rank facts: pairs).

The layer is attention's core alone: projections work on rows, which context parallelism leaves where they are.
"""

import torch

from commbench.kernels import attention_tiled
from commbench.kernels.masks import Mask
from commbench.layers import all_gather_attention, ring_attention, ulysses
from commbench.layers.attention_pieces import rows_first
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, draw, itemsize, scaled
from commbench.layers.sequence_cut import chunk_orders, chunks, document_bounds, pieces

FORMS = ("ring", "all_gather", "ulysses")
OPTIONS = {
    "model": "llama3-8b", "scale": 8, "batch": 1, "tokens": 512, "form": "ring", "balance": True, "documents": 1,
    "seed": 1,
}  # fmt: skip


def _problem(params, ranks):
    shape, tokens = scaled(params["model"], params["scale"]), params["tokens"]
    if shape.mla:
        return f"{shape.name} has latent attention; context_parallel takes models whose heads have keys and values"
    for what in ("batch", "tokens", "documents"):
        if not params[what]:
            return f"{what} is 0; it must be 1 or more"
    if params["documents"] > tokens:
        return f"{params['documents']} documents do not fit into {tokens} tokens"
    cuts = 2 * ranks if params["balance"] else ranks
    if tokens % cuts:
        why = f": with balance each of {ranks} ranks holds two" if params["balance"] else ""
        return f"a sequence of {tokens} tokens cannot be cut into {cuts} equal chunks{why}"
    if params["form"] == "ulysses":
        for what, heads in (("heads", shape.heads), ("kv_heads", shape.kv_heads)):
            if heads % ranks:
                return (
                    f"ulysses gives each rank heads of its own, and degree {ranks} does not divide {what} {heads} of "
                    f"{shape.name} at scale {params['scale']}; ring and all_gather have no such bound"
                )
    return None


def traffic(params, place: Place) -> dict:
    """Calls and bytes of one step, with n = S / c rows on a rank.

    ring: c - 1 sends of 2 B n Hkv D e forward and again backward, and c of 2 B n Hkv D 4 (gradients in float32).
    all_gather: 2 B S Hkv D e gathered forward and backward, and as much scattered (ring-flash-attention,
    llama3_flash_attn_varlen.py). ulysses: four all-to-alls each way, B n D (2 H + 2 Hkv) e together (DeepSpeed-Ulysses,
    arXiv 2309.14509, 3.2).
    """
    c, size, shape = place.ranks, itemsize(params), scaled(params["model"], params["scale"])
    if c == 1:
        return {}
    row = params["batch"] * params["tokens"] // c * shape.head_dim
    block = 2 * row * shape.kv_heads
    if params["form"] == "ring":
        return {"send": (2 * (c - 1) + c, 2 * (c - 1) * block * size + c * block * 4)}
    if params["form"] == "all_gather":
        return {"all_gather": (2, 2 * c * block * size), "reduce_scatter": (1, c * block * size)}
    return {"all_to_all": (8, 2 * row * (2 * shape.heads + 2 * shape.kv_heads) * size)}


def plan(params, rank: int, ranks: int, balance: bool) -> list[list]:
    """The pieces of attention of `rank`: of the ring, for each step; of the other forms, one list."""
    bounds = document_bounds(params["tokens"], params["documents"], params["seed"])
    whole = [(0, params["tokens"])]
    if params["form"] == "ulysses":
        return [pieces(whole, whole, bounds)]
    own = chunks(rank, ranks, params["tokens"], balance)
    if params["form"] == "all_gather":
        return [pieces(own, whole, bounds)]
    blocks = [chunks((rank - s) % ranks, ranks, params["tokens"], balance) for s in range(ranks)]
    return [pieces(own, block, bounds) for block in blocks]


def attended_pairs(params, rank: int, ranks: int, balance: bool) -> int:
    """(query, key) pairs that `rank` attends to, over its heads and sequences: its load."""
    heads = scaled(params["model"], params["scale"]).heads // (ranks if params["form"] == "ulysses" else 1)
    pairs = sum(piece.pairs for step in plan(params, rank, ranks, balance) for piece in step)
    return params["batch"] * heads * pairs


def flops(params, place: Place) -> float:
    """Of one step on one rank: QK^T and PV forward, twice that backward; what flash attention computes again is not
    counted, and of the mask only what is allowed."""
    dim = scaled(params["model"], params["scale"]).head_dim
    return float(12 * dim * attended_pairs(params, place.rank, place.ranks, params["balance"]))


def memory_bytes(params, place: Place) -> int:
    """A rank's rows with their gradients, the buffers of its form, and the whole in fp32 for the reference."""
    shape, size, c = scaled(params["model"], params["scale"]), itemsize(params), place.ranks
    token = params["batch"] * shape.head_dim
    q, kv = token * shape.heads, 2 * token * shape.kv_heads
    rows = params["tokens"] // c
    of_form = {
        "ring": rows * kv * (2 * size + 12),
        "all_gather": params["tokens"] * kv * (2 * size + 4),
        "ulysses": rows * (q * (6 * size + 8) + kv * (4 * size + 4)),
    }[params["form"]]
    return int(
        rows * (q * (4 * size + 12) + kv * (2 * size + 4)) + of_form + params["tokens"] * (q + kv) * (4 * size + 24)
    )


def build(wires, params, place: Place, device: str) -> Built:
    wire, shape = wires[""], scaled(params["model"], params["scale"])
    rank, ranks, tokens, balance = place.rank, place.ranks, params["tokens"], params["balance"]
    rows = torch.cat([torch.arange(*chunk) for chunk in chunks(rank, ranks, tokens, balance)]).to(device)

    def drawn(what, heads):
        size = tokens, params["batch"], heads, shape.head_dim
        return draw(params["seed"], what, *size, dtype=params["dtype"], device=device)

    whole_q, whole_k, whole_v, whole_do = (
        drawn(what, heads) for what, heads in enumerate((shape.heads, shape.kv_heads, shape.kv_heads, shape.heads))
    )
    q, do, kv = whole_q[rows], whole_do[rows], torch.stack([whole_k[rows], whole_v[rows]], 1)
    step_of = {"ring": _ring, "all_gather": _all_gather, "ulysses": _ulysses}[params["form"]]
    step_once = step_of(wire, q, kv, do, plan(params, rank, ranks, balance), chunk_orders(ranks, balance, device))
    held = {}

    def step():
        held["o"], held["dq"], held["dkv"] = step_once()

    def check():
        step()
        o, (dq, dk, dv) = reference(whole_q, whole_k, whole_v, whole_do, params)
        found = [held["o"], held["dq"], *held["dkv"].unbind(1)]
        return compare(zip(found, [wanted[rows] for wanted in (o, dq, dk, dv)]), params["dtype"])

    def facts():
        cuts = {"pairs": balance, "pairs_unbalanced": False} | (
            {} if tokens % (2 * ranks) else {"pairs_balanced": True}
        )
        return {name: attended_pairs(params, rank, ranks, balanced) for name, balanced in cuts.items()}

    return Built(step, check, facts=facts)


def _ring(wire, q, kv, do, steps, orders):
    spare, sums = ring_attention.buffers(kv)

    def step():
        o, lse = ring_attention.forward(wire, q, kv, steps, spare)
        return rows_first(o), *ring_attention.backward(wire, do, q, kv, o, lse, steps, spare, sums)

    return step


def _all_gather(wire, q, kv, do, steps, orders):
    whole = kv.new_zeros(kv.shape[0] * wire.size, *kv.shape[1:])

    def step():
        o, lse = all_gather_attention.forward(wire, q, kv, steps[0], whole, orders)
        return rows_first(o), *all_gather_attention.backward(wire, do, q, kv, o, lse, steps[0], whole, orders)

    return step


def _ulysses(wire, q, kv, do, steps, orders):
    held = ulysses.buffers(q, kv, wire.size)

    def step():
        o, saved = ulysses.forward(wire, q, kv, steps[0], held, orders)
        return o, *ulysses.backward(wire, do, saved, steps[0], held, orders)

    return step


def reference(q, k, v, do, params):
    """(o, (dq, dk, dv)) of the whole sequence on one rank in float32; q, do [S, B, H, D], k, v [S, B, Hkv, D]."""
    q, k, v = (x.float().requires_grad_() for x in (q.detach(), k.detach(), v.detach()))
    bounds = document_bounds(params["tokens"], params["documents"], params["seed"])
    mask = Mask(right=0, documents=tuple(end - begin for begin, end in zip(bounds, bounds[1:])))
    o, _ = attention_tiled.attention(*(x.permute(1, 2, 0, 3) for x in (q, k, v)), mask)
    o = rows_first(o)
    return o, torch.autograd.grad(o, [q, k, v], do.float())


LAYER = Layer(
    name="context_parallel",
    options=OPTIONS,
    problem=_problem,
    traffic=traffic,
    flops=flops,
    memory_bytes=memory_bytes,
    build=build,
    words={"form": FORMS},
)
