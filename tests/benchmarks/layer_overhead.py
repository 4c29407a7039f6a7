"""A layer timed by commbench against a bare loop with the same calls, written by hand: what do the wires and the
stopwatch cost?

The steps of a pair alternate A B B A, aligned alike; each side is the median of its steps, maximum over ranks. Every
pair builds both sides anew: where memory happens to lie makes up to 6 % of kv_transfer. The 95 % interval of the median
ratio over pairs decides: wholly under 1.02 pass, wholly above fail, across it "not determined".

tensor_parallel: the MLP pair, forward and backward, 2 all_reduces. kv_transfer: nothing but messages, one for a page.
"""

import statistics
import subprocess
import sys
from time import perf_counter_ns

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.nn.functional as F
from harness import BAR, on_gloo

CASES = [  # layer, its options, steps of a side, pairs
    ("tensor_parallel", {"part": "mlp", "scale": 32, "tokens": 32}, 50, 60),
    ("tensor_parallel", {"part": "mlp", "scale": 8, "tokens": 256}, 10, 30),
    ("kv_transfer", {"layout": "paged", "model": "llama3-8b", "tokens": 64}, 20, 90),
]


class Gloo:
    def start_all_reduce(self, tensor):
        return dist.group.WORLD.allreduce([tensor], c10d.AllreduceOptions())

    def start_recv(self, tensor, peer):
        return dist.group.WORLD.recv([tensor], peer, 0)

    def start_send(self, tensor, peer):
        return dist.group.WORLD.send([tensor], peer, 0)

    def wait(self, works):
        for work in works:
            work.wait()


class Mpi:
    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD

    def start_all_reduce(self, tensor):
        return self.comm.Iallreduce(self.mpi.IN_PLACE, [tensor.view(-1).numpy(), self.mpi.FLOAT], self.mpi.SUM)

    def start_recv(self, tensor, peer):
        return self.comm.Irecv([tensor.view(-1).numpy(), self.mpi.UINT8_T], peer)

    def start_send(self, tensor, peer):
        return self.comm.Isend([tensor.view(-1).numpy(), self.mpi.UINT8_T], peer)

    def wait(self, works):
        self.mpi.Request.Waitall(works)


