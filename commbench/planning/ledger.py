"""The memory of a rank: each thing that lies on it in bytes, the headroom, and the first thing that does not fit."""

from dataclasses import dataclass, replace

from commbench.planning.activations import layer_bytes
from commbench.planning.gpus import Gpu
from commbench.planning.layout import Job, Layout, micro_batches
from commbench.planning.pipeline import in_flight, parameter_copies
from commbench.planning.placement import Stage, expert_parameters, shared_parameters, stages
from commbench.planning.state import recipe_named, sharded_bytes
from commbench.shapes import Shape
from commbench.shapes.counts import ffn_parameters, layer_parameters

# CUDA context, communicators' buffers, workspaces, fragmentation: an assumption, 3 to 6 GB are usual.
RESERVED_BYTES = 4e9


@dataclass(frozen=True)
class Ledger:
    """Bytes on the fullest rank, by item in the order they are allocated; `stage`: its place in the pipeline."""

    items: dict[str, float]
    capacity: float
    stage: int

    @property
    def total(self) -> float:
        return sum(self.items.values())

    @property
    def headroom(self) -> float:
        """Bytes left; negative where it does not fit."""
        return self.capacity - self.total

    @property
    def fits(self) -> bool:
        return self.headroom >= 0

    @property
    def first_too_much(self) -> str | None:
        """The first item that no longer fits, None where all do."""
        used = 0.0
        for name, size in self.items.items():
            used += size
            if used > self.capacity:
                return name
        return None


def ledger(shape: Shape, layout: Layout, job: Job, gpu: Gpu) -> Ledger:
    """The ledger of the fullest rank among the pipeline's first, second and last."""
    every = stages(shape, layout)
    looked_at = sorted({0, min(1, layout.pp - 1), layout.pp - 1})
    return max((_ledger(shape, layout, job, gpu, every[i]) for i in looked_at), key=lambda one: one.total)


def ledgers(shape: Shape, layout: Layout, job: Job, gpu: Gpu) -> list[Ledger]:
    """The ledger of each pipeline rank."""
    return [_ledger(shape, layout, job, gpu, stage) for stage in stages(shape, layout)]


def _ledger(shape: Shape, layout: Layout, job: Job, gpu: Gpu, stage: Stage) -> Ledger:
    return Ledger(_of_stage(shape, layout, job, stage), gpu.memory_GB * 1e9, stage.index)


def _of_stage(shape: Shape, layout: Layout, job: Job, stage: Stage) -> dict[str, float]:
    recipe = recipe_named(job.recipe)
    shared = sharded_bytes(shared_parameters(shape, layout, stage), recipe, layout.zero, layout.dp * layout.cp)
    experts = sharded_bytes(expert_parameters(shape, layout, stage), recipe, layout.zero, layout.expert_dp)
    copies = parameter_copies(layout.schedule)
    items = {
        "reserved": RESERVED_BYTES,
        "weights": copies * (shared["weights"] + experts["weights"]),
        "gradients": copies * (shared["gradients"] + experts["gradients"]),
        "optimizer": shared["optimizer"] + experts["optimizer"],
    }
    if layout.zero == 3:
        items["gathered layers"] = 2 * _largest_layer(shape, layout, stage) * recipe.weight  # in use, and prefetched
    return items | _activations(shape, layout, job, stage)


def _activations(shape: Shape, layout: Layout, job: Job, stage: Stage) -> dict[str, float]:
    cut = layout.cut(job)
    kept = stage.dense * layer_bytes(shape, cut)
    if stage.sparse:
        kept += stage.sparse * layer_bytes(shape, cut, True)
    flying = in_flight(layout.schedule, layout.pp, layout.vpp, micro_batches(layout, job), stage.index)
    items = {"activations": flying * kept}
    if layout.recompute != "none":
        whole = replace(cut, recompute="none")
        items["layer recomputed"] = layer_bytes(shape, whole, stage.sparse > 0) - layer_bytes(
            shape, cut, stage.sparse > 0
        )
    if stage.head:
        # Logits in bf16, and in fp32 for the loss: arXiv 2205.05198, 4.3 counts the fp32 ones.
        items["logits"] = 6 * cut.tokens * shape.vocab / layout.tp
    return items


def _largest_layer(shape: Shape, layout: Layout, stage: Stage) -> float:
    if not stage.sparse:
        return layer_parameters(shape, False) / layout.tp
    experts = shape.moe.experts * ffn_parameters(shape, shape.moe.expert_hidden) / layout.ep
    return layer_parameters(shape, True, 0) / layout.tp + experts
