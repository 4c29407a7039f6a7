"""Everything about kernels that only a GPU can tell, in one script of under 6 minutes: checks, times, bars.

    python tests/benchmarks/gpu_check.py               # on the GPU
    python tests/benchmarks/gpu_check.py --rehearse    # the same steps in Triton's interpreter; its times mean nothing

Each step is done by itself, so that one that fails does not cost the others; the last lines say which bars were held.
Exit code: 0 all right, 1 a bar missed, 5 wrong results, 2 no GPU.
"""

import os
import sys
import time
import traceback

REHEARSE = "--rehearse" in sys.argv
if REHEARSE:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import numpy as np  # noqa: E402
import torch  # noqa: E402

from commbench.kernels import (  # noqa: E402
    attention_hopper,
    attention_triton,
    decode_reference,
    decode_triton,
    fp8_reference,
    fp8_triton,
    moe_reference,
    moe_triton,
    rowwise_reference,
    rowwise_triton,
    yardsticks,
)
from commbench.kernels.backends import BACKENDS, Backend  # noqa: E402
from commbench.kernels.bench import How, run  # noqa: E402
from commbench.kernels.check import expected  # noqa: E402
from commbench.kernels.clock import timed  # noqa: E402
from commbench.kernels.flops import Attention, executed_backward_flops, forward_flops  # noqa: E402
from commbench.kernels.inputs import draw  # noqa: E402
from commbench.kernels.masks import CAUSAL, FULL, Mask  # noqa: E402
from commbench.timing.stop_rule import StopRule  # noqa: E402

DEVICE = "cpu" if REHEARSE else "cuda"
SHORT = How(0.0 if REHEARSE else 0.05, StopRule(budget_s=0.01 if REHEARSE else 0.2))
DTYPES = ("float32",) if REHEARSE else ("bfloat16", "float16")
MOST_S = 3600 if REHEARSE else 330
OWN = {"triton": attention_triton, "triton-hopper": attention_hopper}
wrong: list[str] = []
bars: list[tuple[str, float, float]] = []  # what, reached, wanted


def own(name: str, case: Attention) -> Backend:
    return Backend(name, "", lambda *_: lambda q, k, v: OWN[name].attention(q, k, v, case.mask)[0])


def median_us(call) -> float:
    return float(np.median(timed([call], DEVICE, SHORT.rule, SHORT.warmup_s).samples_us))


def held(what: str, ours: torch.Tensor, right: torch.Tensor, share: float) -> None:
    """`ours` within `share` of the largest right value."""
    ours, right = ours.detach(), right.detach()
    error = float((ours.float() - right.float()).abs().max() / right.float().abs().max().clamp_min(1e-9))
    print(f"  {what}: largest error {error:.2g} of the largest value, allowed {share:g}", flush=True)
    if not error <= share:
        wrong.append(what)