def bare_tensor_parallel(lib, params, rank, ranks):
    """(the MLP pair as one would write it for this library alone, whether it is right)."""
    from commbench.layers.numbers import compare, draw, scaled
    from commbench.layers.tensor_parallel_block import reference, whole_weights

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, matrix):
            ctx.save_for_backward(x, matrix)
            return x.matmul(matrix.T)

        @staticmethod
        def backward(ctx, dy):
            x, matrix = ctx.saved_tensors
            dx = dy.matmul(matrix)
            work = lib.start_all_reduce(dx)
            d_matrix = dy.reshape(-1, dy.shape[-1]).T.matmul(x.reshape(-1, x.shape[-1]))
            lib.wait([work])
            return dx, d_matrix

    class Leave(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            total = y.clone()
            lib.wait([lib.start_all_reduce(total)])
            return total

        @staticmethod
        def backward(ctx, dy):
            return dy

    shape = scaled(params["model"], params["scale"])
    whole = whole_weights(params, shape, "cpu")
    up = torch.cat([part.chunk(ranks)[rank] for part in whole.up.chunk(2)]).requires_grad_()
    down = whole.down.chunk(ranks, dim=1)[rank].contiguous().requires_grad_()
    size = params["tokens"], params["batch"], shape.hidden
    x, dy = (draw(params["seed"], what, *size, dtype="float32") for what in (5, 6))
    x.requires_grad_()
    kept = {}

    def step():
        gate, inner = Enter.apply(F.rms_norm(x, (x.shape[-1],)), up).chunk(2, dim=-1)
        y = x + Leave.apply(F.linear(F.silu(gate) * inner, down))
        kept["y"], kept["gradients"] = y, torch.autograd.grad(y, [x, up, down], dy)

    def right():
        want = reference(x, whole, params, shape)
        return (
            compare([(kept["y"], want), (kept["gradients"][0], torch.autograd.grad(want, [x], dy)[0])], "float32")[0]
            == 0
        )

    return step, right


def bare_kv_transfer(lib, params, rank, ranks):
    """(a loop over the pages of a pool, which waits layer by layer, whether the bytes arrived)."""
    from commbench.shapes import read_shape

    shape = read_shape(params["model"])
    pages, page_bytes = params["tokens"] // params["page_tokens"], params["page_tokens"] * 4
    pool = torch.zeros(shape.layers, 2 * pages, page_bytes * 2 * shape.kv_heads * shape.head_dim, dtype=torch.uint8)
    sends, peer = rank < ranks // 2, (rank + ranks // 2) % ranks
    table = torch.randperm(2 * pages)[:pages].tolist()
    start = lib.start_send if sends else lib.start_recv
    if sends:
        pool.fill_(7)

    def step():
        for works in [[start(layer[page], peer) for page in table] for layer in pool]:
            lib.wait(works)

    return step, lambda: bool((pool[:, table] == 7).all())


def compare(world, lib, name: str, options: dict, steps: int, bare_first: bool) -> tuple[float, float]:
    """(commbench / bare, bare in us) of one pair, whose memory is got in this order."""
    from commbench.layers import load
    from commbench.layers.layer import Place
    from commbench.layers.wire import Tape, Wire
    from commbench.timing import stopwatch

    record, tape, ranks = load(name), Tape(), list(range(world.size))
    params = record.options | {"dtype": "float32"} | options
    place = Place(world.rank, world.size)
    make = {"tensor_parallel": bare_tensor_parallel, "kv_transfer": bare_kv_transfer}[name]
    bare, right = make(lib, params, world.rank, world.size) if bare_first else (None, None)
    built = record.build({"": Wire(world.split([ranks]), tape, "", ranks)}, params, place, "cpu")
    if not bare_first:
        bare, right = make(lib, params, world.rank, world.size)
    calls = tape.record(built.step)
    tape.stop()
    assert calls == {op: list(pair) for op, pair in record.traffic(params, place).items()}, calls
    bare()
    assert built.check()[0] == 0 and right(), "a side is wrong"

    def bare_step() -> float:
        world.align()
        begin = perf_counter_ns()
        bare()
        return (perf_counter_ns() - begin) / 1e3

    def harness_step() -> float:
        return float(stopwatch.isolated(built.step, world.align, 1, lambda i: None)[0])

    taken = np.empty((2, steps + 2))
    for i in range(steps + 2):  # by turns, so that what else the machine does meets both; the first two warm up
        for harness in (i % 2, 1 - i % 2):
            taken[harness, i] = harness_step() if harness else bare_step()
    bare_us, harness_us = np.median(world.reduce(taken[:, 2:].copy(), "max"), axis=1)
    return float(harness_us / bare_us), float(bare_us)


def measure(world) -> None:
    from commbench.timing.statistics import median_interval

    lib = Gloo() if world.backend == "gloo" else Mpi()
    for name, options, steps, pairs in CASES:
        ratios, bare_us = zip(*(compare(world, lib, name, options, steps, i % 2 == 1) for i in range(pairs)))
        if world.rank == 0:
            low, high = median_interval(ratios)
            verdict = "pass" if high < BAR else "fail" if low > BAR else "not determined"
            told = f"{statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}], bare {statistics.median(bare_us):.0f} us"
            print(
                f"{verdict}: {world.backend} {name} of {options['tokens']} tokens, commbench / bare {told}", flush=True
            )


def rank_mpi() -> None:
    from commbench.world.mpi_world import MpiWorld

    torch.set_num_threads(1)
    world = MpiWorld()
    measure(world)
    world.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        rank_mpi()
    else:
        from commbench.launch.mpirun import mpirun_command

        on_gloo(2, measure)
        subprocess.run(mpirun_command(2, [__file__, "rank"]), check=True)
