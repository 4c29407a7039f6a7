"""What is unstable is named and not fitted; what is only noisy at small sizes, coarse or slow is accepted."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured import SIZES, line_run, sample, write_run

from commbench.models.series_fit import fit_series
from commbench.models.stability import check_stability, effective_samples
from commbench.models.table import Row, read_series, table_of

# 2 x 8 H100 with a bad fabric, all_reduce from 8 B to 16 GiB by factors of 2: a public log of nccl-tests.
DGX_OUT = (
    "172.7 39.09 39.07 38.8 39.71 52.25 39.28 39.56 40.22 40.82 296.5 966.6 1112.2 1656.1 1660.1 580.3 744.8 "
    "764.0 844.6 1131.0 2022.1 1373.1 1568.7 2219.0 1615.8 3231.0 3345.7 5961.9 9270.2 17662.0 34409.0 68195.0 "
)
DGX_IN = (
    "40.22 40.11 38.76 39.43 40.23 39.54 39.6 40.03 39.95 40.17 44.98 49.79 2068.8 1651.7 783.8 328.8 742.9 "
    "760.0 1517.2 1172.0 2282.8 1472.1 2170.2 2523.1 1894.2 2927.8 3417.6 5424.4 9326.8 17583.0 34955.0 "
    "68483.0 "
)
# 4 x 8 B200, 32 KiB to 16 GiB, times computed from bandwidths of two decimals (stas00/ml-engineering, CC BY-SA 4.0).
B200 = (
    "6348.8 3174.4 564.34 381.88 357.68 378.33 391.45 429.97 462.78 504.51 712.93 829.55 1313.77 2270.26 "
    "3181.97 5747.05 11172.2 22053.05 43752.46 87181.76 "
)
# 16 x 4 A100 (Perlmutter), 32 KiB to 8 GiB: ShashankSubramanian/transformer-perf-estimates.
PERLMUTTER_OUT = (
    "149.2 173.7 230.4 312.0 374.4 400.2 453.3 588.1 782.0 1057.9 1548.5 2795.3 4752.6 8590.1 15407.0 30161.0 "
    "59818.0 120041.0 238629.0 "
)
PERLMUTTER_IN = (
    "118.0 118.8 179.1 255.6 365.1 396.6 452.4 581.0 785.8 1060.5 1546.3 2570.1 4615.7 8234.5 15360.0 30028.0 "
    "59868.0 119889.0 240243.0 "
)


def curve(times, sizes=None, ranks=8, second=None):
    sizes = sizes or [2 ** (k + 3) for k in range(len(times))]
    second = second or [np.nan] * len(times)
    return table_of({"op": "x"}, [Row(ranks, 1, s, t, second_us=b) for s, t, b in zip(sizes, times, second)])


def line(noise_small=0.0, noise=0.0, rng=None, alpha_us=20.0, beta=7e-5):
    times = [alpha_us + beta * size for size in SIZES]
    if rng is not None:
        times = [t * np.exp(rng.normal(0, noise_small if t < 2 * alpha_us else noise)) for t in times]
    return times


def faults(table) -> str:
    return " | ".join(check_stability(table).faults)


def test_a_clean_curve_has_no_faults_and_no_warnings():
    assert check_stability(curve(line(), SIZES)) == check_stability(curve(line(), SIZES, second=line()))
    assert check_stability(curve(line(), SIZES)).stable


def test_thirty_percent_of_noise_at_small_sizes_rejects_next_to_none():
    """Alpha varies by 30 % between runs on real machines (A100 and H800 sites); that alone is no broken fabric."""
    rng = np.random.default_rng(1)
    for beta in (4.7e-6, 7e-5):  # us/B, NVLink and a network
        rejected = sum(bool(faults(curve(line(0.3, 0.03, rng, beta=beta), SIZES))) for _ in range(100))
        assert rejected <= 3


def test_placements_that_disagree_at_more_than_a_fifth_of_the_points():
    good = line()
    off = [t * (1.4 if i % 4 == 3 else 1.0) for i, t in enumerate(good)]  # a quarter, but many of them small
    assert not faults(curve(good, SIZES, second=off))
    broken = [t * (6.0 if i % 4 == 3 else 1.0) for i, t in enumerate(good)]
    assert "in-place and out-of-place times disagree by over 25 %" in faults(curve(good, SIZES, second=broken))
    large = [t * (1.4 if i % 3 == 2 and i > 12 else 1.0) for i, t in enumerate(good)]
    few = [t * (1.4 if i in (20, 25) else 1.0) for i, t in enumerate(good)]
    big = [i for i in range(len(SIZES)) if SIZES[i] >= 2**20]
    sizes = [SIZES[i] for i in big]
    pick = lambda times: [times[i] for i in big]  # noqa: E731
    assert "disagree" in faults(curve(pick(good), sizes, second=pick(large)))
    assert not faults(curve(pick(good), sizes, second=pick(few)))


def published(out, inside="", first_bytes=8):
    out, inside = [float(t) for t in out.split()], [float(t) for t in inside.split()]
    sizes = [first_bytes * 2**k for k in range(len(out))]
    pairs = list(zip(out, inside)) if inside else [(t, np.nan) for t in out]
    return curve([np.nanmin(p) for p in pairs], sizes, 16, [np.nanmax(p) if inside else np.nan for p in pairs])


def test_the_broken_fabric_is_rejected_by_two_placements_and_by_either_alone():
    assert "times disagree by over 25 % (small sizes: by over a factor of 2) at 8 of 32 points" in faults(
        published(DGX_OUT, DGX_IN)
    )
    assert "6 of 32 sizes take over 25 % longer than a larger size" in faults(published(DGX_OUT))
    assert "6 of 32 sizes take over 25 % longer than a larger size" in faults(published(DGX_IN))


def test_coarse_small_figures_and_noisy_small_sizes_are_accepted():
    assert not faults(published(B200, first_bytes=2**15))
    perlmutter = published(PERLMUTTER_OUT, PERLMUTTER_IN, 2**15)
    assert (perlmutter.second_us / perlmutter.time_us > 1.25).sum() == 3  # noise there is
    assert not faults(perlmutter)
    assert not faults(perlmutter.select(perlmutter.size_bytes <= 2**18))  # and where there is little else


def test_launches_that_disagree_and_launches_that_are_many_enough(tmp_path):
    (steady,) = read_series([line_run(tmp_path / "a", launches=2, launch_sd=0.03)])
    assert check_stability(steady).stable
    second = replace(steady, time_us=np.where(steady.launch == 2, 1.5 * steady.time_us, steady.time_us))
    # Small sizes may differ by a factor of two; the large ones, 15 of 28, may not.
    assert faults(second).startswith("unstable: 2 launches disagree by over 25 %")
    (many,) = read_series([line_run(tmp_path / "b", launches=20, launch_sd=0.25)])
    assert not faults(many)


def test_a_floor_of_100_ms_is_an_absurd_latency():
    """An all_to_all whose every size takes 100 ms (the fabric collapsed), as a public log shows it."""
    sizes = [2**k for k in range(27, 34)]
    collapsed = [103114, 104294, 109572, 132630, 181106, 166449, 235696]
    assert faults(curve(collapsed, sizes, 16)).startswith("absurd latency: on 16 ranks even 128M takes 103 ms")
    slow_but_honest = [1e5 * 2**k for k in range(7)]
    assert not faults(curve(slow_but_honest, sizes, 16))


def test_a_curve_that_falls():
    assert "falls with size on 8 ranks, from 850 us" in faults(curve([1000, 700, 500, 300, 200, 100]))
    assert "falls with size" in faults(curve([200.0, 100.0]))
    rng = np.random.default_rng(2)
    flat = [20 * np.exp(rng.normal(0, 0.3)) for _ in range(8)]
    assert not faults(curve(flat))


def test_samples_that_drift_are_not_stationary(tmp_path):
    steady = [sample(20 + 1e-3 * size, size, samples=60, noise=0.3) for size in SIZES]
    (table,) = read_series([write_run(tmp_path / "a", steady)])
    assert check_stability(table).stable
    drifting = [
        replace(s, samples_us=tuple(t * (3 if i < 30 else 1) for i, t in enumerate(s.samples_us))) for s in steady
    ]
    (table,) = read_series([write_run(tmp_path / "b", [*steady[:10], *drifting[10:]])])
    assert f"not stationary: at {len(SIZES) - 10} of {len(SIZES)} points" in faults(table)
    (table,) = read_series([write_run(tmp_path / "c", [*steady[4:], *drifting[:4]])])
    assert check_stability(table).stable


def test_correlated_samples_count_less_and_are_warned_of(tmp_path):
    rng = np.random.default_rng(3)
    white = rng.normal(size=4000)
    walk = np.zeros(4000)
    for i in range(1, 4000):
        walk[i] = 0.8 * walk[i - 1] + white[i]
    assert effective_samples(white) == pytest.approx(4000, rel=0.06)
    assert effective_samples(walk) == pytest.approx(4000 / 9, rel=0.15)  # (1 - 0.8) / (1 + 0.8)
    assert effective_samples([1.0] * 10) == 10
    rows = [sample(20, size) for size in SIZES[:6]]
    rows = [replace(s, samples_us=tuple(20 * np.exp(0.05 * walk[100 * i : 100 * i + 100]))) for i, s in enumerate(rows)]
    (table,) = read_series([write_run(tmp_path / "run", rows)])
    assert check_stability(table).stable
    assert "samples of a point are correlated" in check_stability(table).warnings[0]


def test_one_unsteady_world_is_left_out_of_a_steady_series():
    rng = np.random.default_rng(4)
    rows = [
        Row(r, 1, s, (10 + r) + 1e-3 * s, second_us=(10 + r) + 1e-3 * s) for r in (2, 4, 8, 16, 32, 64) for s in SIZES
    ]
    broken = [
        replace(row, second_us=row.time_us * np.exp(abs(rng.normal(0, 2)))) if row.ranks == 8 else row for row in rows
    ]
    table = table_of({"op": "all_gather"}, broken)
    assert check_stability(table).stable  # a sixth of the points
    series = fit_series(table)
    assert [c.ranks for c in series.curves] == [2, 4, 16, 32, 64] and series.kind == "family"
    assert any(
        w.startswith("8 ranks on 1 node(s) left out: unstable: in-place and out-of-place") for w in series.warnings
    )


RING = [70 + 1.75e-5 * size for size in SIZES]


@pytest.mark.parametrize(
    "times, sentence",
    [
        ([t / 1e6 for t in RING], "a unit is wrong: a size of 8 on 8 ranks takes 7e-05 us"),
        ([t / 1e3 for t in RING], "a unit is wrong: a size of 8 on 8 ranks takes 0.07 us"),
        ([2.0] * len(SIZES), "a unit is wrong: a size of 1G on 8 ranks in 2 us are .* GB/s, which no link carries"),
        ([t * (1 if size < 2**20 else 1e-2) for t, size in zip(RING, SIZES)], "17 of 28 sizes take over 3 times"),
        ([t * (1 if size < 2**20 else 1e3) for t, size in zip(RING, SIZES)], "the time goes from 79.2 us at 512K to"),
        ([t * (1e3 if size < 2**12 else 1) for t, size in zip(RING, SIZES)], "the time goes from 7e.04 us at 2K to"),
    ],
)  # fmt: skip
def test_a_unit_that_is_wrong_is_named(times, sentence):
    table = replace(curve(times, SIZES), label={"op": "all_reduce"})
    assert re.search(sentence, faults(table)), faults(table)
    assert fit_series(table).kind == "none"


def test_one_world_size_in_another_unit_is_named():
    rows = [Row(n, 1, s, n * (5 + 1e-3 * s) * (1e-3 if n == 16 else 1)) for n in (4, 8, 16) for s in SIZES[8:]]
    assert "a unit is wrong: 16 ranks take 0.002 times as long as 8" in faults(table_of({"op": "all_reduce"}, rows))


def test_leading_sizes_that_are_outpaced_are_left_out_only_where_they_are_few():
    steep = [2e3] * 8 + [20 + 1e-3 * s for s in SIZES[8:]]
    assert "on 8 ranks 8 of 28 sizes take over 3 times as long as a larger size" in faults(curve(steep, SIZES))
    assert not faults(curve([2e3] * 3 + [20 + 1e-3 * s for s in SIZES[3:]], SIZES))


def test_a_slight_fall_at_every_size_is_a_fault():
    assert "at 20 sizes one after the other of 20" in faults(curve([100.0 - k for k in range(20)]))
    assert not faults(curve([100.0 - k for k in range(7)]))


@pytest.mark.parametrize("name", ["nccl_size_time", "perlmutter_a100_nccl"])
def test_published_tables_are_all_steady_but_the_one_that_says_it_is_not(name):
    for table in read_series([Path(__file__).parent / "data" / f"{name}.csv"]):
        assert check_stability(table).stable == ("unstable" not in table.name), (table.name, faults(table))
