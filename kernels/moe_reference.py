"""What experts do with tokens, in plain torch: sort them by expert, multiply each group by its expert, bring them back.

Shapes: x [T, h]; ids int [T, K], the experts of a token, -1 where it goes nowhere; weights [T, K]; w [E, h, n].
"""

from typing import NamedTuple

import torch

from commbench.errors import UsageError


class Order(NamedTuple):
    """The copies of tokens in the order of their experts. counts [E]: of each expert; token [N]: where a copy is from;
    place [T, K]: where a token's copy stands, -1 where there is none."""

    counts: torch.Tensor
    token: torch.Tensor
    place: torch.Tensor


def order(ids: torch.Tensor, experts: int) -> Order:
    """Raises UsageError for an expert that is not there."""
    if ids.numel() and (int(ids.min()) < -1 or int(ids.max()) >= experts):
        raise UsageError(f"tokens ask for experts {int(ids.min())} to {int(ids.max())}; there are 0 to {experts - 1}")
    flat = ids.flatten().long()
    chosen = flat >= 0
    by_expert = torch.argsort(torch.where(chosen, flat, experts), stable=True)[: int(chosen.sum())]
    place = torch.full_like(flat, -1)
    place[by_expert] = torch.arange(len(by_expert), device=ids.device)
    return Order(torch.bincount(flat[chosen], minlength=experts), by_expert // ids.shape[1], place.view_as(ids))


def permute(x: torch.Tensor, how: Order) -> torch.Tensor:
    """[N, h]: a copy of its token for each expert that it goes to, sorted by expert."""
    return x[how.token]


def unpermute(y: torch.Tensor, how: Order, weights: torch.Tensor) -> torch.Tensor:
    """[T, n]: the weighted sum of what a token's experts gave, in float32; zero for a token that went nowhere."""
    if not len(y):
        return y.new_zeros(len(weights), y.shape[1])
    taken = y[how.place.clamp_min(0)].float() * (weights.float() * (how.place >= 0)).unsqueeze(-1)
    return taken.sum(1).to(y.dtype)


def grouped_gemm(x: torch.Tensor, w: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """[N, n]: the rows of each expert times its matrix, one after the other, in float32."""
    parts = [part.float() @ w[i].float() for i, part in enumerate(x.split(counts.tolist()))]
    return torch.cat(parts).to(x.dtype)
