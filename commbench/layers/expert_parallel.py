"""Expert parallelism: route, permute, dispatch, experts, combine, weighted sum; forward and backward.

A token goes once to each rank that holds some of its experts (DeepEP, README), directly or in two hops: once to each
remote node over the network, then on within that node; the way back sums once per node. The backward of dispatch is
combine, and that of combine is dispatch. Which experts a token takes is prescribed by the routing, so that skew can be
set; their weights come from a gate that learns.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from commbench.errors import UsageError
from commbench.kernels.fp8_reference import BLOCK
from commbench.layers.expert_exchange import combine, dispatch, ways_of
from commbench.layers.expert_rows import Rows, rows_of
from commbench.layers.fp8 import from_fp8, row_bytes, to_fp8
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, draw, itemsize, weight
from commbench.routing.placement import assign
from commbench.routing.recipe import Recipe, routed
from commbench.routing.routing import Unreachable
from commbench.shapes import read_shape

OPTIONS = {
    "model": "deepseek-v3", "scale": 28, "tokens": "128", "experts": 64, "top_k": 8, "routing": "uniform",
    "masked": 0.0, "placement": "linear", "path": "direct", "payload": "same", "per_node": 0, "seed": 1,
}  # fmt: skip
WORDS = {"path": ("direct", "two_hop"), "payload": ("same", "fp8")}


def grids(params, ranks):
    everyone, each = list(range(ranks)), params["per_node"] or ranks
    if params["path"] == "direct":
        return {"all": [everyone]}
    rails = [everyone[i::each] for i in range(each)]
    return {"inter": rails, "intra": [everyone[i : i + each] for i in range(0, ranks, each)]}


@dataclass(frozen=True)
class _Sizes:
    name: str
    hidden: int
    inner: int  # within an expert


def _sizes(params) -> _Sizes:
    """The model's hidden size and experts, divided by `scale`."""
    shape, by = read_shape(params["model"]), params["scale"]
    if shape.moe is None:
        raise UsageError(f"{shape.name} has no experts; deepseek-v3 has")
    if by < 1 or shape.hidden % by or shape.moe.expert_hidden < by:
        raise UsageError(f"scale {by} does not divide the hidden size {shape.hidden} of {shape.name}")
    return _Sizes(shape.name, shape.hidden // by, shape.moe.expert_hidden // by)


def _recipe(params, ranks) -> Recipe:
    return Recipe(
        routing=params["routing"], ranks=ranks, ranks_per_node=params["per_node"] or ranks, tokens=params["tokens"],
        experts=params["experts"], top_k=params["top_k"], routing_seed=params["seed"], masked=params["masked"],
        placement=params["placement"],
    )  # fmt: skip


def _problem(params, ranks):
    try:
        shape = _sizes(params)
    except UsageError as error:
        return str(error)
    if params["payload"] == "fp8" and shape.hidden % BLOCK:
        return f"hidden size {shape.hidden} of {shape.name} at scale {params['scale']} is no multiple of {BLOCK} (fp8)"
    try:
        routed(_recipe(params, ranks))
    except (UsageError, Unreachable) as error:
        return str(error)
    return None


def _plan(params, place: Place) -> Rows:
    routing, placement, _ = routed(_recipe(params, place.ranks))
    each = params["per_node"] or place.ranks
    return rows_of(routing, placement, each, place.rank, params["path"] == "two_hop")


def traffic(params, place: Place) -> dict:
    """Calls and bytes of one step. Forward, each hop carries rows and the weights of their selections out and rows of
    results back; backward, gradients of results out, and of rows and weights back."""
    (plain, payload, weights), found = _row_sizes(params), {}
    for wire, hop in _plan(params, place).hops:
        if len(hop.in_splits) > 1:
            out, back = len(hop.send), sum(hop.out_splits)
            found[f"{wire}.all_to_all"] = (6, out * (payload + plain + weights) + back * (2 * plain + weights))
    return found


def moved(params, place: Place) -> tuple[int, int]:
    """(bytes sent to other ranks in one step, bytes received from them): `traffic` without what stays on the rank."""
    (plain, payload, weights), sent, received = _row_sizes(params), 0, 0
    everyone = grids(params, place.ranks)
    for wire, hop in _plan(params, place).hops:
        own = next(group for group in everyone[wire] if place.rank in group).index(place.rank)
        out, back = (sum(splits) - splits[own] for splits in (hop.in_splits, hop.out_splits))
        there = payload + plain + weights  # a row forward and the gradient of its result backward
        home = 2 * plain + weights  # its result forward and the gradients of row and weights backward
        sent, received = sent + out * there + back * home, received + back * there + out * home
    return sent, received


def wire_bytes(params, place: Place) -> int:
    """Bytes that one rank sends to other nodes in one step, by the traffic matrices of the routing."""
    _, _, counted = routed(_recipe(params, place.ranks))
    plain, payload, weights = _row_sizes(params)
    matrix, each = counted.per_rank, params["per_node"] or place.ranks
    if params["path"] == "two_hop":
        matrix = counted.first_hop
    remote = [r for r in range(place.ranks) if r // each != place.rank // each]
    out, back = int(matrix[place.rank, remote].sum()), int(matrix[remote, place.rank].sum())
    return out * (payload + plain + weights) + back * (2 * plain + weights)


def _row_sizes(params) -> tuple[int, int, int]:
    """Bytes of a row as it is, as it is dispatched, and of the weights that go with it."""
    hidden = _sizes(params).hidden
    plain = hidden * itemsize(params)
    return plain, row_bytes(hidden) if params["payload"] == "fp8" else plain, 4 * params["top_k"]


def flops(params, place: Place) -> float:
    """The experts' three matrices and the gate of one rank; backward twice the forward."""
    shape, rows = _sizes(params), _plan(params, place)
    gate = 2 * len(routed(_recipe(params, place.ranks))[0].ids[place.rank]) * shape.hidden * params["experts"]
    return 3.0 * (gate + len(rows.row) * 6 * shape.hidden * shape.inner)


def memory_bytes(params, place: Place) -> int:
    """Experts of a rank with gradients, its rows, and for the reference all experts and all tokens in fp32."""
    shape, size = _sizes(params), itemsize(params)
    routing, placement, _ = routed(_recipe(params, place.ranks))
    expert = 3 * shape.hidden * shape.inner
    rows = sum(routing.tokens) * params["top_k"] * (shape.hidden + 3 * shape.inner)
    return int(expert * (2 * size * placement.per_rank + 8 * params["experts"]) + rows * (size + 16))


def _experts(rows, weights, up, down, plan_row, plan_slot, per_expert):
    """The weighted sum of this rank's experts for each row: SwiGLU, one expert after another."""
    chosen = rows[plan_row].split(per_expert)
    done = [
        F.linear(F.silu(gate) * inner, down[e])
        for e, part in enumerate(chosen)
        for gate, inner in [F.linear(part, up[e]).chunk(2, dim=-1)]
    ]
    scaled = torch.cat(done).float() * weights[plan_row, plan_slot][:, None]
    return torch.zeros_like(rows).index_add(0, plan_row, scaled.to(rows.dtype))


def _weights_of(x, gate, ids):
    """The gate's softmax at the chosen experts, made to add up to 1; 0 where nothing was chosen."""
    probabilities = F.softmax(F.linear(x.float(), gate.float()), dim=-1)  # in fp32, as routers are
    chosen = probabilities.gather(1, ids.clamp(min=0)) * (ids >= 0)
    return chosen / chosen.sum(dim=1, keepdim=True).clamp(min=1e-20)


def _matrices(params, shape, logical, device) -> tuple[torch.Tensor, torch.Tensor]:
    """(up and gate, down) of the experts `logical`: (experts, 2 * inner, hidden) and (experts, hidden, inner)."""
    inner, dtype, seed = shape.inner, params["dtype"], params["seed"]
    up = [weight(seed, 100 + 2 * e, 2 * inner, shape.hidden, dtype, device) for e in logical]
    down = [weight(seed, 101 + 2 * e, shape.hidden, inner, dtype, device) for e in logical]
    return torch.stack(up), torch.stack(down)


def build(wires, params, place: Place, device: str) -> Built:
    shape, dtype, fp8 = _sizes(params), params["dtype"], params["payload"] == "fp8"
    routing, placement, counted = routed(_recipe(params, place.ranks))
    rows = _plan(params, place)
    ways = ways_of(rows, wires, device)
    plan_row, plan_slot = (torch.from_numpy(a).to(device) for a in (rows.row, rows.slot))
    ids = torch.from_numpy(routing.ids[place.rank]).long().to(device)
    tokens = len(ids)

    def values(what, rank):
        return draw(params["seed"], what + rank, routing.tokens[rank], shape.hidden, dtype=dtype, device=device)

    x, dy = values(10_000, place.rank).requires_grad_(), values(20_000, place.rank)
    gate = weight(params["seed"], 1, params["experts"], shape.hidden, dtype, device).requires_grad_()
    mine = placement.logical_of[place.rank * placement.per_rank : (place.rank + 1) * placement.per_rank]
    up, down = (matrix.requires_grad_() for matrix in _matrices(params, shape, mine, device))
    held, each = {}, params["per_node"] or place.ranks

    def sent_to():
        return next(iter(wires.values())).sent_to

    def forward():
        weights = _weights_of(x, gate, ids)
        there, with_weights = dispatch(ways, x, fp8), dispatch(ways, weights)
        results = _experts(there, with_weights, up, down, plan_row, plan_slot, rows.per_expert)
        return combine(ways, results, tokens)

    def step():
        held["y"] = forward()
        held["gradients"] = torch.autograd.grad(held["y"], [x, gate, up, down], dy)

    def check():
        step()
        wanted = _reference(params, shape, routing, placement, place.rank, values, device, fp8)
        if fp8:
            plain = _reference(params, shape, routing, placement, place.rank, values, device, False)
            held["fp8_error"] = compare([(held["y"], plain[0])], dtype)[1]
        return compare(zip(_compared([held["y"], *held["gradients"]], dtype), _compared(wanted, dtype)), dtype)

    kept = {}

    def apart(name, function):
        def run():
            with torch.no_grad():
                kept[name] = function()

        run()
        return run

    def parts():
        return {
            "route": apart("route", lambda: _weights_of(x, gate, ids)),
            "dispatch": apart("dispatch", lambda: (dispatch(ways, x, fp8), dispatch(ways, kept["route"]))),
            "experts": apart("experts", lambda: _experts(*kept["dispatch"], up, down, plan_row, plan_slot,
                                                         rows.per_expert)),
            "combine": apart("combine", lambda: combine(ways, kept["experts"], tokens)),
        }  # fmt: skip

    def facts():
        of_rank = {
            "selections": counted.per_selection, "unique_rank": counted.per_rank, "unique_node": counted.per_node,
            "wire": counted.first_hop,
        }  # fmt: skip
        return {name: int(matrix[place.rank].sum()) for name, matrix in of_rank.items()} | {
            "row_bytes": _row_sizes(params)[1], "rows_received": rows.received, "expert_rows": len(rows.row),
            "wire_bytes": sum(size for rank, size in sent_to().items() if rank // each != place.rank // each),
            **({"fp8_error": round(held["fp8_error"], 5)} if "fp8_error" in held else {}),
        }  # fmt: skip

    return Built(step, check, parts(), facts)


def _compared(results, dtype: str):
    """In 16 bits the gate's gradient is seen together with that of x: it is a difference of nearly equal numbers, and
    with a token or two its own size is that of their rounding."""
    if dtype == "float32":
        return results
    y, dx, d_gate, *of_experts = results
    return [y, torch.cat([dx.flatten(), d_gate.flatten()]), *of_experts]


def _reference(params, shape, routing, placement, rank, values, device, fp8):
    """(y, dx, d_gate, d_up, d_down) of `rank` from one process that holds all tokens and every expert, in fp32.

    fp8: the experts see the rows as they arrive from their 8 bits, and gradients pass that by.
    """
    chosen = assign(routing, placement)
    up, down = (m.float().requires_grad_() for m in _matrices(params, shape, placement.logical_of, device))
    gates, xs, ys = [], [], []
    for source, ids in enumerate(chosen):
        x = values(10_000, source).float().requires_grad_()
        gate = weight(params["seed"], 1, params["experts"], shape.hidden, params["dtype"], device).float()
        gates.append(gate.requires_grad_())
        xs.append(x)
        weights = _weights_of(x, gates[-1], torch.from_numpy(routing.ids[source]).long().to(device))
        y, seen = torch.zeros_like(x), x
        if fp8:
            seen = x + (from_fp8(to_fp8(x.detach()), torch.float32) - x).detach()
        for expert in range(len(placement.logical_of)):
            token, slot = (torch.from_numpy(found).to(device) for found in (ids == expert).nonzero())
            inner, through = F.linear(seen[token], up[expert]).chunk(2, dim=-1)
            result = F.linear(F.silu(inner) * through, down[expert])
            y = y.index_add(0, token, result * weights[token, slot][:, None])
        ys.append(y)
    gradients = torch.autograd.grad(
        ys, [xs[rank], gates[rank], up, down], [values(20_000, source).float() for source in range(len(ys))]
    )
    own = slice(rank * placement.per_rank, (rank + 1) * placement.per_rank)
    return ys[rank], gradients[0], gradients[1], gradients[2][own], gradients[3][own]


LAYER = Layer(
    name="expert_parallel",
    options=OPTIONS,
    problem=_problem,
    traffic=traffic,
    flops=flops,
    memory_bytes=memory_bytes,
    build=build,
    grids=grids,
    words=WORDS,
    moved=moved,
)
