"""`commbench plan MODEL --serving`: what inference takes of memory and time, as lines for a terminal."""

from commbench.cli.columns import aligned
from commbench.planning.batching import decoder_of, lengths_of, naive_gain, simulate_batching, speculative_speedup
from commbench.planning.flops import model_flops_per_token
from commbench.planning.kv_cache import kv_bytes_per_token, multi_head_bytes_per_token
from commbench.planning.machine import Machine
from commbench.planning.serving import kv_transfer, kv_use
from commbench.shapes import Shape
from commbench.shapes.counts import active_parameters, parameters

# ShareGPT as vLLM's paper has it (arXiv 2309.06180, figure 11): mean prompt and output, and the longest of both.
PROMPT, OUTPUT, LONGEST, REQUESTS, SLOTS = 161, 338, 2048, 4000, 32
ACCEPTANCE, DRAFTED, DRAFT_COST = 0.7, 4, 0.05


def serving_lines(shape: Shape, machine: Machine) -> list[str]:
    """Weights and cache, paging, batching, prefill apart from decode, speculative decoding."""
    return [
        f"{shape.name} served in bf16 on {machine.gpu.name}, {machine.links.source}",
        "",
        *_memory(shape, machine),
        "",
        *_batching(),
        "",
        *_split(shape, machine),
        "",
        *_speculative(shape, machine),
    ]


def _memory(shape: Shape, machine: Machine) -> list[str]:
    weights, card = 2 * parameters(shape), machine.gpu.memory_GB * 1e9
    gpus = next(n for n in (2**k for k in range(20)) if weights < 0.9 * card * n)
    one, multi = kv_bytes_per_token(shape), multi_head_bytes_per_token(shape)
    left = 0.9 * card * gpus - weights
    return [
        f"weights {weights / 1e9:.0f} GB: {gpus} GPUs of {machine.gpu.memory_GB:g} GB, a tenth of each kept free",
        f"cache {one:,.0f} bytes a token, 1/{multi / one:.1f} of plain multi-head; {left / one:,.0f} tokens fit there",
    ]


def _batching() -> list[str]:
    half = LONGEST // 2
    prompts = lengths_of("lognormal", PROMPT, REQUESTS, half, seed=1)
    rows = [["output lengths", "mean", "cache used, reserved %", "in pages %", "continuous / static", "/ naive static"]]
    for kind in ("equal", "uniform", "exponential", "lognormal"):
        outputs = lengths_of(kind, OUTPUT, REQUESTS, half, seed=2)
        use = kv_use(prompts, outputs, LONGEST)
        slots = max(1, int(SLOTS * use.contiguous / use.paged))
        gain = simulate_batching(outputs, SLOTS).gain
        rows.append([
            kind, f"{outputs.mean():.0f}", f"{100 * use.contiguous:.1f}", f"{100 * use.paged:.1f}", f"{gain:.1f}",
            f"{naive_gain(outputs, SLOTS, slots):.1f}",
        ])  # fmt: skip
    return [
        f"batching of {REQUESTS} requests, prompts of {PROMPT} tokens in the mean, {LONGEST} reserved, {SLOTS} slots",
        *aligned(rows),
        "  continuous / static: the same slots, so the variance of lengths alone; naive static: only as many slots as",
        "  reserved memory leaves, waiting for the longest; kernels are the same, time a step does not grow with slots",
    ]


def _split(shape: Shape, machine: Machine) -> list[str]:
    prompt, tp = 8192, 8
    rate = machine.gpu.bf16_TFLOPs * 1e12 * machine.efficiency
    prefill_s = prompt * model_flops_per_token(shape, prompt, "causal") / 3 / (rate * tp)
    lines = [f"prefill apart from decode: a prompt of {prompt} tokens on tp {tp}, {1e3 * prefill_s:.0f} ms of prefill"]
    for where, across in (("within a domain", False), ("between domains", True)):
        told = kv_transfer(shape, prompt, prefill_s, machine.links, across, tp)
        span = f"{told.time.low_us / 1e3:.2f} to {told.time.high_us / 1e3:.2f}"
        lines.append(
            f"  {told.size_bytes / 1e9:.2f} GB of cache {where}: {told.time.time_us / 1e3:.2f} ms ({span}), "
            f"{100 * told.share_of_prefill:.2f} % of the prefill"
        )
    return lines


def _speculative(shape: Shape, machine: Machine) -> list[str]:
    gpu = machine.gpu
    decoder = decoder_of(active_parameters(shape), gpu.memory_GBps, gpu.bf16_TFLOPs, machine.efficiency)
    batches = (1, 4, 16, 64, 128, 256, 512)
    gains = [speculative_speedup(decoder, batch, ACCEPTANCE, DRAFTED, DRAFT_COST) for batch in batches]
    told = ", ".join(f"{gain:.2f} at batch {batch}" for batch, gain in zip(batches, gains))
    return [
        f"speculative decoding, {DRAFTED} drafted, {100 * ACCEPTANCE:.0f} % accepted, a draft pass {DRAFT_COST:g} of a "
        "plain one",
        f"  times as fast: {told}",
        f"  arithmetic takes over from {decoder.ridge_tokens:.0f} tokens a pass; there rejected tokens cost time",
    ]
