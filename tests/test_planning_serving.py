"""Inference: paging, batching, prefill apart from decode, speculative decoding."""

import numpy as np
import pytest

from commbench.errors import UsageError
from commbench.fabrics import load_fabric
from commbench.planning.batching import (
    accepted_tokens,
    decoder_of,
    lengths_of,
    naive_gain,
    simulate_batching,
    speculative_speedup,
)
from commbench.planning.links import fabric_links
from commbench.planning.serving import kv_transfer, kv_use
from commbench.shapes import read_shape


def brute_force_use(prompts, outputs, reserved, page):
    held = contiguous = paged = 0
    for prompt, output in zip(prompts, outputs):
        for made in range(1, output + 1):
            tokens = prompt + made
            held, contiguous = held + tokens, contiguous + reserved
            paged += -(-tokens // page) * page
    return held / contiguous, held / paged


def test_kv_use_is_what_counting_each_step_gives():
    draw = np.random.default_rng(0)
    prompts, outputs = draw.integers(1, 90, 40), draw.integers(1, 200, 40)
    for page in (1, 7, 16):
        told = kv_use(prompts, outputs, 300, page)
        assert (told.contiguous, told.paged) == pytest.approx(brute_force_use(prompts, outputs, 300, page))
    assert kv_use(prompts, outputs, 300, 1).paged == 1


def test_conversations_use_a_fifth_to_two_fifths_of_reserved_memory_and_nearly_all_of_pages():
    # ShareGPT as vLLM's paper has it: prompts of 161 tokens in the mean, outputs of 338; 2048 reserved.
    prompts = lengths_of("lognormal", 161, 4000, 1000, 1.0, seed=1)
    outputs = lengths_of("lognormal", 338, 4000, 1000, 1.0, seed=2)
    told = kv_use(prompts, outputs, 2048)
    assert 0.204 <= told.contiguous <= 0.382 and told.paged > 0.96
    with pytest.raises(UsageError, match="does not fit into 100 reserved"):
        kv_use(prompts, outputs, 100)
    with pytest.raises(UsageError, match="1 token or more"):
        kv_use([0], [1], 100)


def test_continuous_batching_gains_by_the_variance_of_lengths():
    gains = [
        simulate_batching(lengths_of(kind, 300, 4000, 2048), 32).gain for kind in ("equal", "uniform", "exponential")
    ]
    assert gains[0] == pytest.approx(1.0)
    assert 1.7 < gains[1] < 2.1 and 3.5 < gains[2] < 4.5  # the longest of 32 is 1.94, and 4.06 times the mean
    assert simulate_batching(lengths_of("exponential", 300, 4000, 2048), 1).gain == 1


def test_the_23_times_needs_a_naive_baseline():
    lengths = lengths_of("exponential", 300, 4000, 2048)
    # Slots that reserve full lengths and wait for the longest, against pages: as many times over again.
    naive = naive_gain(lengths, 64, 8)
    good = naive_gain(lengths, 64, 64)
    assert naive > 15 > 5 > good > 2


def test_batching_by_hand():
    told = simulate_batching([1, 5, 1, 5], 2)
    assert told.static == 12 / 10 and told.continuous == 12 / 7
    with pytest.raises(UsageError, match="1 slot or more"):
        simulate_batching([1], 0)
    with pytest.raises(UsageError, match="lengths 'normal' are not known"):
        lengths_of("normal", 10, 5, 10)


def test_moving_the_cache_of_a_prompt():
    links = fabric_links(load_fabric("h100-8x400g"))
    shape = read_shape("llama3-405b")
    near, far = (kv_transfer(shape, 8192, 2.0, links, across, tp=8) for across in (False, True))
    assert near.size_bytes == far.size_bytes == 516_096 * 8192
    assert far.time.time_us == pytest.approx(4 + 516_096 * 8192 / 8 / 48e3)
    assert near.share_of_prefill < 0.001 < far.share_of_prefill < 0.01  # within a node under 0.1 %
    latent = kv_transfer(read_shape("deepseek-v3"), 8192, 2.0, links, True, tp=8)
    assert latent.time.time_us == pytest.approx(4 + 70_272 * 8192 / 48e3)  # every rank needs the whole of it
    alone, wide = (
        kv_transfer(read_shape(m), 8192, 2.0, links, True, tp) for m, tp in (("deepseek-v3", 1), ("llama3-405b", 16))
    )
    assert alone.time == latent.time and wide.time == far.time  # 8 key heads on 16 ranks: each goes to two


def test_accepted_tokens_against_a_draw():
    assert accepted_tokens(0, 4) == 1 and accepted_tokens(1, 4) == 5
    draw = np.random.default_rng(0).random((200_000, 4)) < 0.7
    yielded = 1 + np.cumprod(draw, axis=1).sum(axis=1)
    assert accepted_tokens(0.7, 4) == pytest.approx(yielded.mean(), rel=0.01)
    with pytest.raises(UsageError, match="between 0 and 1"):
        accepted_tokens(1.1, 4)


def test_speculation_gains_at_batch_1_and_loses_at_a_large_one():
    decoder = decoder_of(8e9, 3350, 989.4, 0.7)
    told = [speculative_speedup(decoder, batch, 0.7, 4, 0.05) for batch in (1, 8, 64, 128, 256, 512)]
    assert told[0] == pytest.approx(accepted_tokens(0.7, 4) / (1 + 4 * 0.05)) and told[0] > 2
    assert told == sorted(told, reverse=True) and told[-1] < 1 < told[2]
    assert decoder.ridge_tokens == pytest.approx(989.4e12 / 3350e9)
