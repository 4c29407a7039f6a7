"""How long does a search over all layouts take, and how far off are predictions of published runs?

    python tests/benchmarks/plan_search.py

Bars: 405B on 16,384 GPUs in under 10 s; MFU on the held-out half within 4 points in the mean, and under half the error of
quoting the other half's mean; tp 8 first for 405B on H100, no tp first for DeepSeek-V3 on H800.
"""

import sys
import time

from commbench.fabrics import load_fabric
from commbench.planning.efficiency import machine_of
from commbench.planning.gpus import gpu_of_fabric
from commbench.planning.judged import judge
from commbench.planning.layout import Job, describe
from commbench.planning.links import fabric_links
from commbench.planning.machine import Assumptions
from commbench.planning.search import search
from commbench.shapes import read_shape

CASES = (
    ("llama3-405b", "h100-8x400g", Job(16384, 8192, 2048), 8),
    ("deepseek-v3", "h800-8x400g", Job(2048, 4096, 15360, "fp8", "adam-bf16-moments"), 1),
)


def main() -> int:
    failed = False

    def told(fine: bool, sentence: str) -> None:
        nonlocal failed
        failed |= not fine
        print(f"{'pass' if fine else 'fail'}: {sentence}")

    for name, fabric, job, tp in CASES:
        links = fabric_links(load_fabric(fabric))
        machine = machine_of(gpu_of_fabric(fabric), links)
        begin = time.perf_counter()
        found = search(read_shape(name), job, machine, Assumptions())
        taken = time.perf_counter() - begin
        best = found.candidates[0].layout
        sentence = (
            f"{name} on {job.gpus} of {fabric}: {found.looked_at} layouts in {taken:.2f} s, best {describe(best)}"
        )
        told(taken < 10 and best.tp == tp, sentence)
    _, verdict = judge()
    told(
        verdict.error <= 4 and verdict.error < verdict.naive / 2,
        f"{verdict.rows} held-out runs, mean error {verdict.error:.2f} points; the other half's mean is {verdict.naive:.2f} off",
    )
    told(verdict.llama_order, "Llama's order 43 > 41 > 38")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
