"""L, o, g and G come back from times that were made of them, and what is not measured is said."""

import numpy as np
import pytest
from measured import sample, write_run

from commbench.models.loggp import fit_loggp, gap_table, pair_series
from commbench.models.series_fit import fit_tables
from commbench.models.table import Row, read_series, table_of

LATENCY, GAP, PER_BYTE = 5.0, 1.2, 1e-4  # L + 2 o, g, G
SIZES = [2**k for k in range(3, 24)]


def one_way(size):
    return LATENCY + (size - 1) * PER_BYTE


def in_window(window):
    """A message of a window of so many, which a short acknowledgement ends."""
    return lambda size: (one_way(size) + (window - 1) * (GAP + size * PER_BYTE) + one_way(SIZES[0])) / window


def series(time_us, launches=5, noise=0.01, **label):
    rng = np.random.default_rng(7)
    rows = [
        Row(2, 1, size, time_us(size) * factor * np.exp(rng.normal(0, noise)), launch)
        for launch, factor in enumerate(np.exp(rng.normal(0, 0.02, launches)), 1)
        for size in SIZES
    ]
    return table_of(label, rows)


def latency(**more):
    return series(one_way, op="p2p_latency", **more)


def window(w, **more):
    return series(in_window(w), op="p2p_bw", window=f"window {w}", **more)


def parameters(*args):
    (found,) = fit_loggp(*args)
    return {p.name: p for p in found.parameters}


@pytest.mark.parametrize("windows", [[window(16)], [window(1), window(64)], [window(2), window(64)]])
def test_all_that_is_measured_comes_back(windows):
    told = parameters(latency(), windows)
    for name, truth in (("L_plus_2o_us", LATENCY), ("g_us", GAP), ("G_us_per_byte", PER_BYTE)):
        assert told[name].value == pytest.approx(truth, rel=0.06)
        assert told[name].low < truth < told[name].high
        assert "5 launches" in told[name].note


def test_o_is_not_determined_and_bounds_L():
    told = parameters(latency(), [window(16)])
    assert told["o_us"].value is None and "takes sends with a delay between them" in told["o_us"].note
    assert told["o_us"].high == told["g_us"].value
    assert told["L_us"].value is None and "not determined within these bounds" in told["L_us"].note
    assert told["L_us"].low == pytest.approx(told["L_plus_2o_us"].value - 2 * told["g_us"].value)


def test_latency_alone_tells_no_gap_but_bytes():
    told = parameters(latency(), [])
    assert told["g_us"].value is None and "p2p_bw with two windows, or with one of 2 or more" in told["g_us"].note
    assert told["G_us_per_byte"].value == pytest.approx(PER_BYTE, rel=0.05)
    assert told["G_us_per_byte"].note.startswith("from p2p_latency")


def test_a_window_alone_tells_nothing_and_two_tell_the_gap():
    told = parameters(None, [window(16)])
    assert all(p.value is None for p in told.values())
    told = parameters(None, [window(1), window(16)])
    assert told["g_us"].value == pytest.approx(GAP, rel=0.06) and told["L_plus_2o_us"].value is None


def test_a_gap_below_zero_is_left_out():
    slow = series(lambda size: 100.0, op="p2p_latency")
    fast = series(lambda size: 1.0, op="p2p_bw", window="window 16")
    table, missing = gap_table(slow, [fast])
    assert table is None and "no size and launch" in missing


def test_isolated_and_streaming_stay_apart_whatever_the_batch(tmp_path):
    def rows(op, timing, batch, time_us, **params):
        what = {"op": op, "timing": timing, "batch": batch, "kind": "p2p", "params": params}
        return [sample(time_us(size), size, ranks=2, **what) for size in SIZES]

    run = write_run(
        tmp_path / "run",
        rows("p2p_latency", "isolated", 1, one_way) + rows("p2p_bw", "isolated", 1, in_window(16), window=16)
        + rows("p2p_latency", "streaming", 50, one_way) + rows("p2p_bw", "streaming", 20, in_window(16), window=16),
    )  # fmt: skip
    tables = read_series([run])
    pairs = pair_series(tables)
    assert [(a.label["timing"], [b.label["timing"] for b in bs]) for a, bs in pairs] == [
        ("isolated", ["isolated"]),
        ("streaming x50", ["streaming x20"]),
    ]
    models = [m for m in fit_tables(tables) if m.kind == "loggp"]
    assert [m.name for m in models] == [
        "LogGP, library, gloo, float32, isolated, within a node",
        "LogGP, library, gloo, float32, streaming x50, within a node",
    ]


def test_too_few_sizes_are_said():
    few = latency().select(slice(0, 2))
    told = parameters(few, [])
    assert told["L_plus_2o_us"].value is None and "size(s) measured, which any line fits" in told["L_plus_2o_us"].note
