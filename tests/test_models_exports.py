"""What other programs read of a model says the same times as the model, by their own rules of reading."""

import subprocess
import sys

import numpy as np
import pytest
from measured import line_run

from commbench.errors import MeasureError
from commbench.models.answer import answer, times_us
from commbench.models.callable_export import python_callable
from commbench.models.equations import EQUATIONS, OVERLAPPING, STEPPED
from commbench.models.exports import astra_yaml, simai_csv, tuner_csv
from commbench.models.identify import separable
from commbench.models.model import Model, Piece, Regime
from commbench.models.model_file import SeriesModel
from commbench.models.series_fit import fit_series
from commbench.models.table import Row, read_series, table_of

SIZES = [2**k for k in range(10, 33)]
HOP_US, RATE, BASE_US = 2.0, 50.0, 10.0  # GB/s of one direction


def ring_time(op, ranks, nodes, size, hop_us=HOP_US, rate=RATE, between_us=5.0):
    passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}[op]
    steps_us = passes * ((ranks - nodes) * hop_us + (nodes - 1) * between_us)
    return BASE_US + steps_us + passes * (ranks - 1) / ranks * size / (rate * 1e3)


def fitted(time_us, worlds, op="all_gather", **label):
    rng = np.random.default_rng(3)
    rows = [Row(r, n, s, time_us(r, n, s) * np.exp(rng.normal(0, 0.002))) for r, n in worlds for s in SIZES]
    return fit_series(table_of({"op": op, **label}, rows))


def load(text):
    """The time_us of an exported file."""
    namespace = {}
    exec(compile(text, "exported.py", "exec"), namespace)
    return namespace["time_us"]


def test_the_callable_of_a_curve_says_its_times_within_between_and_beyond_the_pieces(tmp_path):
    jump = lambda r, n, s: 10 + 1e-3 * s if s < 2**16 else 150 + 2e-4 * s if s < 2**24 else 1000 + 1e-4 * s  # noqa: E731
    series = fitted(jump, [(8, 1)])
    assert len(series.curves[0].pieces.first) == 3
    time_us = load(python_callable(series))
    for size in np.geomspace(1, 2**36, 500):
        assert time_us(8, 1, size) == pytest.approx(float(series.curves[0].time_us(size)), rel=1e-12)
    for world in ((4, 1), (8, 2)):
        with pytest.raises(ValueError, match="measured were"):
            time_us(*world, 1024)
    with pytest.raises(ValueError, match="above 0"):
        time_us(8, 1, 0)


def test_the_exported_file_needs_the_standard_library_only(tmp_path):
    series = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), [(r, 1) for r in (2, 4, 8)])
    (tmp_path / "exported.py").write_text(python_callable(series))
    code = "import exported, sys; print(exported.time_us(16, 1, 2**20)); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    time, modules = done.stdout.splitlines()
    assert float(time) == pytest.approx(answer(series, 16, 1, 2**20).time_us, rel=1e-9)
    assert not {"numpy", "scipy", "commbench", "torch"} & set(modules.split())


@pytest.mark.parametrize("op, algorithm", [(op, name) for op in EQUATIONS if op != "barrier" for name in EQUATIONS[op]])
def test_the_callable_says_every_equation(op, algorithm):
    """One regime on one node and one on several, with breaks by step size, overlaps, and NCCL's table for trees."""
    rng = np.random.default_rng([len(op), len(algorithm)])
    worlds = [(2, 1), (6, 1), (8, 1), (8, 4), (16, 4), (24, 6), (64, 16), (6, 3), (12, 6)]
    ranks, nodes, sizes = (np.array(c) for c in zip(*[(r, n, s) for r, n in worlds for s in SIZES]))
    regimes = []
    for one_node in (True, False):
        mine = (nodes == 1) == one_node
        names, _ = separable(op, algorithm, ranks[mine], nodes[mine], sizes[mine])
        overlap = (op, algorithm) in OVERLAPPING and not one_node

        def piece(start, names=names):
            values = tuple(float(rng.uniform(1, 20) * (1e-5 if "per_byte" in name else 1)) for name in names)
            return Piece(algorithm, names, values, start)

        pieces = (piece(0.0),) if overlap else (piece(0.0), piece(9e4))
        regimes.append(
            Regime((2, 4), one_node, "overlap" if overlap else "switch", pieces, overlap=0.3, protocol="Simple",
                   ranks=(2, 64), size_bytes=(1024.0, 2.0**32))
        )  # fmt: skip
    model = Model(op, {"op": op}, tuple(regimes))
    series = SeriesModel({"op": op}, op, "family", 1, 1, (2,), (1,), family=model)
    time_us = load(python_callable(series))
    for r, n in worlds:
        told = times_us(series, r, n, np.array(SIZES, float))
        assert [time_us(r, n, s) for s in SIZES] == pytest.approx(told.tolist(), rel=1e-12)


