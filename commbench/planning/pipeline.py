"""Pipeline schedules by their closed forms: the bubble, the micro-batches in flight, copies of parameters.

p stages, v chunks a rank, m micro-batches. F, B, W: forward, whole backward, and its weight-gradient half of one
micro-batch on one rank.
"""

from dataclasses import dataclass

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb_h1", "dualpipe")


@dataclass(frozen=True)
class Work:
    """Times of one micro-batch on one rank, in us: forward, whole backward, and the weight gradients within it."""

    forward_us: float
    backward_us: float
    weight_us: float


def bubble_us(schedule: str, stages: int, chunks: int, work: Work) -> float:
    """Idle time of a rank in one step.

    gpipe, 1f1b (p-1)(F+B) and interleaved (p-1)(F+B)/v: arXiv 2104.04473 (Megatron-LM 2), 2.2. zb_h1, which
    DeepSeek calls ZB1P, (p-1)(F+B-2W), dualpipe (p/2-1)(F&B+B-3W): deepseek-ai/DualPipe README, with F&B = F + B.
    """
    if stages == 1:
        return 0.0
    forward, backward, weight = work.forward_us, work.backward_us, work.weight_us
    if schedule == "zb_h1":
        return (stages - 1) * (forward + backward - 2 * weight)
    if schedule == "dualpipe":
        return (stages / 2 - 1) * (forward + 2 * backward - 3 * weight)
    return (stages - 1) * (forward + backward) / (chunks if schedule == "interleaved" else 1)


def bubble_ratio(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble over ideal time of 1F1B: (p-1)/(m v), arXiv 2104.04473, 2.2."""
    return (stages - 1) / (micro_batches * chunks)


def in_flight(schedule: str, stages: int, chunks: int, micro_batches: int, stage: int) -> float:
    """The most micro-batches whose activations a rank keeps, in activations of all its layers.

    gpipe m; 1f1b p - stage; interleaved ((v-1) p + 2 (p - stage - 1) + 1)/v, at the first rank p (1 + (p-1)/(p v)):
    NVIDIA/Megatron-LM, get_pp_rank_microbatches and theoretical_memory_usage.py; zb_h1 p; dualpipe p + 1: DualPipe
    README.
    """
    most = {
        "gpipe": micro_batches,
        "1f1b": stages - stage,
        "interleaved": ((chunks - 1) * stages + 2 * (stages - stage - 1) + 1) / chunks,
        "zb_h1": stages,
        "dualpipe": stages + 1,
    }[schedule]
    return min(micro_batches, most) if stages > 1 else 1


def parameter_copies(schedule: str) -> int:
    """Copies of its stage's weights and gradients that a rank holds.

    DualPipe's 2 stands here: it runs both directions, so a rank holds two stages. It is parameters, not activations
    (these are p + 1 in place of p).
    """
    return 2 if schedule == "dualpipe" else 1


def layers_of_stages(layers: int, stages: int) -> list[int]:
    """Layers of each stage: as even as can be, the last and the first stage (head, embedding) with one less first."""
    most = -(-layers // stages)
    split = [most] * stages
    order = [stages - 1, 0, *range(stages - 2, 0, -1)] if stages > 1 else [0]
    for spare in range(most * stages - layers):
        split[order[spare % stages]] -= 1
    return split
