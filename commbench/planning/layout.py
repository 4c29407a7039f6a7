"""A layout: how ranks are cut into groups, and the job that runs on them. What cannot be is refused here."""

from dataclasses import dataclass, fields, replace

from commbench.errors import UsageError
from commbench.planning.activations import RECOMPUTE, Cut
from commbench.planning.pipeline import SCHEDULES
from commbench.shapes import Shape

CP_KINDS = ("all_gather", "ring", "ulysses")


@dataclass(frozen=True)
class Layout:
    """Degrees of tensor, context, data, pipeline, and expert parallelism, and chunks a pipeline rank (vpp).

    Ranks are numbered in the order tp, cp, dp, pp: the innermost first (Megatron-LM's default, "tp-cp-ep-dp-pp"). ep
    lies within tp x cp x dp: experts are spread over these ranks and not cut further. zero: stage. sp: norms split
    by tp. cp_kind: how keys and values meet. flash, dropout: as activations.Cut has them.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    zero: int = 1
    micro_batch: int = 1
    recompute: str = "none"
    schedule: str = "1f1b"
    sp: bool = True
    cp_kind: str = "all_gather"
    flash: bool = True
    dropout: bool = False

    @property
    def ranks(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def expert_dp(self) -> int:
        """Ranks that hold the same experts."""
        return self.tp * self.cp * self.dp // self.ep

    def cut(self, job: "Job") -> Cut:
        """How a layer is cut, for activations.py."""
        return Cut(
            job.sequence, self.micro_batch, self.tp, self.cp, self.sp, self.flash, self.recompute, self.dropout,
            job.precision == "fp8", job.element_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What runs: `gpus` ranks, sequences of `sequence` tokens, `global_batch` of them a step, matrix products in
    `precision` (bf16, fp8 or fp32), optimizer `recipe`."""

    gpus: int
    sequence: int
    global_batch: int
    precision: str = "bf16"
    recipe: str = "adam-fp32-grads"

    @property
    def wide(self) -> str:
        """The precision of what fp8 leaves out: attention, the output layer (arXiv 2412.19437, 3.3.1)."""
        return "fp32" if self.precision == "fp32" else "bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation."""
        return 4 if self.precision == "fp32" else 2


def micro_batches(layout: Layout, job: Job) -> int:
    """Micro-batches that a pipeline runs in one step."""
    return job.global_batch // (layout.dp * layout.micro_batch)


