"""Static against continuous batching, simulated over output lengths; and what speculative decoding gains.

One step makes one token for each running request; its time is that of a memory-bound decode, nearly the same for any
batch, so throughput is tokens over steps.
"""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError


@dataclass(frozen=True)
class Batching:
    """Tokens a step of each way, in tokens; `gain`: continuous over static at the same slots."""

    static: float
    continuous: float

    @property
    def gain(self) -> float:
        return self.continuous / self.static


def simulate_batching(lengths, slots: int) -> Batching:
    """Requests in their order on `slots` places.

    static: a batch ends with its longest request. continuous: a place is filled again in the step after it is free
    (iteration-level scheduling, Orca, OSDI 2022). The gain is what the lengths' spread costs the static one; where all
    are equal it is 1.
    """
    lengths = np.asarray(lengths)
    if lengths.size == 0 or lengths.min() < 1 or slots < 1:
        raise UsageError("batching needs requests of 1 token or more, and 1 slot or more")
    tokens = float(lengths.sum())
    batches = [lengths[i : i + slots].max() for i in range(0, len(lengths), slots)]
    ends = np.zeros(slots)
    for length in lengths:
        ends[np.argmin(ends)] += length
    return Batching(tokens / float(np.sum(batches)), tokens / float(ends.max()))


def naive_gain(lengths, slots_paged: int, slots_reserved: int) -> float:
    """Continuous batching with pages over static batching whose slots are reserved at full length: both effects."""
    return simulate_batching(lengths, slots_paged).continuous / simulate_batching(lengths, slots_reserved).static


def lengths_of(kind: str, mean: float, count: int, most: int, spread: float = 1.0, seed: int = 0) -> np.ndarray:
    """`count` output lengths in tokens, 1 to `most`: "equal", "uniform" (1 to 2 x mean), "exponential", or "lognormal"
    with a standard deviation of `spread` of the logarithm."""
    draw = np.random.default_rng(seed)
    if kind == "equal":
        drawn = np.full(count, mean)
    elif kind == "uniform":
        drawn = draw.uniform(1, 2 * mean, count)
    elif kind == "exponential":
        drawn = draw.exponential(mean, count)
    elif kind == "lognormal":
        drawn = draw.lognormal(np.log(mean) - spread**2 / 2, spread, count)
    else:
        raise UsageError(f"lengths {kind!r} are not known; there are equal, uniform, exponential, lognormal")
    return np.clip(np.rint(drawn), 1, most).astype(int)


def accepted_tokens(acceptance: float, drafted: int) -> float:
    """Tokens that one verification yields, expected: (1 - a^(k+1)) / (1 - a) (arXiv 2211.17192, equation 1)."""
    if not 0 <= acceptance <= 1 or drafted < 0:
        raise UsageError(f"acceptance {acceptance:g} of {drafted} drafted tokens: it lies between 0 and 1")
    return drafted + 1.0 if acceptance == 1 else (1 - acceptance ** (drafted + 1)) / (1 - acceptance)


@dataclass(frozen=True)
class Decoder:
    """Time of a decode pass in us: the larger of reading the weights once, and the arithmetic of its tokens."""

    weights_us: float
    token_us: float

    def pass_us(self, tokens: float) -> float:
        return max(self.weights_us, tokens * self.token_us)

    @property
    def ridge_tokens(self) -> float:
        """Tokens a pass at which arithmetic takes over."""
        return self.weights_us / self.token_us


def decoder_of(active_parameters: float, memory_GBps: float, peak_TFLOPs: float, share: float = 1.0) -> Decoder:
    """A bf16 decoder on one GPU: 2 bytes and 2 FLOPs a parameter; the cache is not counted."""
    return Decoder(
        2 * active_parameters / (memory_GBps * share) / 1e3, 2 * active_parameters / (peak_TFLOPs * share) / 1e6
    )


def speculative_speedup(decoder: Decoder, batch: int, acceptance: float, drafted: int, draft_cost: float) -> float:
    """Speed over plain decoding: tokens of a verification over its time in plain passes.

    draft_cost: one draft pass over one plain pass (arXiv 2211.17192, theorem 3.8, at batch 1). Verifying k + 1 tokens
    for each of `batch` requests is free while reading the weights bounds it; beyond that rejected tokens cost time, so
    a large batch can lose.
    """
    plain = decoder.pass_us(batch)
    verify = decoder.pass_us(batch * (drafted + 1)) + drafted * draft_cost * plain
    return accepted_tokens(acceptance, drafted) * plain / verify