def test_the_callable_takes_the_minimum_and_the_split_of_two_algorithms():
    ring, tree = EQUATIONS["all_reduce"], ("base_us", "alpha_intra_us", "beta_us_per_byte")
    assert {"ring", "tree"} <= set(ring)
    pieces = (Piece("tree", tree, (9.0, 3.0, 3e-5)), Piece("ring", tree, (20.0, 2.0, 1e-5), 5e4))
    for choice, split in (("minimum", None), ("switch", 1e5), ("switch", None)):
        regime = Regime((), True, choice, pieces, split, ranks=(2, 8), size_bytes=(1024.0, 2.0**32))
        series = SeriesModel(
            {"op": "all_reduce"}, "x", "family", 1, 1, (2,), (1,), family=Model("all_reduce", {}, (regime,))
        )
        time_us = load(python_callable(series))
        for r in (2, 3, 8, 16):
            told = times_us(series, r, 1, np.array(SIZES, float))
            assert [time_us(r, 1, s) for s in SIZES] == pytest.approx(told.tolist(), rel=1e-12)


def test_text_never_becomes_code():
    rude = 'x"""\nimport os\nos.abort()\n"""{series!r}\' + "'
    series = fitted(lambda r, n, s: 10 + 1e-4 * s, [(8, 1)], op=rude, dataset=rude)
    assert load(python_callable(series))(8, 1, 1024) > 0


def test_a_series_without_a_fit_is_not_exported():
    series = SeriesModel({"op": "x"}, "x", "none", 1, 1, (2,), (1,), faults=("unstable",))
    with pytest.raises(MeasureError, match="no fitted time to write; unstable"):
        python_callable(series)


def as_plugin(text):
    """Rows as ext-tuner/example/plugin.c reads them."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(len(line) < 255 for line in text.splitlines())
    return [[field.strip() for field in line.split(",")] for line in lines]


def test_the_tuner_file_names_the_fastest_for_every_measured_size():
    def line(alpha, beta):
        return lambda r, n, s: alpha + beta * s

    label = {"backend": "nccl"}
    models = [
        fitted(line(20.0, 1e-4), [(16, 2)], op="all_reduce", algorithm="tree", protocol="ll", **label),
        fitted(line(60.0, 2e-5), [(16, 2)], op="all_reduce", algorithm="ring", protocol="simple", **label),
        fitted(line(30.0, 5e-5), [(16, 2)], op="all_reduce", algorithm="nvls_tree", protocol="simple", **label),
        fitted(line(1.0, 1e-9), [(16, 2)], op="all_reduce", algorithm="own:ring", protocol="default", **label),
        fitted(line(1.0, 1e-9), [(16, 2)], op="all_reduce", algorithm="ring", protocol="default", backend="mpi"),
        fitted(line(5.0, 1e-5), [(8, 1)], op="all_gather", algorithm="ring", protocol="ll128", **label),
    ]
    rows = as_plugin(tuner_csv(tuple(models)))
    assert [row[:5] for row in rows] == [
        ["allreduce", "1024", rows[0][2], "tree", "ll"],
        ["allreduce", rows[1][1], rows[1][2], "nvls_tree", "simple"],
        ["allreduce", rows[2][1], str(2**32), "ring", "simple"],
    ]
    assert all(row[5:] == ["-1", "2", "16", "-1", "-1"] for row in rows)
    ends = [(int(row[1]), int(row[2])) for row in rows]
    assert all(b[0] == a[1] + 1 for a, b in zip(ends, ends[1:]))
    # tree to nvls_tree at 10 / 5e-5 bytes, nvls_tree to ring at 30 / 3e-5
    assert ends[1][0] == pytest.approx(2e5, rel=0.06) and ends[2][0] == pytest.approx(1e6, rel=0.06)


def test_a_tuner_file_needs_two_forced_choices():
    one = fitted(lambda r, n, s: 20 + 1e-4 * s, [(16, 2)], op="all_reduce", algorithm="ring", protocol="ll")
    default = fitted(lambda r, n, s: 20 + 1e-4 * s, [(16, 2)], op="all_reduce")
    with pytest.raises(MeasureError, match="chooses among forced algorithms and protocols"):
        tuner_csv((one, default))


def simai_value(text, size, nodes):
    """getValue of SimAI's calbusbw.cc: columns by place, the last row as the reference, lines between rows."""
    rows = [line.split(",") for line in text.splitlines()[1:]]
    rows = [[cell or "1" for cell in row] for row in rows]
    column = {1: 1, 2: 2, 4: 3, 8: 4, 16: 5, 32: 6, 64: 7, 128: 8, 9: 9}[nodes]
    last = float(rows[-1][column])
    for a, b in zip(rows, rows[1:]):
        low, high = float(a[0]), float(b[0])
        if low <= size <= high:
            share = (size - low) / (high - low)
            return (float(a[column]) + (float(b[column]) - float(a[column])) * share) / last
    raise AssertionError("out of range")