def parse_layout(text: str, gpus: int | None = None) -> Layout:
    """The layout written as tp=8,pp=16,...; dp is what is left of `gpus` where it is not given.

    Raises UsageError for an unknown or repeated key, and for a value of another type.
    """
    kinds = {field.name: field.type for field in fields(Layout)}
    given = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in kinds:
            raise UsageError(f"layout {part!r} is not understood; write tp=8,pp=16 with {', '.join(kinds)}")
        if key in given:
            raise UsageError(f"layout names {key} twice")
        given[key] = _value(key, value, kinds[key])
    if not given:
        raise UsageError("the layout is empty; write tp=8,pp=16, or leave --layout out to rank all that fit")
    layout = Layout(**given)
    _check_degrees(layout)
    if "schedule" not in given and layout.vpp > 1:
        layout = replace(layout, schedule="interleaved")
    if "dp" not in given and gpus is not None:
        model = layout.tp * layout.cp * layout.pp
        if gpus % model:
            raise UsageError(f"tp x cp x pp is {model}, which does not divide {gpus} GPUs; change one of them")
        layout = replace(layout, dp=gpus // model)
    return layout


def check_layout(shape: Shape, layout: Layout, job: Job) -> None:
    """UsageError, in one sentence, where this layout of this model cannot be."""
    _check_degrees(layout)
    if layout.ranks != job.gpus:
        raise UsageError(
            f"tp x cp x pp x dp is {layout.tp} x {layout.cp} x {layout.pp} x {layout.dp} = {layout.ranks}, "
            f"but the job has {job.gpus} GPUs"
        )
    _check_tp(shape, layout)
    if layout.pp * layout.vpp > shape.layers + 2:  # the embedding and the head may be chunks of their own
        raise UsageError(f"pp x vpp is {layout.pp * layout.vpp}, but {shape.name} has {shape.layers} layers to cut")
    _check_schedule(layout, job)
    if layout.recompute not in RECOMPUTE:
        raise UsageError(f"recompute {layout.recompute!r} is not known; there are {', '.join(RECOMPUTE)}")
    if layout.zero not in (0, 1, 2, 3):
        raise UsageError(f"ZeRO has the stages 0 to 3, not {layout.zero}")
    if layout.cp_kind not in CP_KINDS:
        raise UsageError(f"cp_kind {layout.cp_kind!r} is not known; there are {', '.join(CP_KINDS)}")
    _check_sequence(shape, layout, job)
    _check_experts(shape, layout)
    share = layout.dp * layout.micro_batch
    if job.global_batch % share:
        raise UsageError(
            f"dp x micro_batch is {share}, which does not divide the global batch of {job.global_batch} sequences"
        )


def _check_degrees(layout: Layout) -> None:
    for key in ("tp", "cp", "dp", "pp", "vpp", "ep", "micro_batch"):
        if getattr(layout, key) < 1:
            raise UsageError(f"{key} is {getattr(layout, key)}; it must be 1 or more")


def _check_schedule(layout: Layout, job: Job) -> None:
    """Interleaving needs a micro-batch for each stage (NVIDIA/Megatron-LM, schedules.py), DualPipe an even number of
    stages and two micro-batches for each (deepseek-ai/DualPipe, dualpipe.py)."""
    if layout.schedule not in SCHEDULES:
        raise UsageError(f"schedule {layout.schedule!r} is not known; there are {', '.join(SCHEDULES)}")
    if (layout.vpp > 1) != (layout.schedule == "interleaved"):
        raise UsageError(
            f"vpp is {layout.vpp} with schedule {layout.schedule}; vpp above 1 and interleaved go together"
        )
    if layout.schedule == "dualpipe" and layout.pp % 2:
        raise UsageError(f"pp is {layout.pp} with schedule dualpipe, which pairs stages: pp must be even")
    least = {"interleaved": layout.pp, "dualpipe": 2 * layout.pp}.get(layout.schedule, 1)
    if 1 <= micro_batches(layout, job) < least:
        raise UsageError(
            f"schedule {layout.schedule} needs {least} micro-batches on {layout.pp} stages; a global batch of "
            f"{job.global_batch} sequences makes {micro_batches(layout, job)}"
        )


def _check_tp(shape: Shape, layout: Layout) -> None:
    if layout.tp > shape.heads:
        raise UsageError(
            f"tp is {layout.tp}, but {shape.name} has {shape.heads} heads; a head is not cut, so use tp of "
            f"{shape.heads} or less"
        )
    if shape.heads % layout.tp:
        raise UsageError(f"tp is {layout.tp}, which does not divide the {shape.heads} heads of {shape.name}")


def _check_sequence(shape: Shape, layout: Layout, job: Job) -> None:
    if layout.cp_kind == "ulysses" and layout.cp * layout.tp > shape.heads:
        raise UsageError(
            f"cp by Ulysses is {layout.cp} with tp {layout.tp}, but {shape.name} has {shape.heads} heads to spread; "
            "use cp_kind=all_gather or ring, which have no such limit"
        )
    if layout.cp > 1 and job.sequence % (2 * layout.cp):
        raise UsageError(
            f"sequence {job.sequence} is no multiple of 2 x cp = {2 * layout.cp}, which causal balance needs"
        )


def _check_experts(shape: Shape, layout: Layout) -> None:
    if layout.ep == 1:
        return
    if shape.moe is None:
        raise UsageError(f"ep is {layout.ep}, but {shape.name} has no experts")
    if shape.moe.experts % layout.ep:
        raise UsageError(f"ep is {layout.ep}, which does not divide the {shape.moe.experts} experts of {shape.name}")
    inner = layout.tp * layout.cp * layout.dp
    if inner % layout.ep:
        raise UsageError(f"ep is {layout.ep}, which does not divide tp x cp x dp = {inner}")


def _value(key: str, text: str, kind: type):
    if kind is bool:
        words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if text.lower() not in words:
            raise UsageError(f"layout {key} is {text!r}; write on or off")
        return words[text.lower()]
    if kind is int:
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise UsageError(f"layout {key} is {text!r}; it must be a whole number")
        return int(text)
    return text


def describe(layout: Layout) -> str:
    """The layout in the words of --layout, without what is not cut and what is usual."""
    usual = Layout()
    words = [
        f"{key}={getattr(layout, key)}" for key in ("tp", "cp", "pp", "dp", "ep", "vpp") if getattr(layout, key) > 1
    ]
    words += [f"zero={layout.zero}"]
    if layout.micro_batch > 1:
        words.append(f"micro_batch={layout.micro_batch}")
    words += [f"{key}={getattr(layout, key)}" for key in ("recompute", "schedule", "cp_kind")
              if getattr(layout, key) != getattr(usual, key) and getattr(layout, key) != "interleaved"]  # fmt: skip
    words += [f"{key}={'on' if getattr(layout, key) else 'off'}" for key in ("sp", "flash", "dropout")
              if getattr(layout, key) != getattr(usual, key)]  # fmt: skip
    return ",".join(words)
