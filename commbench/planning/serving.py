"""Memory accounts of inference: what paging wastes, and what moving a cache from prefill to decode costs."""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError
from commbench.planning.kv_cache import kv_bytes_per_token
from commbench.planning.links import Group, Links, Told
from commbench.shapes import Shape


@dataclass(frozen=True)
class KvUse:
    """Shares of the reserved cache that hold a token's state: with one run of memory for each request, with pages."""

    contiguous: float
    paged: float


def kv_use(prompts, outputs, reserved_tokens: int, page_tokens: int = 16) -> KvUse:
    """Use of the cache by requests with so many prompt and output tokens, over the time they run.

    contiguous: `reserved_tokens` for each from its first token (arXiv 2309.06180, figure 2: 20.4 to 38.2 % used).
    paged: only the last page is part empty (the same paper: under 4 % waste). A request holds its prompt, and one token
    more with each step. Raises UsageError where a request does not fit.
    """
    prompts, outputs = _lengths(prompts), _lengths(outputs)
    if (prompts + outputs).max() > reserved_tokens:
        raise UsageError(
            f"a request of {(prompts + outputs).max()} tokens does not fit into {reserved_tokens} reserved ones"
        )
    held = outputs * prompts + outputs * (outputs + 1) / 2  # summed over the steps of a request

    def pages(tokens):
        """Tokens of whole pages, summed over 1 to `tokens` tokens."""
        full, rest = tokens // page_tokens, tokens % page_tokens
        return page_tokens * (page_tokens * full * (full + 1) / 2 + rest * (full + 1))

    paged = (pages(prompts + outputs) - pages(prompts)).sum()
    return KvUse(float(held.sum() / (outputs * reserved_tokens).sum()), float(held.sum() / paged))


@dataclass(frozen=True)
class KvTransfer:
    """Moving a prompt's cache from a prefill to a decode GPU: bytes, time, and that time over the prefill's."""

    size_bytes: float
    time: Told
    share_of_prefill: float


def kv_transfer(
    shape: Shape, prompt_tokens: int, prefill_s: float, links: Links, across: bool, tp: int = 1
) -> KvTransfer:
    """The transfer over one link of each of `tp` ranks, between domains where `across`. Each rank takes the key heads
    that it needs: a head that several ranks share goes to each of them, and MLA's latent vector to all."""
    size = kv_bytes_per_token(shape) * prompt_tokens
    parts = 1 if shape.mla else min(tp, shape.kv_heads)
    told = links.time("send", Group(2, 1) if across else Group(2, 2), size / parts)
    return KvTransfer(size, told, told.time_us / (prefill_s * 1e6))


def _lengths(lengths) -> np.ndarray:
    lengths = np.asarray(lengths)
    if lengths.size == 0 or lengths.min() < 1:
        raise UsageError("requests have 1 token or more each")
    return lengths
