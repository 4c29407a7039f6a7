"""Does commbench find the delays that a lab was given, and do our schedules take the time that models say? Needs root.

    python tests/benchmarks/lab_latency.py [--labs 3] [--nodes 4] [--delays 2,5] [--no-algorithms]

Point-to-point: time = alpha + beta * size is fitted to a ping-pong at 250 Mbit/s without delay and at 2 and 5 ms. Bars:
alpha less the lab's own (its alpha without delay) within 8 % of 2 ms and 6 % of 5 ms, their difference within 5 % of
3 ms, beta within 3 % at both. Without delay beta is not held against it: there the 0.2 ms that a message of more than
one frame costs the switch bends the line.

All-reduce: own:ring, own:recursive_doubling and own:rabenseifner within 10 % of hops * alpha + sent bytes * beta, where
alpha is a lock-step exchange of 64 bytes (on Gloo a receive that is posted only when the step begins costs two delays:
the sender waits for word of it) and beta is the set one; ring and recursive doubling cross within a factor 1.3.
"""

import argparse
import math
import statistics
import sys

import numpy as np
from labs import fresh, measured, verdict

from commbench.lab.quantities import parse_rate, payload_GBps
from commbench.models.huber import fit_terms
from commbench.results.metrics import time_us
from commbench.schedules.closed_forms import uniform_terms

RATE = "250mbit"
BETA_US_PER_BYTE = 1e-3 / payload_GBps(parse_rate(RATE), 1500)
PAIR_SIZES, SIZES = "8,64,512,4K,32K,256K,1M,4M", "64,4K,64K,256K,1M,2M,3M,4M"
ALPHA_BAR_AT_MS, DIFFERENCE_BAR, BETA_BAR = {2: 0.08, 5: 0.06}, 0.05, 0.03
MODEL_BAR, CROSSING_BAR = 0.10, 1.3
ALGORITHMS = ("ring", "recursive_doubling", "rabenseifner")


def point_to_point(name: str) -> tuple[float, float]:
    """(alpha in microseconds, beta in microseconds per byte) of a ping-pong between the first and the last node."""
    what = ["p2p_latency", "--backend", "gloo", "--size", PAIR_SIZES, "--iters", "15", "--checks", "1"]
    samples = measured(name, *what)
    terms = [(1.0, sample.point.size_bytes) for sample in samples]
    return tuple(fit_terms(terms, [time_us(sample) for sample in samples]).values)


def lock_step_us(name: str) -> float:
    """Microseconds of one step in which each rank sends 64 bytes to the next and receives from the one before."""
    what = ["sendrecv", "--backend", "gloo", "--size", "64", "--iters", "25", "--checks", "1"]
    return time_us(measured(name, *what)[0])


def algorithms(name: str, ranks: int, alpha_us: float, delay_ms: float) -> bool:
    """Measure and print the schedules; True when one is outside its bar."""
    own = ",".join(f"own:{algorithm}" for algorithm in ALGORITHMS)
    what = ["all_reduce", "--backend", "gloo", "--algorithm", own, "--size", SIZES, "--iters", "9", "--warmup", "1"]
    times, failed = {}, False
    for sample in measured(name, *what, "--checks", "1"):
        times[sample.point.algorithm.removeprefix("own:"), sample.point.size_bytes] = time_us(sample)
    for algorithm in ALGORITHMS:
        errors = []
        for (its, size), taken in times.items():
            if its == algorithm:
                terms = uniform_terms("all_reduce", algorithm, ranks, size)
                errors.append(taken / (terms.hops * alpha_us + terms.sent * BETA_US_PER_BYTE) - 1)
        worst = max(errors, key=abs)
        answer = verdict(worst, MODEL_BAR)
        failed |= answer == "fail"
        each = " ".join(f"{error:+.1%}" for error in errors)
        print(f"{answer}: {delay_ms:g} ms, {ranks} ranks, own:{algorithm} against its model: {each}", flush=True)
    sizes = sorted({size for _, size in times})
    gaps = [math.log(times["ring", size] / times["recursive_doubling", size]) for size in sizes]
    # ring's hops * alpha + sent bytes * beta equals recursive doubling's; both are linear in the size.
    ring, doubling = (uniform_terms("all_reduce", algorithm, ranks, 1) for algorithm in ALGORITHMS[:2])
    predicted = (ring.hops - doubling.hops) * alpha_us / ((doubling.sent - ring.sent) * BETA_US_PER_BYTE)
    crossing = next((i for i in range(1, len(sizes)) if gaps[i - 1] > 0 >= gaps[i]), None)
    if crossing is None:
        print(
            f"fail: {delay_ms:g} ms, ring and recursive doubling do not cross in {SIZES}; predicted {predicted:.0f} B"
        )
        return True
    share = gaps[crossing - 1] / (gaps[crossing - 1] - gaps[crossing])
    found = sizes[crossing - 1] * (sizes[crossing] / sizes[crossing - 1]) ** share
    answer = "pass" if 1 / CROSSING_BAR <= found / predicted <= CROSSING_BAR else "fail"
    print(
        f"{answer}: {delay_ms:g} ms, ring faster than recursive doubling from {found / 1e6:.2f} MB, "
        f"predicted {predicted / 1e6:.2f} MB, factor {found / predicted:.2f}",
        flush=True,
    )
    return failed or answer == "fail"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labs", type=int, default=3, help="fresh labs for each delay, whose median counts")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--delays", default="2,5", help="ms")
    parser.add_argument("--no-algorithms", action="store_true")
    given = parser.parse_args()
    delays_ms = [float(word) for word in given.delays.split(",")]
    alphas, betas, failed = {}, [], False
    for delay_ms in (0.0, *delays_ms):
        for number in range(given.labs):
            options = [
                "--nodes",
                str(given.nodes),
                "--ranks-per-node",
                "1",
                "--inter",
                RATE,
                "--delay",
                f"{delay_ms}ms",
            ]
            with fresh("bench-latency", *options) as name:
                alpha_us, beta = point_to_point(name)
                alphas.setdefault(delay_ms, []).append(alpha_us)
                error = beta / BETA_US_PER_BYTE - 1
                betas += [error] if delay_ms else []
                print(f"{delay_ms:g} ms: alpha {alpha_us:.0f} us, beta {error:+.2%} of the set one", flush=True)
                if delay_ms and not number and not given.no_algorithms:
                    step_us = lock_step_us(name)
                    print(f"{delay_ms:g} ms: a lock-step exchange takes {step_us:.0f} us", flush=True)
                    failed |= algorithms(name, given.nodes, step_us, delay_ms)
    median_us = {delay_ms: statistics.median(found) for delay_ms, found in alphas.items()}
    lines = [
        (f"alpha at {d:g} ms less alpha at 0", (median_us[d] - median_us[0.0]) / (1e3 * d) - 1, ALPHA_BAR_AT_MS.get(d))
        for d in delays_ms
    ]
    if len(delays_ms) == 2:
        low, high = sorted(delays_ms)
        apart_us = 1e3 * (high - low)
        lines.append(("the difference of the two", (median_us[high] - median_us[low]) / apart_us - 1, DIFFERENCE_BAR))
    lines.append(("beta, worst", float(max(betas, key=np.abs)), BETA_BAR))
    for what, error, bar in lines:
        answer = "not compared" if bar is None else verdict(error, bar)
        failed |= answer == "fail"
        print(f"{answer}: {what}: {error:+.2%}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
