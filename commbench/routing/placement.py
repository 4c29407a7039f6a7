"""Which rank holds which expert. A physical expert is one copy of a logical one; a hot expert may have several."""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError
from commbench.routing.routing import Routing


@dataclass(frozen=True)
class Placement:
    """Physical expert p is a copy of logical_of[p] and lives on rank_of[p] of `ranks`; both int64 (physical,).

    Physical experts are numbered rank by rank, equally many on each.
    """

    rank_of: np.ndarray
    logical_of: np.ndarray
    ranks: int

    @property
    def per_rank(self) -> int:
        return len(self.rank_of) // self.ranks


def experts_per_rank(experts: int, ranks: int) -> int:
    """Raises UsageError where experts do not divide over the ranks."""
    if experts % ranks:
        raise UsageError(
            f"{experts} experts do not divide over {ranks} ranks; "
            f"{experts - experts % ranks or ranks} or {(experts // ranks + 1) * ranks} would"
        )
    return experts // ranks


def placed(logical_of: np.ndarray, ranks: int) -> Placement:
    """The placement whose physical experts, rank by rank, are copies of `logical_of`."""
    each = experts_per_rank(len(logical_of), ranks)
    return Placement(np.repeat(np.arange(ranks), each), np.asarray(logical_of, np.int64), ranks)


def linear(experts: int, ranks: int) -> Placement:
    """Experts 0, 1, 2 ... in order, equally many on each rank. Raises UsageError where they do not divide."""
    return placed(np.arange(experts), ranks)


def assign(routing: Routing, placement: Placement) -> tuple[np.ndarray, ...]:
    """The physical expert of each selection: int32 (tokens, top_k) for each source rank, -1 where there is none.

    A token takes the copy that a hash of its rank and number says, so that copies share the load whatever the order of
    the tokens, and every rank can work out the same.
    """
    experts = routing.experts
    copies = np.bincount(placement.logical_of, minlength=experts)
    if len(copies) > experts or not copies.all():
        raise UsageError(
            f"the placement holds copies of {np.count_nonzero(copies)} experts, the routing chooses among {experts}"
        )
    order = np.argsort(placement.logical_of, kind="stable").astype(np.int32)
    if len(order) == experts:
        where = np.append(order, np.int32(-1))  # id -1 reads the last entry
        return tuple(where[ids] for ids in routing.ids)
    start = np.append(np.cumsum(copies) - copies, 0)
    copies = np.append(copies, 1)
    assigned = []
    for rank, ids in enumerate(routing.ids):
        nth = start[ids] + (_spread(rank, len(ids))[:, None] % copies.astype(np.uint64)[ids]).astype(np.int64)
        assigned.append(np.where(ids < 0, np.int32(-1), order[nth]))
    return tuple(assigned)


def _spread(rank: int, tokens: int) -> np.ndarray:
    """A 64-bit hash of each token of a rank: the finaliser of MurmurHash3 (Appleby, public domain)."""
    h = np.arange(tokens, dtype=np.uint64) + np.uint64(rank << 32)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ (h >> np.uint64(33))) * np.uint64(factor)
    return h ^ (h >> np.uint64(33))
