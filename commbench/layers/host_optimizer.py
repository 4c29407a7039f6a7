"""The optimizer step of ZeRO-Offload (arXiv 2101.06840): gradients come to the host, Adam runs there, weights go back.

Of each parameter the host holds 12 bytes (fp32 master weight and Adam's moments). The parts are "out" (gradients to the
host), "adam" and "back" (weights from the host), a sample is all three after one another. `link` is "device" or
"memory": see offload.py. The device link is unverified until a GPU has run it.
"""

import torch

from commbench.layers.adam import adam_reference, adam_step
from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, draw, itemsize
from commbench.layers.offload import problem as problem_of_link

OPTIONS = {"link": "memory", "parameters": 2**22, "pinned": True, "seed": 1}
_RATE, _EPSILON = 1e-6, 1e-8
_CHECK_RATE, _CHECK_EPSILON = 1.0, 30.0  # smooth in the gradient: see data_parallel.py


def problem(params, ranks):
    if not params["parameters"]:
        return "parameters is 0; it must be 1 or more"
    return problem_of_link({"link": params["link"], "bytes": 2**20}, ranks)


def build(wires, params, place: Place, device: str) -> Built:
    count, dtype, cuda = params["parameters"], getattr(torch, params["dtype"]), params["link"] == "device"
    far = "cuda" if cuda else "cpu"

    def host():
        return torch.zeros(count, dtype=dtype, pin_memory=cuda and params["pinned"])

    def seeded(what):
        return draw(params["seed"] + place.rank, what, count, dtype=params["dtype"])

    weights, gradients = (seeded(what).to(far) for what in (1, 2))
    landing, leaving = host(), host()
    master, moments, taken = weights.float().cpu(), [torch.zeros(count) for _ in range(2)], [0]

    def out():
        landing.copy_(gradients, non_blocking=True)
        if cuda:
            torch.cuda.synchronize()

    def adam(rate=_RATE, epsilon=_EPSILON):
        adam_step(master, landing.float(), moments, taken[0], rate, epsilon)
        leaving.copy_(master)
        taken[0] += 1

    def back():
        weights.copy_(leaving, non_blocking=True)
        if cuda:
            torch.cuda.synchronize()

    def step():
        out()
        adam()
        back()

    def check():
        master.copy_(seeded(1))
        for moment in moments:
            moment.zero_()
        taken[0] = 0
        out()
        adam(_CHECK_RATE, _CHECK_EPSILON)
        back()
        wanted = adam_reference(seeded(1).double(), seeded(2).double(), _CHECK_RATE, _CHECK_EPSILON)
        return compare([(weights, wanted), (master, wanted)], params["dtype"])

    def facts():
        return {"parameters": count, "moved_bytes": count * itemsize(params), "host_bytes": 12 * count}

    return Built(step, check, {"out": out, "adam": adam, "back": back}, facts)


LAYER = Layer(
    name="host_optimizer",
    options=OPTIONS,
    problem=problem,
    traffic=lambda params, place: {},
    flops=lambda params, place: 0.0,
    memory_bytes=lambda params, place: params["parameters"] * (12 + 5 * itemsize(params) + 16),
    build=build,
    words={"link": ("device", "memory")},
)
