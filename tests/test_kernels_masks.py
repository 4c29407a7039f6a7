"""Masks counted in closed form, against masks counted one pair at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.kernels.attention_reference import allowed
from commbench.kernels.masks import CAUSAL, FULL, Mask, check, key_bounds, pairs, query_bounds

_LIMIT = st.none() | st.integers(0, 12)


def brute(mask: Mask, sq: int, sk: int) -> np.ndarray:
    """Which pairs are allowed, written down from the words of the definition."""
    seen = np.zeros((sq, sk), bool)
    document = [n for n, length in enumerate(mask.documents) for _ in range(length)]
    for i in range(sq):
        own = i + sk - sq
        for j in range(sk):
            before, after = own - j, j - own
            seen[i, j] = (
                (mask.left is None or before <= mask.left)
                and (mask.right is None or after <= mask.right)
                and (not document or document[i] == document[j])
            )
    return seen


def agree(mask: Mask, sq: int, sk: int) -> None:
    seen = brute(mask, sq, sk)
    assert pairs(mask, sq, sk) == seen.sum()
    assert (allowed(mask, sq, sk).numpy() == seen).all()
    low, high = key_bounds(mask, sq, sk)
    keys = np.arange(sk)
    assert ((keys >= low[:, None]) & (keys < high[:, None]) == seen).all()
    first, last = query_bounds(mask, sq, sk)
    queries = np.arange(sq)[:, None]
    assert ((queries >= first) & (queries < last) == seen).all()
    assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()  # tiles rely on it


@given(_LIMIT, _LIMIT, st.integers(1, 14), st.integers(1, 14))
def test_bands_of_unequal_lengths(left, right, sq, sk):
    agree(Mask(left, right), sq, sk)


@given(_LIMIT, _LIMIT, st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(sum))
def test_documents_empty_ones_too(left, right, documents):
    agree(Mask(left, right, tuple(documents)), sum(documents), sum(documents))


def test_what_everybody_counts():
    assert pairs(FULL, 4096, 4096) == 4096**2
    assert pairs(CAUSAL, 4096, 4096) == 4096 * 4097 // 2  # a little more than half: the diagonal is allowed
    assert pairs(CAUSAL, 1, 4096) == 4096  # decoding
    assert pairs(CAUSAL, 10, 4) == 10  # the first six queries see nothing
    assert pairs(Mask(1023, 0), 8192, 8192) == 1024 * 8192 - 1023 * 1024 // 2
    assert pairs(Mask(right=0, documents=(3, 5)), 8, 8) == 6 + 15


def test_closed_form_is_fast_enough_for_a_million_tokens():
    assert pairs(Mask(4096, 0), 2**20, 2**20) == 4097 * 2**20 - 4096 * 4097 // 2


@pytest.mark.parametrize(
    "mask, sq, sk, told",
    [
        (FULL, 0, 5, "sequence lengths are 0 queries and 5 keys"),
        (FULL, 5, 0, "both must be 1 or more"),
        (Mask(left=-1), 5, 5, "the window is -1 to the left"),
        (Mask(documents=(2, 2)), 5, 5, "documents of 4 tokens do not make up 5 queries"),
        (Mask(documents=(2, 2)), 4, 5, "attends to itself"),
        (Mask(documents=(6, -1)), 5, 5, "documents of 5 tokens"),
    ],
)
def test_what_cannot_be_is_refused(mask, sq, sk, told):
    with pytest.raises(UsageError, match=told):
        check(mask, sq, sk)


def test_masks_are_told_in_words():
    assert str(FULL) == "full"
    assert str(Mask(1024, 0, (3, 4))) == "causal, window 1024, 2 documents"