def test_simai_reads_the_efficiency_that_was_measured():
    worlds = [(8, 1), (16, 2), (32, 4), (64, 8)]
    series = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), worlds)
    text = simai_csv(series)
    assert text.splitlines()[0].startswith("Size,1 Node-8GPU,2 Node-16GPU,4 Node-32GPU,8 Node-64GPU,16 Node-128GPU")
    for ranks, nodes in [*worlds, (128, 16)]:
        truth = [(s / ring_time("all_gather", ranks, nodes, s)) for s in (2**24, 2**28, 2**32)]
        for size, rate in zip((2**24, 2**28), truth):
            assert simai_value(text, size, nodes) == pytest.approx(rate / truth[-1], rel=0.03)
    assert simai_value(text, 2**24, 9) == 1.0  # no loss where nothing is known, as in SimAI's own tables


def test_simai_leaves_empty_what_was_not_measured():
    series = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), [(16, 2)])
    lines = simai_csv(series).splitlines()
    assert all([cell != "" for cell in line.split(",")][:4] == [True, False, True, False] for line in lines[1:])
    odd = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), [(24, 3)])
    with pytest.raises(MeasureError, match="says nothing of 1, 2, 4"):
        simai_csv(odd)


def astra_numbers(text):
    lines = {line.split(":")[0]: line.split("[")[1].split("]")[0] for line in text.splitlines() if "[" in line}
    return {key: [part.strip() for part in value.split(",")] for key, value in lines.items()}


def astra_ring_us(network, dimension, op, size):
    """A ring over one Switch dimension by the congestion-unaware back end: two hops' latency, then the bytes."""
    ranks = int(network["npus_count"][dimension])
    rate = float(network["bandwidth"][dimension]) * 2**30 / 1e9  # bytes per ns
    step_ns = 2 * float(network["latency"][dimension]) + size / ranks / rate
    return {"all_reduce": 2, "all_gather": 1}[op] * (ranks - 1) * step_ns / 1e3


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_astra_sims_ring_takes_the_measured_time_within_a_node(op):
    series = fitted(lambda r, n, s: ring_time(op, r, n, s), [(2, 1), (4, 1), (8, 1)], op=op)
    network = astra_numbers(astra_yaml(series, 8, 1))
    assert network["topology"] == ["Switch"] and network["npus_count"] == ["8"]
    for size in (2**12, 2**32):
        assert astra_ring_us(network, 0, op, size) == pytest.approx(ring_time(op, 8, 1, size), rel=0.02)


def test_astra_sim_gets_both_levels():
    worlds = [(r, 1) for r in (2, 4, 8)] + [(8 * n, n) for n in (2, 4, 8)] + [(4 * n, n) for n in (2, 4, 8)]
    series = fitted(lambda r, n, s: ring_time("all_gather", r, n, s, rate=400.0 if n == 1 else 50.0 * r / n), worlds)
    network = astra_numbers(astra_yaml(series, 64, 8))
    assert network["npus_count"] == ["8", "8"]
    inside, between = (float(rate) * 2**30 / 1e9 for rate in network["bandwidth"])
    assert inside == pytest.approx(400, rel=0.02) and between == pytest.approx(50, rel=0.02)
    assert float(network["latency"][1]) == pytest.approx(1e3 * 5.0 / 2, rel=0.05)


def test_astra_sim_says_what_is_missing():
    several = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), [(16, 2), (32, 4), (64, 8)])
    with pytest.raises(MeasureError, match="was not measured on one node"):
        astra_yaml(several, 16, 2)
    one_g = fitted(lambda r, n, s: ring_time("all_gather", r, n, s), [(8, 1), (16, 2), (32, 4), (64, 8)])
    with pytest.raises(MeasureError, match="two values of ranks per node"):
        astra_yaml(one_g, 32, 4)
    with pytest.raises(MeasureError, match="read off a ring"):
        astra_yaml(fitted(lambda r, n, s: 10 + 1e-4 * s, [(8, 1)], op="broadcast"), 8, 1)


def test_a_real_series_goes_out(tmp_path):
    (table,) = read_series([line_run(tmp_path / "run", op="all_gather", ranks=4)])
    series = fit_series(table)
    assert load(python_callable(series))(4, 1, 2**20) == pytest.approx(20 + 1e-3 * 2**20, rel=0.02)
    assert set(STEPPED) >= {"all_gather", "all_reduce"}
