"""Published training runs (published.toml): what was measured, recounted, and what the step model says of them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from commbench.fabrics import load_fabric
from commbench.planning.flops import hardware_flops_per_token, model_flops_per_token
from commbench.planning.gpus import Gpu, gpu_named, gpu_of_fabric
from commbench.planning.layout import Job, Layout, check_layout, parse_layout
from commbench.planning.links import Links, fabric_links
from commbench.planning.machine import Assumptions
from commbench.shapes import Shape, read_shape

_FILE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class PublishedRun:
    """One run as its source has it. links: None where no fabric is known, so nothing is predicted.

    measured: step_s, tokens_per_s_per_gpu, mfu_percent, hfu_percent, TFLOPs_per_gpu, those that were published.
    convention: how its MFU counts attention. fits: whether its row fits the efficiency, or judges it.
    """

    name: str
    shape: Shape
    layout: Layout
    job: Job
    gpu: Gpu
    links: Links | None
    assume: Assumptions
    measured: dict[str, float]
    convention: str
    fits: bool
    source: str
    note: str = ""


@cache
def published_runs() -> tuple[PublishedRun, ...]:
    """The runs in the file's order. Within a GPU kind they alternate: one fits, the next judges."""
    seen: dict[str, int] = {}
    made = []
    for row in tomllib.loads(_FILE.read_text(encoding="utf-8"))["run"]:
        run = _run(row)
        position = seen.setdefault(run.gpu.name, 0)
        seen[run.gpu.name] += 1
        made.append(run if position % 2 == 0 else PublishedRun(**{**vars(run), "fits": False}))
    return tuple(made)


def kinds(runs: tuple[PublishedRun, ...]) -> dict[str, list[PublishedRun]]:
    """The runs by GPU kind."""
    found: dict[str, list[PublishedRun]] = {}
    for run in runs:
        found.setdefault(run.gpu.name, []).append(run)
    return found


def measured_tokens_per_s(run: PublishedRun) -> float:
    """Tokens a second and GPU: from the step time or the rate where they are published, else from the percentage."""
    told = run.measured
    if "step_s" in told:
        return run.job.global_batch * run.job.sequence / told["step_s"] / run.job.gpus
    if "tokens_per_s_per_gpu" in told:
        return told["tokens_per_s_per_gpu"]
    if "mfu_percent" in told:
        flops, percent = model_flops_per_token(run.shape, run.job.sequence, run.convention), told["mfu_percent"]
    else:
        flops = hardware_flops_per_token(run.shape, run.job.sequence, run.layout, run.convention)
        percent = told["hfu_percent"]
    return percent / 100 * run.gpu.bf16_TFLOPs * 1e12 / flops


def recounted_percent(run: PublishedRun) -> tuple[float, float]:
    """(MFU, HFU) in percent of the measured speed, counted here in the run's convention."""
    rate, sequence, peak = measured_tokens_per_s(run), run.job.sequence, run.gpu.bf16_TFLOPs * 1e10
    model = model_flops_per_token(run.shape, sequence, run.convention)
    hardware = hardware_flops_per_token(run.shape, sequence, run.layout, run.convention)
    return rate * model / peak, rate * hardware / peak


def suspicion(run: PublishedRun) -> str:
    """What is wrong with the printed percentage, "" where it agrees with the recount."""
    told, (model, hardware) = run.measured, recounted_percent(run)
    if "mfu_percent" not in told and "hfu_percent" in told:
        return (
            f"the {told['hfu_percent']:.0f} % counts recomputed FLOPs: it is an HFU; the MFU is {model:.0f} %"
        )  # fmt: skip
    printed = told.get("mfu_percent")
    if printed is None or abs(printed - model) <= max(1.0, 0.03 * model):
        return ""
    if abs(printed - hardware) < abs(printed - model) / 2:
        return f"the {printed:g} % counts recomputed FLOPs: it is an HFU; the MFU is {model:.1f} %"
    return f"printed {printed:g} %, recounted {model:.1f} % from the step time"


def _run(row: dict) -> PublishedRun:
    job = Job(
        row["gpus"], row["sequence"], row["global_batch"], row.get("precision", "bf16"),
        row.get("recipe", "adam-fp32-grads"),
    )  # fmt: skip
    shape, layout = read_shape(row["shape"]), parse_layout(row["layout"], job.gpus)
    check_layout(shape, layout, job)
    fabric = load_fabric(row["fabric"]) if "fabric" in row else None
    names = ("step_s", "tokens_per_s_per_gpu", "mfu_percent", "hfu_percent", "TFLOPs_per_gpu")
    return PublishedRun(
        name=row["name"],
        shape=shape,
        layout=layout,
        job=job,
        gpu=gpu_of_fabric(fabric.name) if fabric else gpu_named(row["gpu"]),
        links=fabric_links(fabric) if fabric else None,
        assume=Assumptions(tp_overlap=row.get("tp_overlap", False), dp_overlap=row.get("dp_overlap", True)),
        measured={name: row[name] for name in names if name in row},
        convention=row.get("convention", "full"),
        fits=True,
        source=row["source"],
        note=row.get("note", ""),
    )
