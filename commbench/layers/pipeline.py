"""Pipeline parallelism: the model cut into stages that lie one behind another, run by a schedule of
commbench/schedules/stages*.py, with real messages between the ranks.

A rank holds `blocks` MLP blocks (hidden to FFN to hidden, GELU, no bias) of the model's width; schedules with several
stages on a rank divide them, DualPipe holds as many again for its second direction. `tokens` are those of a
micro-batch. Gradients are those of one step, summed over the micro-batches; each of DualPipe's two copies holds the sum
over its own half of them.

work = "wait": the stages sleep for `forward_us`, `input_us` and `weight_us` (of a rank's whole share of the model) in
place of computing, so that a bubble can be measured with more ranks than cores. executor = "torch" runs the same
blocks by torch.distributed.pipelining, whose messages are not counted.
"""

import torch

from commbench.layers.layer import Built, Layer, Place
from commbench.layers.numbers import compare, draw, itemsize, scaled
from commbench.layers.pipeline_bubble import bubble_facts
from commbench.layers.pipeline_run import PipelineRun
from commbench.layers.pipeline_stage import MlpStage, WaitingStage, block_weights, reference
from commbench.layers.pipeline_torch import SCHEDULES as OF_TORCH
from commbench.layers.pipeline_torch import TorchPipeline
from commbench.schedules.stages import StageSchedule
from commbench.schedules.stages_catalogue import NAMES as SCHEDULES
from commbench.schedules.stages_catalogue import build as build_schedule
from commbench.schedules.stages_catalogue import problem as schedule_problem
from commbench.schedules.stages_messages import messages_out
from commbench.schedules.stages_simulate import peak_activations

WORDS = {"schedule": SCHEDULES, "work": ("compute", "wait"), "executor": ("own", "torch")}
_LONGEST_S = 10  # that a step may sleep
OPTIONS = {
    "schedule": "1f1b", "micro_batches": 8, "chunks": 2, "model": "llama3-8b", "scale": 16, "tokens": 64, "blocks": 2,
    "work": "compute", "forward_us": 5000.0, "input_us": 5000.0, "weight_us": 5000.0, "executor": "own", "seed": 1,
}  # fmt: skip


def _problem(params, ranks):
    name, m = params["schedule"], params["micro_batches"]
    if sentence := schedule_problem(name, ranks, m, params["chunks"]):
        return sentence
    stages = _stages_per_share(params)
    if params["blocks"] < 1 or params["blocks"] % stages:
        return f"{params['blocks']} blocks on a rank do not make {stages} stages of it; choose a multiple"
    if params["tokens"] < 1:
        return "a micro-batch of 0 tokens is nothing to send"
    step_s = m * sum(params[f"{what}_us"] for what in ("forward", "input", "weight")) / 1e6
    if params["work"] == "wait" and step_s > _LONGEST_S:
        return f"a step would wait {step_s:g} s; with shorter waits or fewer micro-batches it is {_LONGEST_S} s at most"
    scaled(params["model"], params["scale"])
    return _torch_problem(params, ranks) if params["executor"] == "torch" else None


def _torch_problem(params, ranks):
    name, m = params["schedule"], params["micro_batches"]
    if name not in OF_TORCH:
        return f"torch's runtime has no {name}; it has {', '.join(OF_TORCH)}"
    if params["work"] != "compute":
        return "torch's runtime computes; stages that wait are for executor own"
    if ranks < 2:
        return "torch's runtime needs 2 ranks or more"
    if name == "1f1b" and m < ranks:
        return f"torch's 1f1b on {ranks} ranks needs {ranks} micro-batches or more, not {m}"
    return None


def _backends(params) -> tuple[str, ...]:
    """torch's runtime needs a group of torch's; stages that wait sleep on the host."""
    everywhere = ("gloo", "nccl", "mpi")
    without = {"mpi"} if params["executor"] == "torch" else {"nccl"} if params["work"] == "wait" else set()
    return tuple(backend for backend in everywhere if backend not in without)


