"""The estimators against curves whose truth is known: latency and rate, breaks, crossovers, intervals, time to fit.

    python tests/benchmarks/fit_synthetic.py

Ring all_reduce on 64 ranks: 2 (N - 1) steps of 14 us, 2 (N - 1) / N bytes per byte at 45 GB/s; 31 sizes from 8 B to 8 GiB.
Repetitions have 3 % log-normal noise and 5 % of them take 2 to 10 times as long; a curve is their medians.
"""

import sys
from functools import partial
from time import perf_counter

import numpy as np

from commbench.models.crossover import Affine, crossings, crossover
from commbench.models.huber import fit_many
from commbench.models.launches import fit_launches, interval_of
from commbench.models.pieces import fit_curves
from commbench.units import format_size

RANKS, ALPHA_US, BETA = 64, 14.0, 1 / 45e3
SIZES = 8.0 * 2 ** np.arange(31)
TERMS = np.stack([np.full(31, 2.0 * (RANKS - 1)), 2 * (RANKS - 1) / RANKS * SIZES], axis=1)
REPETITIONS, NOISE, OUTLIERS, SPREAD, LAUNCHES = 20, 0.03, 0.05, 0.03, 5
CROSSOVER_BYTES = 19.2 * 2**20
CURVES_10000 = 10_000


def medians(rng, time_us):
    """Medians over repetitions of times (..., sizes)."""
    shape = (*time_us.shape[:-1], REPETITIONS, time_us.shape[-1])
    sample = time_us[..., None, :] * np.exp(NOISE * rng.standard_normal(shape))
    late = rng.random(shape) < OUTLIERS
    return np.median(np.where(late, sample * rng.uniform(2, 10, shape), sample), axis=-2)


def fit_all(terms, time_us):
    return fit_many(np.broadcast_to(terms, (len(time_us), *terms.shape)), time_us, np.ones_like(time_us))[0]


def parameters(rng, trials=1000):
    found = fit_all(TERMS, medians(rng, np.tile(TERMS @ [ALPHA_US, BETA], (trials, 1))))
    for name, values, truth in (("alpha", found[:, 0], ALPHA_US), ("beta", found[:, 1], BETA)):
        error = 100 * np.abs(values / truth - 1)
        yield (
            np.median(error) <= 0.3,
            f"{name}: median error {np.median(error):.3f} % (at most 0.3), 95th percentile {np.percentile(error, 95):.2f} %",
        )


def three_protocols():
    """Name, times and breaks: pieces that jump as NCCL's protocols do, and pieces that meet."""
    small, middle, large = (SIZES, 30, 12e3), (SIZES, 45, 40e3), (SIZES, 110, 46e3)
    jump = np.where(SIZES <= 2**16, _line(*small), np.where(SIZES <= 2**20, _line(*middle), _line(*large)))
    yield "that jump", jump, (2**16.5, 2**20.5)  # anywhere between two measured sizes
    first, second = 15 / (1 / 5e3 - 1 / 20e3), 85 / (1 / 20e3 - 1 / 45e3)
    meet = np.where(SIZES < first, _line(SIZES, 20, 5e3), np.where(SIZES < second, _line(SIZES, 35, 20e3), 0))
    yield "that meet", np.where(SIZES < second, meet, _line(SIZES, 120, 45e3)), (first, second)


def _line(size, alpha_us, bytes_per_us):
    return alpha_us + size / bytes_per_us


def breaks(rng, trials=200):
    for name, truth_us, places in three_protocols():
        fits = fit_curves([(SIZES, truth_us * np.exp(0.01 * rng.standard_normal(31))) for _ in range(trials)])
        middles = [[np.sqrt(low * high) for low, high in fit.breaks] for fit in fits]
        found = 100 * np.mean([all(any(abs(np.log2(m / p)) <= 1 for m in ms) for p in places) for ms in middles])
        exact = 100 * np.mean([len(ms) == len(places) for ms in middles])
        yield (
            found >= 98,
            f"breaks of three protocols {name}: both found within an octave in {found:.1f} % of {trials} (at least 98); "
            f"and no further break in {exact:.1f} %",
        )


