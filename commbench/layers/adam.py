"""Adam on flat tensors, on whatever device they lie."""

import torch
from torch.optim.adam import adam

BETAS = 0.9, 0.95


def adam_step(master, gradient, moments, steps: int, rate: float, epsilon: float) -> None:
    """One step in place, in one pass over the memory (torch's fused kernel).

    master, gradient and the two of `moments`: flat, fp32. steps: how many went before.
    """
    mean, square = moments
    adam(
        [master], [gradient], [mean], [square], [], [torch.tensor(float(steps), device=master.device)], fused=True,
        foreach=False, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=rate, weight_decay=0.0, eps=epsilon,
        maximize=False,
    )  # fmt: skip


def adam_reference(master, gradient, rate: float, epsilon: float):
    """What a first step makes of `master`: arXiv 1412.6980, algorithm 1 at t = 1, both averages without bias."""
    return master - rate * gradient / (gradient.abs() + epsilon)