def _stages_per_share(params) -> int:
    """The stages that the layers of one rank are cut into."""
    return params["chunks"] if params["schedule"] == "interleaved" else 2 if params["schedule"].endswith("_v") else 1


def schedule_of(params: dict, ranks: int) -> StageSchedule:
    return build_schedule(params["schedule"], ranks, params["micro_batches"], params["chunks"])


def traffic(params, place: Place) -> dict:
    """A message forward and one backward for each micro-batch and each boundary of stages between two ranks; torch's
    runtime sends by itself."""
    if place.ranks == 1 or params["executor"] == "torch":
        return {}
    schedule = schedule_of(params, place.ranks)
    cells = range(len(schedule.rows[place.rank]))
    calls = sum(len(messages_out(schedule, place.rank, k)) for k in cells)
    return {"send": (calls, calls * _message_bytes(params))}


def _message_bytes(params) -> int:
    return params["tokens"] * scaled(params["model"], params["scale"]).hidden * itemsize(params)


def _block_elements(params) -> int:
    shape = scaled(params["model"], params["scale"])
    return 2 * shape.hidden * shape.ffn_hidden


def flops(params, place: Place) -> float:
    """Of one step on one rank: 2 matrix products forward, 2 for the gradient of the input, 2 for that of the weights,
    for each block and micro-batch."""
    products = 0 if params["work"] == "wait" else 3 * params["micro_batches"] * params["blocks"]
    return float(products * 2 * params["tokens"] * _block_elements(params))


def memory_bytes(params, place: Place) -> int:
    """Weights and fp32 gradients, activations at the schedule's peak, messages until they are gone, and for the check
    the whole model in fp32 with its gradients."""
    schedule, size = schedule_of(params, place.ranks), itemsize(params)
    shape = scaled(params["model"], params["scale"])
    sent = 2 * schedule.micro_batches * len(schedule.stages_of(place.rank)) * _message_bytes(params)
    if params["work"] == "wait":
        return sent
    copies = len(schedule.stages_of(place.rank)) * schedule.share
    own = int(copies * params["blocks"] * _block_elements(params) * (size + 4))
    kept = params["tokens"] * (2 * shape.hidden + 2 * shape.ffn_hidden) * size * params["blocks"]
    whole = place.ranks * params["blocks"] * _block_elements(params) * 8
    return own + int(peak_activations(schedule)[place.rank] * kept) + sent + whole


def build(wires, params, place: Place, device: str) -> Built:
    """The stages of this rank, run by the schedule."""
    wire, schedule = wires[""], schedule_of(params, place.ranks)
    numbers = schedule.stages_of(place.rank)
    ends = [_ends(params, schedule, stage, device) for stage in numbers]
    inputs = {i: x for x_of, _ in ends for i, x in x_of.items()}
    output_gradients = {i: dy for _, dy_of in ends for i, dy in dy_of.items()}
    if params["executor"] == "torch":
        return _by_torch(wire, params, schedule, numbers, device, inputs, output_gradients)
    stages = {number: _stage(params, schedule, number, device) for number in numbers}
    like = torch.zeros_like(_tensor(params, 0, device))
    run = PipelineRun(schedule, place.rank, wire, stages, like, inputs, output_gradients)

    def check():
        run.step()
        if params["work"] == "wait":
            return compare(_waited_pairs(run, params, device), params["dtype"])
        found = [[g for block in stage.gradients for g in block] for stage in stages.values()]
        wanted = _Wanted(params, schedule, device)
        return compare(
            [*wanted.of_weights(numbers, found), *wanted.of_ends(run.outputs, run.input_gradients)], params["dtype"]
        )

    return Built(run.step, check, facts=lambda: bubble_facts(run, wire, params["chunks"]), sampling=run.forget)