def attention_is_right() -> None:
    """Masks, head dims, ratios of heads and odd lengths in 16 bits, forward and backward, by the gate."""
    n = 40 if REHEARSE else 1000
    one = Attention(2, 4, 2, n, n, 64, 64, mask=CAUSAL)
    cases = [one]
    cases += [Attention(1, 4, 1, n, n, *dims, mask=CAUSAL) for dims in ((128, 128), (256, 256), (192, 128))]
    cases += [Attention(1, 4, 4, n, n, 64, 64, mask=m) for m in (FULL, Mask(n // 8, 0), Mask(n // 8, n // 16))]
    cases += [Attention(1, 4, 2, n // 3, n, 128, 128, mask=CAUSAL), Attention(1, 4, 2, n, n // 3, 64, 64, mask=CAUSAL)]
    cases += [Attention(1, 4, 2, n, n, 128, 128, mask=Mask(right=0, documents=(n // 2, 0, 1, n - n // 2 - 1)))]
    for dtype in DTYPES:
        for shape in cases[:3] if REHEARSE else cases:
            case = Attention(**{**vars(shape), "dtype": dtype})
            inputs = draw(case, DEVICE)
            right = expected(case, *inputs)
            for name in OWN:
                if name == "triton-hopper" and case.dim == 192:
                    continue
                for which, found in run(
                    case, own(name, case), DEVICE, inputs, right, How(0.0, StopRule(fixed=1))
                ).items():
                    told = f"{name} {which} {dtype} {case.dim}/{case.dim_v} {case.mask} {case.sq}x{case.sk}"
                    if found.status != "ok":
                        wrong.append(told)
                        print(f"  {told}: {found.status}: {found.reason}", flush=True)
    print(f"  {len(wrong)} wrong")


def tiles() -> None:
    """Which tiles are fastest for causal attention at 16k, head dim 128; those of the file are marked."""
    n, dim = (64, 16) if REHEARSE else (16384, 128)
    case = Attention(1, 1 if REHEARSE else 16, 1 if REHEARSE else 16, n, n, dim, dim, DTYPES[-1], CAUSAL)
    q, k, v, do = draw(case, DEVICE)
    T = attention_triton.Tiles
    default = attention_triton.default_tiles(dim, 2)
    forward = [T(16, 16, 4, 1)] if REHEARSE else [
        T(128, 128, 8, 2), T(128, 128, 8, 3), T(128, 64, 8, 3), T(128, 64, 4, 3), T(64, 64, 4, 3), T(128, 64, 4, 4),
    ]  # fmt: skip
    backward = [T(16, 16, 4, 1)] if REHEARSE else [
        T(64, 128, 8, 2), T(64, 128, 8, 1), T(32, 128, 4, 4), T(64, 64, 4, 2), T(64, 64, 8, 2), T(32, 64, 4, 3),
    ]  # fmt: skip
    for tried in dict.fromkeys([*forward, *([] if REHEARSE else [default[0]])]):
        _try(f"forward {tuple(tried)}{' default' * (tried == default[0])}", forward_flops(case),
             lambda t=tried: attention_triton.launch_forward(q, k, v, CAUSAL, dim**-0.5, t))  # fmt: skip
    o, lse = attention_triton.launch_forward(q, k, v, CAUSAL, dim**-0.5, forward[0])
    zero = torch.zeros_like(lse)
    for tried in dict.fromkeys([*backward, *([] if REHEARSE else [default[1]])]):
        _try(f"backward {tuple(tried)}{' default' * (tried == default[1])}", executed_backward_flops(case),
             lambda t=tried: attention_triton.launch_backward(q, k, v, o, lse, do, zero, CAUSAL, dim**-0.5, t))  # fmt: skip


def _try(what: str, flops: int, call) -> None:
    try:
        print(f"  {what}: {flops / median_us(call) / 1e6:.4g} TFLOP/s", flush=True)
    except Exception as error:  # tiles that do not fit into the chip
        print(f"  {what}: {str(error).splitlines()[0][:100]}", flush=True)


def against_others() -> None:
    """Causal at 16k, dim 128 and 64, against every backend that is here: forward 70 %, backward 60 % of the best."""
    for dim in (16,) if REHEARSE else (128, 64):
        n = 64 if REHEARSE else 16384
        heads = 2 if REHEARSE else 2048 // dim
        case = Attention(1, heads, heads, n, n, dim, dim, DTYPES[0], CAUSAL)
        inputs = draw(case, DEVICE)
        right = expected(case, *inputs, most_heads=2)
        best: dict[tuple[bool, str], float] = {}
        for name, backend in BACKENDS.items():
            if backend.materialises:
                continue
            mine = own(name, case) if name in OWN else backend
            for which, found in run(case, mine, DEVICE, inputs, right, SHORT).items():
                if found.status != "ok":
                    print(f"  {name} {which}: {found.status}: {found.reason}", flush=True)
                    if found.status == "wrong" and name in OWN:
                        wrong.append(f"{name} {which} at {n}")
                    continue
                flops = forward_flops(case) if which == "forward" else executed_backward_flops(case)
                rate = flops / float(np.median(found.timed.samples_us)) / 1e6
                print(f"  dim {dim} {name} {which}: {rate:.4g} TFLOP/s", flush=True)
                key = name in OWN, which
                best[key] = max(best.get(key, 0.0), rate)
        for which, wanted in (("forward", 0.7), ("backward", 0.6)):
            if (True, which) in best and (False, which) in best:
                share = best[True, which] / best[False, which]
                bars.append((f"causal {which}, dim {dim}, against the best other", share, wanted))


def decoding() -> None:
    """Llama-3-8B's heads, and MLA's, over pages of unequal lengths: right, and 80 % of a copy's bandwidth."""
    copied = timed_copy()
    print(f"  copy: {copied:.4g} GB/s", flush=True)
    dtype = getattr(torch, DTYPES[0])
    for what, heads, kv_heads, dim, dim_v in (("GQA", 32, 8, 128, 0), ("MLA", 128, 1, 576, 512)):
        batch, most, page = (2, 48, 16) if REHEARSE else (64, 16384, 64)
        if REHEARSE:
            heads, dim, dim_v = 2 * kv_heads, *((16, 0) if what == "GQA" else (48, 32))
        pages = batch * most // page
        source = torch.Generator().manual_seed(0)
        k = torch.randn(pages, page, kv_heads, dim, generator=source).to(DEVICE, dtype)
        v = None if dim_v else torch.randn(pages, page, kv_heads, dim, generator=source).to(DEVICE, dtype)
        table = torch.randperm(pages, generator=source).view(batch, -1).int().to(DEVICE)
        lengths = torch.randint(most // 2, most + 1, (batch,), generator=source).int().to(DEVICE)
        q = torch.randn(batch, heads, dim, generator=source).to(DEVICE, dtype)
        arguments = q, k, v, table, lengths, dim**-0.5, dim_v
        decode_reference.check(q, k, v, table, lengths, dim_v)
        held(f"decode {what}", decode_triton.decode(*arguments)[0], decode_reference.decode(*arguments)[0], 2e-2)
        moved = decode_reference.decode_bytes(q, k, v, lengths, dim_v)
        for splits in (2,) if REHEARSE else (0, 1, 4, 8, 16):
            rate = moved / median_us(lambda s=splits, a=arguments: decode_triton.decode(*a, splits=s)) / 1e3
            print(f"  decode {what}, splits {splits or 'chosen'}: {rate:.4g} GB/s", flush=True)
            if splits == 0 and what == "GQA":
                bars.append(("decode against a copy", rate / copied, 0.8))


def timed_copy() -> float:
    return 2 * yardsticks.copy_bytes(DEVICE) / float(np.median(yardsticks.copy(DEVICE, SHORT).samples_us)) / 1e3


def experts() -> None:
    """DeepSeek-V3's experts on one rank of 32: moved, multiplied, in 16 and in 8 bits."""
    tokens, choices, count, hidden, inner = (24, 3, 4, 32, 48) if REHEARSE else (8192, 8, 8, 7168, 2048)
    dtype = getattr(torch, DTYPES[0])
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(-1, count, (tokens, choices), generator=source).to(DEVICE)
    x = torch.randn(tokens, hidden, generator=source).to(DEVICE, dtype)
    w = (torch.randn(count, hidden, inner, generator=source) / hidden**0.5).to(DEVICE, dtype)
    weights = torch.rand(tokens, choices, generator=source).to(DEVICE)
    how = moe_reference.order(ids, count)
    rows = moe_triton.permute(x, how)
    held("permute", rows, moe_reference.permute(x, how), 0)
    tile = {"tile": (16, 16, 16)} if REHEARSE else {}
    right = moe_reference.grouped_gemm(rows, w, how.counts)
    held("grouped product", moe_triton.grouped_gemm(rows, w, how.counts, **tile), right, 1e-2)
    held("unpermute", moe_triton.unpermute(right, how, weights), moe_reference.unpermute(right, how, weights), 1e-2)
    flops = 2 * len(rows) * hidden * inner
    _try("grouped product", flops, lambda: moe_triton.grouped_gemm(rows, w, how.counts, **tile))
    parts, matrices = rows.split(how.counts.tolist()), list(w)
    _try("the same as a loop of products", flops, lambda: [a @ b for a, b in zip(parts, matrices)])
    if REHEARSE:
        return  # the interpreter does not round to e4m3 as a GPU does
    a, b = rows[:4096].float(), w[0].T.float().contiguous()
    (xq, xs), (wq, ws) = fp8_triton.quantise_rows(a), fp8_reference.quantise_blocks(b)
    reference = fp8_reference.quantise_rows(a)
    held("quantised rows", fp8_reference.dequantise(xq, xs), fp8_reference.dequantise(*reference), 1e-6)
    held("product in 8 bits", fp8_triton.matmul(xq, xs, wq, ws), fp8_reference.matmul(xq, xs, wq, ws), 1e-3)
    _try("product in 8 bits", 2 * len(a) * hidden * inner, lambda: fp8_triton.matmul(xq, xs, wq, ws))


def rows() -> None:
    """RMSNorm, SwiGLU, cross-entropy: right, and beside the bandwidth of a copy."""
    tokens, width, vocabulary = (4, 48, 100) if REHEARSE else (8192, 4096, 128256)
    dtype = getattr(torch, DTYPES[0])
    x, y = (torch.randn(tokens, width, device=DEVICE).to(dtype).requires_grad_() for _ in range(2))
    weight = torch.randn(width, device=DEVICE).to(dtype).requires_grad_()
    logits = torch.randn(tokens // 4, vocabulary, device=DEVICE).to(dtype).requires_grad_()
    target = torch.arange(tokens // 4, device=DEVICE)
    for name, inputs, moved in (
        ("rms_norm", (x, weight), 2 * x.nbytes), ("swiglu", (x, y), 3 * x.nbytes),
        ("cross_entropy", (logits, target), logits.nbytes),
    ):  # fmt: skip
        ours, right = (getattr(form, name)(*inputs) for form in (rowwise_triton, rowwise_reference))
        held(name, ours, right, 1e-2)
        leaves = [one for one in inputs if one.is_floating_point()]
        out = torch.randn_like(right)
        pairs = zip(torch.autograd.grad(ours, leaves, out), torch.autograd.grad(right, leaves, out))
        for i, (a, b) in enumerate(pairs):
            held(f"{name} gradient {i}", a, b, 1e-2)
        rate = moved / median_us(lambda n=name, i=inputs: getattr(rowwise_triton, n)(*i)) / 1e3
        print(f"  {name}: {rate:.4g} GB/s", flush=True)


def main() -> int:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("no GPU here; --rehearse walks through the steps in Triton's interpreter")
        return 2
    begin = time.monotonic()
    name = "a rehearsal in Triton's interpreter" if REHEARSE else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, triton {attention_triton.triton.__version__}")
    broken = []
    for step in (attention_is_right, against_others, decoding, experts, rows, tiles):
        if time.monotonic() - begin > MOST_S:
            print(f"{step.__name__}: left out, {MOST_S} s are over")
            continue
        print(f"{step.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
        try:
            step()
        except Exception:
            traceback.print_exc()
            broken.append(step.__name__)
    for what, reached, wanted in [] if REHEARSE else bars:
        print(
            f"{'held  ' if reached >= wanted else 'MISSED'} {what}: {100 * reached:.0f} % of wanted {100 * wanted:.0f} %"
        )
    print(f"wrong: {', '.join(wrong) or 'nothing'}; broken steps: {', '.join(broken) or 'none'}; "
          f"{time.monotonic() - begin:.0f} s")  # fmt: skip
    missed = any(reached < wanted for _, reached, wanted in bars)
    return 5 if wrong or broken else 1 if missed and not REHEARSE else 0


if __name__ == "__main__":
    sys.exit(main())
