"""The published bubbles and peaks of pipeline schedules.

p ranks, m micro-batches, F, B, W: times of forward, gradient of the input, gradient of the weights on one rank's share.
"""

from commbench.schedules.stages_simulate import Costs


def bubble(name: str, p: int, m: int, costs: Costs, chunks: int = 2) -> float | None:
    """Idle time of a rank in a step (by makespan), messages taking no time; None where nothing is published.

    gpipe, 1f1b: (p-1)(F+B+W); interleaved: that over its chunks (arXiv 2104.04473, 2.2; papers write B for B+W).
    zb_h1: (p-1)(F+B-W) (arXiv 2401.10241, table 2), for p micro-batches or more. dualpipe: (p/2-1)(F&B+B-2W)
    (deepseek-ai/DualPipe, README, which writes B for B+W and so -3W); dualpipe_v: its p counts stages, which are twice
    as many as ranks and half as long. zb_v: none between a rank's first and last cell where F = B = W; the last rank
    begins p-1 stages late all the same, which is (p-1)F/2.
    """
    f, b, w = costs.forward, costs.input, costs.weight
    both = f + b + w if costs.overlapped is None else costs.overlapped
    if name in ("gpipe", "1f1b"):
        return (p - 1) * (f + b + w)
    if name == "interleaved":
        return (p - 1) * (f + b + w) / chunks
    if name == "zb_h1":
        return (p - 1) * (f + b - w) if m >= p else None
    if name == "zb_v":
        alike = max(f, b, w) <= 1.01 * min(f, b, w)  # what was measured is never quite
        return (p - 1) * f / 2 if alike and m >= 2 * p - 1 else None
    return (p / 2 - 1) * (both + b - 2 * w) if name == "dualpipe" else (p - 1) * (both + b - 2 * w) / 2


def peak(name: str, p: int, m: int, chunks: int = 2) -> float:
    """Activations of the rank that keeps most, in those of one rank's share of one micro-batch (sources as above)."""
    most = {
        "gpipe": m, "1f1b": p, "interleaved": p + (p - 1) / chunks, "zb_h1": p, "zb_v": p, "dualpipe": p + 1,
        "dualpipe_v": p + 0.5,
    }[name]  # fmt: skip
    return min(m, most)


def copies_of_parameters(name: str) -> int:
    """DualPipe runs two copies of the model in opposite directions."""
    return 2 if name == "dualpipe" else 1
