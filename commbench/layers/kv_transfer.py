"""Prefill hands the key-value cache of a request to decode: the link of disaggregated inference.

The first half of the ranks are prefill, the second half decode; rank i sends to rank i + n/2, all pairs at once, each a
request of its own over all layers of the model. What a page table does to a link is seen by the layout:

contiguous: a layer's cache of a request lies in one piece, and is one message.
paged: it lies in pages all over a pool (PagedAttention, arXiv 2309.06180, 4.1), and each page is a message.
packed: pages are copied together, sent as one message a layer, and copied apart while later layers are under way.

A page goes whole, also where the last tokens do not fill it; the page tables themselves are known beforehand.
"""

import torch

from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, itemsize
from commbench.shapes import Shape, read_shape

LAYOUTS = ("contiguous", "paged", "packed")
OPTIONS = {"model": "llama3-70b", "tokens": 64, "layout": "contiguous", "page_tokens": 16, "seed": 1}
_POOL = 2  # pages of the pool for each that the request takes, so that those lie apart


def cache_elements(shape: Shape) -> int:
    """Elements that a token leaves in the cache of one layer: keys and values, 2 Hkv D, or the latent vector that all
    heads share, kv_lora + rope_dim (DeepSeek-V2, arXiv 2405.04434, 2.1.3)."""
    return shape.mla.kv_lora + shape.mla.rope_dim if shape.mla else 2 * shape.kv_heads * shape.head_dim


def _problem(params, ranks):
    read_shape(params["model"])
    for what in ("tokens", "page_tokens"):
        if not params[what]:
            return f"{what} is 0; it must be 1 or more"
    if ranks % 2:
        return f"kv_transfer pairs prefill with decode ranks, so it needs an even number of ranks, not {ranks}"
    return None


def _pages(params) -> int:
    return -(-params["tokens"] // params["page_tokens"])


def _layer_bytes(params) -> int:
    """Of one layer of a request, in whole pages where there are pages."""
    tokens = params["tokens"] if params["layout"] == "contiguous" else _pages(params) * params["page_tokens"]
    return tokens * cache_elements(read_shape(params["model"])) * itemsize(params)


def traffic(params, place: Place) -> dict:
    """What a prefill rank sends: one message a layer, or one for each page of it."""
    if place.rank >= place.ranks // 2:
        return {"send": (0, 0)}
    layers = read_shape(params["model"]).layers
    messages = layers * (_pages(params) if params["layout"] == "paged" else 1)
    return {"send": (messages, layers * _layer_bytes(params))}


def memory_bytes(params, place: Place) -> int:
    """The pool, the staging memory, and the request once more for the check."""
    paged = params["layout"] != "contiguous"
    copies = (_POOL if paged else 1) * 2 + 2
    return read_shape(params["model"]).layers * _layer_bytes(params) * copies


def _request(params, pair: int, device: str) -> torch.Tensor:
    """The cache of a pair's request: random bytes [layers, pages, bytes], one page where it lies in one piece."""
    layers, pages = read_shape(params["model"]).layers, 1 if params["layout"] == "contiguous" else _pages(params)
    generator = torch.Generator().manual_seed(params["seed"] * 1000 + pair)
    size = layers, pages, _layer_bytes(params) // pages
    return torch.randint(0, 256, size, dtype=torch.uint8, generator=generator).to(device)


def _pool(request, place: Place, params) -> tuple[torch.Tensor, torch.Tensor]:
    """(memory [layers, pages of the pool, bytes], zero; which pages of it are the request's, in order)."""
    layers, pages, size = request.shape
    room = pages if params["layout"] == "contiguous" else _POOL * pages
    generator = torch.Generator().manual_seed(params["seed"] * 1000 + 500 + place.rank)
    table = torch.randperm(room, generator=generator)[:pages].to(request.device)
    return request.new_zeros(layers, room, size), table


def build(wires, params, place: Place, device: str) -> Built:
    wire, half = wires[""], place.ranks // 2
    sends, packed = place.rank < half, params["layout"] == "packed"
    request = _request(params, place.rank % half, device)
    pool, table = _pool(request, place, params)
    if sends:
        pool[:, table] = request
    staging = torch.zeros_like(request) if packed else None
    peer = place.rank + half if sends else place.rank - half
    if packed:
        messages = [[(peer, layer)] for layer in staging]
    else:
        messages = [[(peer, layer[page]) for page in table.tolist()] for layer in pool]

    def start(layer: int):
        if packed and sends:
            torch.index_select(pool[layer], 0, table, out=staging[layer])
        return wire.exchange([], messages[layer]) if sends else wire.exchange(messages[layer], [])

    def step():
        works = [start(layer) for layer in range(len(pool))]
        for layer, work in enumerate(works):
            work.wait()
            if packed and not sends:
                pool[layer].index_copy_(0, table, staging[layer])

    def check():
        if sends:
            step()
            return 0, 0.0
        pool.zero_()
        step()
        wanted = torch.zeros_like(pool)
        wanted[:, table] = request
        different = sum(not torch.equal(*layers) for layers in zip(pool, wanted))
        return different, compare(zip(pool, wanted), "float32")[1]

    def facts():
        shape = read_shape(params["model"])
        return {"bytes_per_token": shape.layers * cache_elements(shape) * itemsize(params)}

    return Built(step, check, facts=facts, computes=packed)


LAYER = Layer(
    name="kv_transfer",
    options=OPTIONS,
    problem=_problem,
    traffic=traffic,
    flops=lambda params, place: 0.0,
    memory_bytes=memory_bytes,
    build=build,
    dtypes=("float32", "bfloat16", "float16", "float8_e4m3fn"),
    words={"layout": LAYOUTS},
)
