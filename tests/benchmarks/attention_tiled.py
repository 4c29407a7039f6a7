"""Two bars of the tiled form in plain torch, on this machine's CPU.

Time: at 4,096 tokens at most 3 times torch's SDPA flash kernel. The two take turns; the median of the ratios of
neighbours is told with its 95 % interval, which is wholly under the bar, wholly above it, or "not determined".
Memory: at 16,384 tokens, beyond inputs and outputs, under 2 % of the score matrix; read from torch's allocator, and
beside it from the process (peak resident set of a child that does nothing else).
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from commbench.kernels.attention_tiled import attention
from commbench.kernels.masks import CAUSAL, FULL
from commbench.kernels.memory import peak_bytes
from commbench.timing.statistics import median_interval

TIME_BAR, MEMORY_BAR, TURNS, TOKENS = 3.0, 0.02, 15, 16384


def flash(q, k, v, causal: bool):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def seconds(form, inputs, do) -> tuple[float, float]:
    """(forward, backward) of one call."""
    begin = time.perf_counter()
    o = form(*inputs)
    middle = time.perf_counter()
    torch.autograd.grad(o, inputs, do)
    return middle - begin, time.perf_counter() - middle


def times() -> bool:
    held = True
    for dim in (64, 128):
        for mask in (FULL, CAUSAL):
            q, k, v = (torch.randn(1, 4, 4096, dim, requires_grad=True) for _ in range(3))
            do = torch.randn_like(q)
            forms = (
                lambda *x, m=mask: attention(*x, m)[0],
                lambda *x, m=mask: flash(*x, m == CAUSAL),
            )
            taken = [[seconds(form, (q, k, v), do) for form in forms] for _ in range(TURNS + 1)][1:]
            for i, which in enumerate(("forward", "backward")):
                ratios = [ours[i] / theirs[i] for ours, theirs in taken]
                low, high = median_interval(ratios)
                verdict = "held" if high < TIME_BAR else "MISSED" if low > TIME_BAR else "not determined"
                held &= verdict == "held"
                print(f"4096 tokens, dim {dim}, {mask}, {which}: {np.median(ratios):.2f} ({low:.2f} to {high:.2f}) "
                      f"times SDPA flash: {verdict}", flush=True)  # fmt: skip
    return held


def memory() -> bool:
    q, k, v = (torch.randn(1, 1, TOKENS, 64, requires_grad=True) for _ in range(3))
    scores = 4 * TOKENS**2
    o = attention(q, k, v, CAUSAL)[0]
    do = torch.ones_like(o)
    calls = {
        "forward": lambda: attention(q, k, v, CAUSAL),
        "backward": lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True),
    }
    held = True
    for which, call in calls.items():
        share = peak_bytes(call, "cpu") / scores
        held &= share < MEMORY_BAR
        print(f"{TOKENS} tokens, {which}: {100 * share:.2f} % of the scores' {scores / 2**30:.3g} GiB "
              f"({'held' if share < MEMORY_BAR else 'MISSED'})", flush=True)  # fmt: skip
    child = subprocess.run([sys.executable, __file__, "--child"], capture_output=True, text=True, check=True)
    print(f"the resident set of a process grew by {int(child.stdout) / 2**20:.0f} MiB over forward and backward, "
          f"{5 * 4 * TOKENS * 64 / 2**20:.0f} MiB of it o, its gradient, and those of q, k, v")  # fmt: skip
    return held


def child() -> None:
    """Bytes by which the resident set grew at its highest over forward and backward at TOKENS."""
    warm = [torch.randn(1, 1, 512, 64, requires_grad=True) for _ in range(3)]
    torch.autograd.grad(attention(*warm, CAUSAL)[0].sum(), warm)  # the libraries' own memory
    q, k, v = (torch.randn(1, 1, TOKENS, 64, requires_grad=True) for _ in range(3))
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew (proc(5))
    before = _status("VmRSS")
    o, _ = attention(q, k, v, CAUSAL)
    torch.autograd.grad(o, (q, k, v), torch.ones_like(o))
    print(_status("VmHWM") - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1])


if __name__ == "__main__":
    if "--child" in sys.argv:
        child()
    else:
        sys.exit(0 if all([times(), memory()]) else 1)