def _by_torch(wire, params, schedule, numbers, device, inputs, output_gradients) -> Built:
    blocks = {number: _blocks(params, schedule, number, device) for number in numbers}
    run = TorchPipeline(schedule, wire.process_group, blocks, device, inputs, output_gradients)

    def check():
        run.step()
        wanted = _Wanted(params, schedule, device)
        return compare(
            [*wanted.of_weights(numbers, run.gradients()), *wanted.of_ends(run.outputs, {})], params["dtype"]
        )

    return Built(run.step, check)


def _tensor(params, what: int, device: str):
    """(tokens, hidden), drawn."""
    hidden = scaled(params["model"], params["scale"]).hidden
    return draw(params["seed"], what, params["tokens"], hidden, dtype=params["dtype"], device=device)


def _ends(params, schedule: StageSchedule, stage: int, device: str):
    """({micro-batch: x} for a first stage, {micro-batch: dy} for a last one), else empty."""
    passing = [i for i in range(schedule.micro_batches) if stage in schedule.chain_of(i)]
    x = {i: _tensor(params, 2 * i, device) for i in passing} if schedule.is_first(stage) else {}
    dy = {i: _tensor(params, 2 * i + 1, device) for i in passing} if schedule.is_last(stage) else {}
    return x, dy


def _blocks(params, schedule: StageSchedule, stage: int, device: str):
    shape, count = scaled(params["model"], params["scale"]), params["blocks"] // _stages_per_share(params)
    first = stage % schedule.chain_stages * count
    return [block_weights(params, shape, first + i, device) for i in range(count)]


def _stage(params, schedule: StageSchedule, number: int, device: str):
    if params["work"] == "wait":
        return WaitingStage(*(params[f"{what}_us"] * schedule.share for what in ("forward", "input", "weight")))
    return MlpStage(_blocks(params, schedule, number, device))


class _Wanted:
    """The whole model on one rank in fp32, one micro-batch after another."""

    def __init__(self, params, schedule: StageSchedule, device: str):
        self.schedule = schedule
        blocks = [b for stage in range(schedule.chain_stages) for b in _blocks(params, schedule, stage, device)]
        blocks = [tuple(matrix.float().requires_grad_() for matrix in block) for block in blocks]
        matrices = [matrix for block in blocks for matrix in block]
        self.outputs, self.input_gradients, self._sums = {}, {}, {}
        for i in range(schedule.micro_batches):
            x = _tensor(params, 2 * i, device).float().requires_grad_()
            y = reference(x, blocks)
            dx, *gradients = torch.autograd.grad(y, [x, *matrices], _tensor(params, 2 * i + 1, device).float())
            self.outputs[i], self.input_gradients[i] = y.detach(), dx
            chain = schedule.chain_of(i)
            sums = self._sums.setdefault(chain, [torch.zeros_like(gradient) for gradient in gradients])
            for total, gradient in zip(sums, gradients):
                total += gradient

    def of_weights(self, stages: list[int], found):
        """(found, wanted) of the matrices of each of `stages`."""
        for stage, gradients in zip(stages, found):
            sums = next(sums for chain, sums in self._sums.items() if stage in chain)
            first = stage % self.schedule.chain_stages * len(gradients)
            yield from zip(gradients, sums[first : first + len(gradients)], strict=True)

    def of_ends(self, outputs: dict, input_gradients: dict):
        yield from ((outputs[i], self.outputs[i]) for i in outputs)
        yield from ((input_gradients[i], self.input_gradients[i]) for i in input_gradients)


def _waited_pairs(run: PipelineRun, params, device: str):
    """What left the pipeline, and what entered it with 1 added at each stage."""
    for found, which in ((run.outputs, 0), (run.input_gradients, 1)):
        for i, tensor in found.items():
            wanted = _tensor(params, 2 * i + which, device)
            for _ in range(run.schedule.chain_stages):
                wanted = wanted + 1
            yield tensor, wanted


LAYER = Layer(
    name="pipeline",
    options=OPTIONS,
    problem=_problem,
    traffic=traffic,
    flops=flops,
    memory_bytes=memory_bytes,
    build=build,
    backends=_backends,
    words=WORDS,
)
