"""Is the step of a small transformer on 4 local ranks what the planner says from this machine's own measurements?

    python tests/benchmarks/plan_local.py [--rounds 5] [--launches 2]

Two layouts: tp 2 x dp 2, and pp 4 (1F1B). The planner is given what was measured here: collectives and messages by
`commbench run` and `commbench fit`, and the rates of matrix products and of norms by kernels timed alone, all on four
ranks at once. Bar: within 20 %, each. Kernels and steps alternate, so that other programs disturb both alike.

Four ranks on fewer cores: a rank that waits lends its core to the others, so a bubble costs only the cores that no
rank uses; that term, and uneven stages, are replaced by it, and the line says so.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS, MICRO, SEQUENCE = 4, 2, 256
BAR = 0.20
COUNTS = {"tp 2 x dp 2": 4, "pp 4": 8}  # micro-batches of a pipeline, or of a dp rank
SUITE = """
name = "local"
ranks = 4
backend = "gloo"
[settings]
budget_s = 1.0
target = 0.01
[[measure]]
op = ["all_reduce", "p2p_latency"]
split = "DIV 2"
size = { from = "256K", to = "16M", factor = 2 }
in_place = [true, false]
"""


def shape():
    from commbench.shapes import Shape

    return Shape(
        name="small", source="here", layers=4, hidden=256, heads=8, kv_heads=8, head_dim=32, ffn_hidden=1024,
        gated=False, vocab=512, tied=False, sequence=SEQUENCE, parameters_published=1.0, parameters_source="here",
        positions=SEQUENCE, norm_vectors=2,
    )  # fmt: skip


def layouts():
    from commbench.planning.layout import Layout

    return {
        "tp 2 x dp 2": Layout(tp=2, dp=2, zero=0, sp=False, micro_batch=MICRO),
        "pp 4": Layout(pp=4, zero=0, sp=False, micro_batch=MICRO),
    }


# What a rank does ----------------------------------------------------------------------------------------------------


def rank_main(rank: int, rounds: int) -> None:
    import torch
    import torch.distributed as dist
    from plan_model import Part, data

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    small = shape()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])], [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tp_group, dp_group = pairs[0][rank // 2], pairs[1][rank % 2]
    cut = Part(small, range(small.layers), 2, rank % 2, tp_group)
    stage = Part(small, range(rank, rank + 1))
    steps = {
        "tp 2 x dp 2": Step(cut, lambda: tensor_step(cut, dp_group, rank // 2, data(small, 2 * MICRO * COUNTS["tp 2 x dp 2"]))),
        "pp 4": Step(stage, lambda: pipeline_step(stage, rank, data(small, MICRO * COUNTS["pp 4"]))),
    }  # fmt: skip
    losses = check(small, steps, rank)
    found = {name: [] for name in (*steps, *(f"{kind} {name}" for kind in ("matmul", "norm") for name in steps))}
    for _ in range(rounds):
        for name, tp in (("tp 2 x dp 2", 2), ("pp 4", 1)):
            found[f"matmul {name}"].append(timed(lambda tp=tp: products(small, tp), dist, 8))
            found[f"norm {name}"].append(timed(lambda tp=tp: norms(small, tp), dist, 8))
            found[name].append(timed(steps[name], dist, 3))
    if rank == 0:
        print(json.dumps({"times_s": found, "losses": losses}))
    dist.destroy_process_group()


class Step:
    """Forward and backward of all micro-batches, gradients, Adam."""

    def __init__(self, part, work):
        import torch

        self.part, self.work = part, work
        self.adam = torch.optim.Adam(part.parameters(), lr=0.0, fused=True)

    def __call__(self):
        self.adam.zero_grad()
        loss = self.work()
        self.adam.step()
        return loss


def tensor_step(part, dp_group, dp_rank, batch):
    import torch
    import torch.distributed as dist

    total = 0.0
    mine = [one.chunk(2)[dp_rank].split(MICRO) for one in batch]
    for tokens, labels in zip(*mine):
        loss = part(tokens, labels) / len(mine[0])
        loss.backward()
        total += loss.item()
    gradients = torch.cat([p.grad.flatten() for p in part.parameters()])
    dist.all_reduce(gradients, group=dp_group)
    for p, reduced in zip(part.parameters(), gradients.split([p.numel() for p in part.parameters()])):
        p.grad.copy_(reduced.view_as(p) / 2)
    return total


def pipeline_step(part, rank, batch):
    """1F1B: RANKS - rank - 1 forwards ahead, then one forward and one backward in turn, then the backwards left."""
    import torch
    import torch.distributed as dist

    small, micro = part.shape, [one.split(MICRO) for one in batch]
    count, flying, sent, total = len(micro[0]), [], [], 0.0
    like = torch.empty(MICRO, SEQUENCE, small.hidden)

    def forward(i):
        nonlocal total
        x = micro[0][i]
        if rank:
            x = torch.empty_like(like)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = part(x, micro[1][i])
        if rank < RANKS - 1:
            sent.append((dist.isend(y.detach(), rank + 1), y))
        else:
            y = y / count
            total += y.item()
        flying.append((x, y))

    def backward():
        x, y = flying.pop(0)
        if rank < RANKS - 1:
            gradient = torch.empty_like(like)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        else:
            y.backward()
        if rank:
            sent.append((dist.isend(x.grad, rank - 1), x))

    ahead = min(count, RANKS - rank - 1)
    for i in range(ahead):
        forward(i)
    for i in range(ahead, count):
        forward(i)
        backward()
    for _ in range(ahead):
        backward()
    for work, _ in sent:
        work.wait()
    return total


def check(small, steps, rank) -> dict[str, float]:
    """The losses of both cuts against the model in one piece: the cuts are the same model."""
    import torch
    import torch.distributed as dist
    from plan_model import Part, data

    told = {}
    for name, step in steps.items():
        rows = MICRO * COUNTS[name] * (2 if "dp" in name else 1)
        loss = torch.tensor([step()])
        if "dp" in name:
            dist.all_reduce(loss)
            loss /= RANKS
        else:
            dist.broadcast(loss, RANKS - 1)
        if rank == 0:
            tokens, labels = data(small, rows)
            with torch.no_grad():
                whole = Part(small, range(small.layers))(tokens, labels).item()
            assert abs(loss.item() - whole) < 1e-4, f"{name}: loss {loss.item()} is not {whole}"
            told[name] = loss.item()
    return told


def timed(work, dist, repeats: int) -> float:
    """Seconds of one call: the median over repeats of the slowest rank, after one call to warm up."""
    import torch

    work()
    taken = []
    for _ in range(repeats):
        dist.barrier()
        begin = time.perf_counter()
        work()
        one = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(one, dist.ReduceOp.MAX)
        taken.append(one.item())
    return statistics.median(taken)


def products(small, tp: int) -> None:
    """A layer's matrix products and attention, forward and backward, with nothing between them."""
    import torch
    import torch.nn.functional as F

    h, tokens = small.hidden, MICRO * SEQUENCE
    for rows, columns, count in ((h // tp, h, 3), (h, h // tp, 1), (4 * h // tp, h, 1), (h, 4 * h // tp, 1)):
        x, w, gradient = torch.ones(tokens, columns), torch.ones(rows, columns), torch.ones(tokens, rows)
        for _ in range(count):
            F.linear(x, w)
            gradient @ w
            gradient.t() @ x
    q = torch.ones(MICRO, small.heads // tp, SEQUENCE, small.head_dim, requires_grad=True)
    y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    y.backward(torch.ones_like(y))


def norms(small, tp: int) -> None:
    """A layer's norms, residuals and activation, forward and backward, with nothing between them."""
    import torch
    import torch.nn.functional as F

    x = torch.ones(MICRO, SEQUENCE, small.hidden, requires_grad=True)
    for _ in range(2):
        y = x + F.layer_norm(x, (small.hidden,), torch.ones(small.hidden), torch.zeros(small.hidden))
        y.backward(torch.ones_like(y))
    x = torch.ones(MICRO, SEQUENCE, small.ffn_hidden // tp, requires_grad=True)
    y = F.gelu(x)
    y.backward(torch.ones_like(y))


# What is made of it --------------------------------------------------------------------------------------------------


def predicted(name: str, times_s: dict, links) -> tuple[dict[str, float], float, float]:
    """Terms of the planner's account in us, and both ends of its interval."""
    from commbench.planning.activations import Cut
    from commbench.planning.flops import attention_flops, matmul_flops
    from commbench.planning.gpus import Gpu
    from commbench.planning.layout import Job
    from commbench.planning.machine import Assumptions, Machine
    from commbench.planning.step import predict_step
    from commbench.planning.traffic import layer_traffic_bytes

    small, layout = shape(), layouts()[name]
    job = Job(RANKS, SEQUENCE, layout.dp * MICRO * COUNTS[name], "fp32", "sgd")
    tokens = MICRO * SEQUENCE
    core = attention_flops(small, SEQUENCE, "causal")
    flops = tokens * (3 * matmul_flops(small, False) + 3.5 * core) / layout.tp
    cut = layout.cut(job)
    moved = sum(layer_traffic_bytes(small, Cut(**{**vars(cut), "element_bytes": 4}), False))
    rates = [flops / s / 1e12 for s in times_s[f"matmul {name}"]], [moved / s / 1e9 for s in times_s[f"norm {name}"]]
    rate, spread = statistics.median(rates[0]), (min(rates[0]), max(rates[0]))
    memory = statistics.median(rates[1])
    gpu = Gpu("core", rate, 1e3, memory, "measured here", fp32_TFLOPs=rate)
    machine = Machine(gpu, links, 1.0, spread[0] / rate, spread[1] / rate, "measured here")
    wide = max(memory - min(rates[1]), max(rates[1]) - memory) / memory
    assume = Assumptions(memory_share=1.0, memory_spread=min(0.9, wide), dp_overlap=False)
    told = predict_step(small, layout, job, machine, assume)
    terms = dict(told.account.terms)
    cores = len(os.sched_getaffinity(0))
    if layout.pp > 1 and cores < RANKS:
        stage = sum(terms[t] for t in ("matmul", "memory-bound", "recompute")) / COUNTS[name]
        unused = sum(cores - active for active in range(1, cores))  # cores without a rank, while it fills and drains
        terms["stage imbalance"] = 0.0
        terms["PP bubble"] = unused * stage / RANKS
    total = sum(terms.values())
    return terms, total * told.low_us / told.account.step_us, total * told.high_us / told.account.step_us


def measured_links(launches: int, folder: Path):
    from commbench.models.model_file import ModelFile
    from commbench.models.series_fit import fit_tables
    from commbench.models.table import read_series

    suite = folder / "local.toml"
    suite.write_text(SUITE)
    run = folder / "run"
    command = [sys.executable, "-m", "commbench", "run", str(suite), "--launches", str(launches), "--out", str(run)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    models = ModelFile(tuple(fit_tables(read_series([run]))), (str(run),))
    return links_of(models)


def links_of(models):
    """The links of the first of two pairs that worked at the same time, in the placement that the model here uses."""
    from commbench.models.model_file import ModelFile
    from commbench.planning.fitted_links import fitted_links

    own = [s for s in models.series if s.label["op"] in IN_PLACE and s.label["group"] == "DIV 2 #0"]
    own = [s for s in own if s.label["in_place"] == IN_PLACE[s.label["op"]]]
    unfit = [f"{s.name}: {s.faults[0]}" for s in own if s.faults]
    if unfit:
        raise SystemExit(f"not measured, this machine is not quiet enough for a fit: {unfit[0]}")
    return fitted_links(ModelFile(tuple(own), models.sources), "this machine", per_node=RANKS)


IN_PLACE = {"all_reduce": "yes", "p2p_latency": "no"}  # as the model here calls them


def run_ranks(rounds: int) -> dict:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(r), "--rounds", str(rounds)], env=os.environ | here,
            stdout=subprocess.PIPE, text=True,
        )
        for r in range(RANKS)
    ]  # fmt: skip
    told = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("a rank failed")
    return json.loads(told[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, default=2)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given.rank, given.rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        links = measured_links(given.launches, Path(folder))
        found = run_ranks(given.rounds)
    print(f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores; losses {found['losses']}")
    failed = False
    for name in layouts():
        terms, low, high = predicted(name, found["times_s"], links)
        steps = [s * 1e6 for s in found["times_s"][name]]
        step, told = statistics.median(steps), sum(terms.values())
        off = told / step - 1
        failed |= abs(off) > BAR
        shares = ", ".join(f"{term} {us / 1e3:.1f}" for term, us in terms.items() if us > 0)
        print(f"{'pass' if abs(off) <= BAR else 'fail'}: {name}: measured {step / 1e3:.1f} ms ({min(steps) / 1e3:.1f} to "
              f"{max(steps) / 1e3:.1f}), predicted {told / 1e3:.1f} ({low / 1e3:.1f} to {high / 1e3:.1f}), {off:+.1%}; "
              f"ms: {shares}")  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
