"""Which keys a query may see, and how many pairs that makes: exact, in closed form.

Queries are the last of the keys (flash-attention's convention since 2.1): query i of Sq stands at the position
p = i + Sk - Sq, and sees the keys j of p - left .. p + right, within its own document.
"""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError


@dataclass(frozen=True)
class Mask:
    """left, right: how many keys before and after its own position a query sees; None: all. documents: the lengths of
    the documents that are packed into one sequence, which see nothing of each other; (): one document."""

    left: int | None = None
    right: int | None = None
    documents: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = ["causal"] if self.right == 0 else [f"right {self.right}"] if self.right is not None else []
        words += [f"window {self.left}"] if self.left is not None else []
        words += [f"{len(self.documents)} documents"] if self.documents else []
        return ", ".join(words) or "full"


FULL = Mask()
CAUSAL = Mask(right=0)


def check(mask: Mask, sq: int, sk: int) -> None:
    """Raise UsageError for lengths, a window or documents that cannot be."""
    if sq < 1 or sk < 1:
        raise UsageError(f"sequence lengths are {sq} queries and {sk} keys; both must be 1 or more")
    if min(x for x in (mask.left, mask.right, 0) if x is not None) < 0:
        raise UsageError(f"the window is {mask.left} to the left and {mask.right} to the right; both must be 0 or more")
    if mask.documents and (sq != sk or sum(mask.documents) != sq or min(mask.documents) < 0):
        raise UsageError(
            f"documents of {sum(mask.documents)} tokens do not make up {sq} queries and {sk} keys; "
            "their lengths must add up to the sequence, which attends to itself"
        )


def pairs(mask: Mask, sq: int, sk: int) -> int:
    """How many (query, key) pairs of one head are allowed."""
    if mask.documents:
        return sum(_band(mask.left, mask.right, length, length) for length in mask.documents)
    return _band(mask.left, mask.right, sq, sk)


def _band(left: int | None, right: int | None, sq: int, sk: int) -> int:
    """Pairs with -left <= j - i - (sk - sq) <= right."""
    offset = sk - sq
    within = sq * sk if right is None else _at_most(sq, sk, offset + right)
    before = 0 if left is None else _at_most(sq, sk, offset - left - 1)
    return within - before


def _at_most(sq: int, sk: int, diagonal: int) -> int:
    """Pairs with j - i <= diagonal: row i has diagonal + i + 1 keys, but at least 0 and at most sk."""
    return _rising(diagonal + sq, sk) - _rising(diagonal, sk)


def _rising(n: int, most: int) -> int:
    """1 + 2 + ... + n, each term no larger than `most`; 0 for a negative n."""
    full = max(n, 0)
    ramp = min(full, most)
    return ramp * (ramp + 1) // 2 + (full - ramp) * most


def key_bounds(mask: Mask, sq: int, sk: int) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), int32 [Sq]: query i sees the keys low[i] <= j < high[i], none where high[i] <= low[i].

    Neither ever falls from a query to the next, so the first and the last query of a tile bound the keys of all.
    """
    own = np.arange(sq) + sk - sq
    begins, ends = np.zeros(sq, int), np.full(sq, sk)
    if mask.documents:
        stops = np.cumsum(mask.documents)
        begins, ends = (np.repeat(x, mask.documents) for x in (stops - mask.documents, stops))
    low = begins if mask.left is None else np.maximum(begins, own - mask.left)
    high = ends if mask.right is None else np.minimum(ends, own + mask.right + 1)
    return low.astype(np.int32), high.astype(np.int32)


def query_bounds(mask: Mask, sq: int, sk: int) -> tuple[np.ndarray, np.ndarray]:
    """(first, last), int32 [Sk]: key j is seen by the queries first[j] <= i < last[j]."""
    low, high = key_bounds(mask, sq, sk)
    keys = np.arange(sk)
    first, last = np.searchsorted(high, keys, side="right"), np.searchsorted(low, keys, side="right")
    return first.astype(np.int32), last.astype(np.int32)