def crossovers(rng, trials=500):
    """Two trees that cross the ring at the same size, one with a slope near the ring's. Error in octaves, 1 launch."""
    ring = Affine(2 * (RANKS - 1) * ALPHA_US, 2 * (RANKS - 1) / RANKS * BETA)
    for name, tree_alpha_us in (
        ("12 steps", 12 * ALPHA_US),
        ("a latency of nine tenths of the ring's", 0.9 * ring.alpha_us),
    ):
        tree = Affine(tree_alpha_us, ring.beta_us_per_byte + (ring.alpha_us - tree_alpha_us) / CROSSOVER_BYTES)
        lines = np.stack([np.ones(31), SIZES], axis=1)
        fits = [fit_all(lines, medians(rng, np.tile(each(SIZES), (trials, 1)))) for each in (ring, tree)]
        found = [crossings(Affine(*a), Affine(*b), SIZES[0], SIZES[-1]) for a, b in zip(*fits)]
        error = [abs(np.log2(sizes[0] / CROSSOVER_BYTES)) if sizes else np.inf for sizes in found]
        yield (
            np.median(error) <= 0.1,
            f"crossover at 19.2 MiB, tree with {name}: median error {np.median(error):.3f} octaves (at most 0.1), 95th "
            f"percentile {np.percentile(error, 95):.3f}, none found in {100 * np.mean(np.isinf(error)):.1f} %",
        )


def coverage(rng, trials=1000):
    """How often intervals hold the truth at 5 launches, each with its own latency and rate."""
    at = {"alpha": lambda v: v[0], "beta": lambda v: v[1]}
    for size in (2**20, 2**36):
        at[f"time at {format_size(size)}"] = partial(_time_us, size)
    truth = {name: figure(np.array([ALPHA_US, BETA])) for name, figure in at.items()}
    held = {name: [] for name in at}
    launch = np.repeat(np.arange(LAUNCHES), len(SIZES))
    for _ in range(trials):
        own = np.array([ALPHA_US, BETA]) * np.exp(SPREAD * rng.standard_normal((LAUNCHES, 2)))
        fits = fit_launches(np.tile(TERMS, (LAUNCHES, 1)), medians(rng, own @ TERMS.T).ravel(), launch)
        for name, figure in at.items():
            interval = interval_of(fits, figure)
            held[name].append(interval.low <= truth[name] <= interval.high)
    for name, hits in held.items():
        covered = 100 * np.mean(hits)
        yield (
            92 <= covered <= 98,
            f"95 % interval of {name}: {covered:.1f} % of {trials} hold the truth (92 to 98), {LAUNCHES} launches",
        )


def _time_us(size, values):
    return 2 * (RANKS - 1) * (values[0] + size / RANKS * values[1])


def crossover_coverage(rng, trials=300):
    """The same for the crossover of ring and tree, whose latency and rate are known in each launch."""
    ring = np.array([2 * (RANKS - 1) * ALPHA_US, 2 * (RANKS - 1) / RANKS * BETA])
    tree = np.array([12 * ALPHA_US, ring[1] + (ring[0] - 12 * ALPHA_US) / CROSSOVER_BYTES])
    hits = []
    for _ in range(trials):
        own = [each * np.exp(SPREAD * rng.standard_normal((LAUNCHES, 2))) for each in (ring, tree)]
        told = crossover(*[[Affine(*line) for line in each] for each in own], SIZES[0], SIZES[-1])
        hits.append(any(c.low_bytes <= CROSSOVER_BYTES <= c.high_bytes for c in told.crossings))
    covered = 100 * np.mean(hits)
    yield (
        92 <= covered <= 98,
        f"95 % interval of the crossover: {covered:.1f} % of {trials} hold the truth (92 to 98), {LAUNCHES} launches",
    )


def speed(rng):
    sizes = 8.0 * 2 ** np.arange(25)
    jumps = sizes[rng.integers(8, 20, CURVES_10000)]
    true_us = rng.uniform(5, 50, (CURVES_10000, 1)) + sizes / rng.uniform(1e3, 4e4, (CURVES_10000, 1))
    time_us = true_us * (1 + 0.5 * (sizes > jumps[:, None])) * np.exp(0.02 * rng.standard_normal(true_us.shape))
    begin = perf_counter()
    fits = fit_curves([(sizes, times) for times in time_us])
    seconds = perf_counter() - begin
    pieces = np.mean([len(fit.first) for fit in fits])
    yield (
        seconds < 60,
        f"{CURVES_10000} curves of 25 sizes in {seconds:.1f} s (under 60), {pieces:.1f} pieces on average",
    )


def main() -> int:
    failed = False
    for seed, measure in enumerate((parameters, breaks, crossovers, coverage, crossover_coverage, speed)):
        for good, said in measure(np.random.default_rng(seed)):
            failed |= not good
            print(f"{'pass' if good else 'fail'}: {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
