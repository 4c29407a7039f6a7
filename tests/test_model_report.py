"""The page of a fit: what it draws agrees with the models, and nothing of a label can act on it."""

import math
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from synthetic import ring_us, series
from test_report import EVIL, Page, _texts

from commbench.cli import main as cli
from commbench.models.family import fit_equation, fit_family
from commbench.models.model import Parameter
from commbench.models.model_file import ModelFile
from commbench.models.series_fit import fit_series, fit_tables
from commbench.models.table import Row, table_of, without_outpaced
from commbench.reports.model_figures import fit_figure
from commbench.reports.model_heldout import ranks_figure, sizes_figure
from commbench.reports.model_maps import curves_figure, map_figure
from commbench.reports.model_page import model_page, write_model_report
from commbench.reports.model_reach import reach_figure
from commbench.reports.model_rivals import BEYOND, MEASURED, UNDECIDED, chosen, crossings, fastest, rivals_of
from commbench.reports.model_tables import NOT_DETERMINED, curves_table, number, parameters_table, pieces_table
from commbench.reports.model_unseen import unseen_ranks, unseen_sizes
from commbench.reports.model_worlds import PANEL_MOST, band_name, in_panels, ramp, worlds_of

SIZES = 2.0 ** np.arange(4, 26, 2)
PLACES = [(4 * n, n) for n in (2, 4, 8, 16)]
LABEL = {"op": "all_reduce", "algorithm": "library", "backend": "mpi", "dtype": "float32", "timing": "isolated"}


def table(time_of, places=((4, 1),), seed=0, noise=0.02, launches=3, launch_sd=0.02, sizes=SIZES, **label):
    found = series(time_of, places, sizes, noise, launches, launch_sd, seed=seed)
    return replace(found, label=LABEL | label, second_us=np.full(len(found), np.nan))


def two_algorithms_us(ranks, nodes, size_bytes):
    """A ring from 4 KiB a rank on, below it what grows with the logarithm of the ranks."""
    tree = 10 + 12 * np.log2(nodes) + 4e-4 * size_bytes
    return np.where(size_bytes / ranks < 4096, tree, ring_us(ranks, nodes, size_bytes))


def hockney(alpha_us, beta_us_per_byte):
    return lambda ranks, nodes, size_bytes: alpha_us + beta_us_per_byte * size_bytes


@pytest.fixture(scope="module")
def family():
    """(model, table) of a ring on several nodes, with equations over ranks."""
    measured = table(ring_us, PLACES, algorithm="own:ring")
    return fit_series(measured), measured


@pytest.fixture(scope="module")
def rivals():
    """One algorithm of low latency and one of high bandwidth: they cross at 64 KiB."""
    tables = [
        table(hockney(10, 3e-3), algorithm="own:tree", seed=1),
        table(hockney(10 + 65536 * 2e-3, 1e-3), algorithm="own:ring", seed=2),
    ]
    return rivals_of([(model, t, worlds_of(model, t)) for t, model in zip(tables, fit_tables(tables))])[0]


def page_of(tables, models=None) -> str:
    models = fit_tables(tables) if models is None else models
    return model_page(tables, ModelFile(tuple(models), ("runs/a",), (), "2026-01-02T03:04:05+00:00"))


def _line_and_band(drawn, world):
    own = [t for t in drawn["data"] if t.get("legendgroup") == world.name and t["mode"] == "lines" and "yaxis" not in t]
    (band,) = [t for t in own if t.get("fill")]
    return next(t for t in own if not t.get("fill") and t["line"]["dash"] == "solid"), band


def test_every_figure_is_a_plotly_figure(family, rivals):
    model, measured = family
    worlds = worlds_of(model, measured)
    colour = {name: "#123456" for name in rivals.worlds}
    drawn = fastest(rivals)
    for figure in (
        fit_figure(worlds), reach_figure(model.family, worlds), ranks_figure(unseen_ranks(model, measured)),
        sizes_figure(unseen_sizes(model, worlds)), map_figure(drawn, list(crossings(rivals, drawn)), colour),
        curves_figure("all_reduce", {name: one[0] for name, one in rivals.worlds.items()}, colour),
    ):  # fmt: skip
        go.Figure(figure)  # raises on a property that plotly does not have


def test_line_band_and_dots_are_those_of_the_curve(family):
    worlds = worlds_of(*family)
    assert [(w.ranks, w.nodes) for w in worlds] == PLACES and len({w.colour for w in worlds}) == len(worlds)
    drawn = fit_figure(worlds)
    for world, curve in zip(worlds, family[0].curves, strict=True):
        line, band = _line_and_band(drawn, world)
        half = len(band["x"]) // 2
        low, high = band["y"][:half], band["y"][half:][::-1]
        assert band["x"][:half] == line["x"] and all(a < b < c for a, b, c in zip(low, line["y"], high, strict=True))
        assert line["y"] == pytest.approx(curve.time_us(np.array(line["x"])), rel=1e-3)
        assert low == pytest.approx(curve.interval_us(np.array(line["x"]))[0], rel=1e-3)
        assert all(np.min(np.abs(np.array(line["x"]) / size - 1)) < 1e-4 for size in SIZES)
        (dots,) = [t for t in drawn["data"] if t.get("name") == world.name]
        assert dots["x"] == SIZES.tolist()
        own = family[1].select(family[1].ranks == world.ranks)
        assert dots["y"] == pytest.approx([np.median(own.time_us[own.size_bytes == s]) for s in SIZES], rel=1e-4)
        top = [y + up for y, up in zip(dots["y"], dots["error_y"]["array"])]
        assert top == pytest.approx([own.time_us[own.size_bytes == s].max() for s in SIZES], rel=1e-3)


def test_residuals_of_curve_and_of_equations(family):
    worlds = worlds_of(*family)
    drawn = fit_figure(worlds)
    for axis, told in (("y2", [w.curve_us for w in worlds]), ("y3", [w.equations_us for w in worlds])):
        traces = [t for t in drawn["data"] if t.get("yaxis") == axis]
        for trace, world, told_us in zip(traces, worlds, told, strict=True):
            assert trace["y"] == pytest.approx((world.rows.time_us / told_us[0] - 1) * 100, rel=1e-3)
        low, high = drawn["layout"][f"yaxis{axis[1]}"]["range"]
        assert low == -high and high >= max(abs(y) for t in traces for y in t["y"])


def test_breaks_are_shaded_where_they_lie():
    stepped = table(lambda r, n, s: np.where(s < 5000, 10.0, 40.0) + 1e-3 * s, noise=0.002, launch_sd=0.002)
    model = fit_series(stepped)
    (curve,) = model.curves
    shapes = fit_figure(worlds_of(model, stepped))["layout"]["shapes"]
    assert [(s["x0"], s["x1"]) for s in shapes] == curve.pieces.breaks and (4096, 16384) in curve.pieces.breaks
    assert all((s["y0"], s["y1"]) == (0, 1) for s in shapes)
    assert [line[3] for line in pieces_table("all_reduce", [curve])["lines"]][:2] == ["–", "4K to 16K"]


def test_the_band_says_what_it_rests_on():
    assert band_name([1, 1]) == "95 % band, within-launch only"
    assert "from 3 launches" in band_name([3]) and "from 2 to 5 launches" in band_name([2, 5])
    once = table(hockney(10, 1e-3), launches=1)
    names = [t.get("name") for t in fit_figure(worlds_of(fit_series(once), once))["data"]]
    assert "95 % band, within-launch only" in names
    assert "within-launch only" in Page(page_of([once])).text


def test_many_world_sizes_are_drawn_by_placement():
    places = [(n, 1) for n in (2, 4, 8)] + [(g * n, n) for g in (1, 2) for n in (2, 4, 8)]
    model = fit_series(measured := table(ring_us, places, launches=1))
    panels = in_panels(worlds_of(model, measured))
    assert [name for name, _ in panels] == ["one node", "1 per node", "2 per node"] and len(places) > PANEL_MOST
    assert [(w.ranks, w.nodes) for _, panel in panels for w in panel] == sorted(
        places, key=lambda p: (p[1] > 1, p[0] // p[1])
    )
    assert all([w.colour for w in panel] == ramp(3) for _, panel in panels)


def test_points_that_were_left_out_are_crosses():
    measured = table(hockney(10, 1e-3), launches=1)
    slow = np.where(measured.size_bytes == 64, 500.0, measured.time_us)
    measured = replace(measured, time_us=slow)
    (world,) = worlds_of(fit_series(measured), measured)
    (cross,) = [t for t in fit_figure([world])["data"] if t.get("marker", {}).get("symbol") == "x-thin-open"]
    assert (cross["x"], cross["y"]) == ([64.0], [500.0]) and 64 not in world.rows.size_bytes
    assert "1 left out because a larger size" in Page(page_of([measured])).text


def test_held_out_points_have_the_errors_that_the_fit_reports(family):
    model, of = family
    forced = replace(model, family=fit_equation(of, "all_reduce", "ring"))
    free = replace(model, family=fit_family(of))
    assert [m.family.regimes[0].choice for m in (forced, free)] == ["minimum", "switch"]
    for one in (forced, free):
        points = unseen_ranks(one, without_outpaced(of))
        error = np.mean([abs(p.told_us / p.time_us - 1) for p in points])
        assert error == pytest.approx(one.family.regimes[0].holdout_mape) and 64 in {p.ranks for p in points}
        assert all(p.largest < p.ranks <= 4 * p.largest for p in points)
        by_size = unseen_sizes(one, worlds_of(one, of))
        for curve in one.curves:
            own = [abs(p.told_us / p.time_us - 1) for p in by_size if p.ranks == curve.ranks]
            assert len(own) == 3 and np.mean(own) == pytest.approx(curve.holdout_mape)


def test_the_equations_are_drawn_beyond_the_measured_ranks(family):
    model, measured = family
    drawn = reach_figure(model.family, worlds_of(model, measured))
    dashed = [t for t in drawn["data"] if t.get("line", {}).get("dash") == "dash"]
    assert len(dashed) == 4 and dashed[0]["x"] == [64.0, 128.0, 256.0, 512.0, 1024.0]
    assert [re.search(r"<br>(\w+)", words)[1] for words in dashed[0]["hovertext"]] == [
        "measured", "extrapolation", "extrapolation", "extrapolation", "projection",
    ]  # fmt: skip
    assert {shape["x0"] for shape in drawn["layout"]["shapes"]} == {64.0, 512.0}
    one_node = table(hockney(10, 1e-3))
    assert fit_series(one_node).family is None


def test_the_map_shows_who_is_faster_and_how_sure_that_is(rivals):
    drawn = fastest(rivals)
    assert {s.row for s in drawn} == {"4 × 1"} and drawn[0].low == SIZES[0] and drawn[-1].high == SIZES[-1]
    assert all(a.high == b.low for a, b in zip(drawn, drawn[1:]))
    assert (drawn[0].who, drawn[0].kind) == ("own:tree", MEASURED)
    assert (drawn[-1].who, drawn[-1].kind) == ("own:ring", MEASURED)
    assert {s.kind for s in drawn} == {MEASURED, UNDECIDED}
    edge = next(s.low for s in drawn if s.who == "own:ring")
    assert abs(math.log2(edge / 65536)) < 0.3
    ((row, crossing),) = crossings(rivals, drawn)
    assert row == "4 × 1" and (crossing.below, crossing.above) == ("own:tree", "own:ring")
    assert crossing.low_bytes < 65536 < crossing.high_bytes
    figure = map_figure(drawn, [(row, crossing)], {"own:tree": "#111111", "own:ring": "#222222"})
    (mark,) = [t for t in figure["data"] if t["type"] == "scatter"]
    assert mark["x"][0] + mark["error_x"]["array"][0] == pytest.approx(crossing.high_bytes, rel=1e-3)
    bars = [(t["marker"]["color"], base, base + x) for t in figure["data"] if t["type"] == "bar" and t["base"] != [None]
            for base, x in zip(t["base"], t["x"])]  # fmt: skip
    assert min(b[1:] for b in bars if b[0] == "#111111")[0] == SIZES[0]
    assert max(b[2] for b in bars if b[0] == "#222222") == pytest.approx(SIZES[-1], rel=1e-4)


def test_what_nobody_measured_is_hatched():
    tables = [
        table(ring_us, PLACES, algorithm="own:ring", seed=3),
        table(lambda r, n, s: 2 * ring_us(r, n, s), PLACES[:3], algorithm="own:tree", seed=4),
    ]
    models = fit_tables(tables)
    (group,) = rivals_of([(m, t, worlds_of(m, t)) for t, m in zip(tables, models)])
    kinds = {
        row: {s.kind for s in fastest(group) if s.row == row} for row in dict.fromkeys(s.row for s in fastest(group))
    }
    assert kinds["32 × 8"] == {MEASURED}
    assert all(kinds[row] == {BEYOND} for row in ("64 × 16", "128 × 32", "512 × 128"))
    assert {s.who for s in fastest(group)} == {"own:ring"}
    hatched = [t for t in map_figure(fastest(group), [], {"own:ring": "#111111"})["data"] if "pattern" in t["marker"]]
    assert hatched and "64 × 16" in hatched[0]["y"]


def test_the_choice_of_a_library_is_drawn_from_its_equations():
    measured = table(two_algorithms_us, PLACES, noise=0.005, launches=1)
    model = fit_series(measured)
    algorithms = {piece.algorithm for regime in model.family.regimes for piece in regime.pieces}
    drawn = chosen(model, worlds_of(model, measured))
    assert {s.who for s in drawn} == (algorithms if len(algorithms) > 1 else set())
    assert len(algorithms) > 1 and {s.row for s in drawn if s.kind == BEYOND} == {"128 × 32", "256 × 64", "512 × 128"}


def test_parameters_without_a_value_are_named_so():
    lines = parameters_table([
        Parameter("beta_us_per_byte", 1e-4, 9e-5, 1.1e-4, "3 launches"),
        Parameter("alpha_us", None, note="not determined: zero fits best"),
        Parameter("L_us", None, 0.0, 2.5, "within bounds"),
    ])["lines"]  # fmt: skip
    assert lines[0] == ["beta_us_per_byte", "", "0.0001", "9e-05 to 0.00011", "µs/byte", "10", "3 launches"]
    assert lines[1][2:4] == [NOT_DETERMINED, "–"] and "zero fits best" in lines[1][6]
    assert lines[2][2:4] == [NOT_DETERMINED, "within 0 to 2.5"]
    flat = table(hockney(10, 0), launches=1)
    assert NOT_DETERMINED in curves_table("all_reduce", fit_series(flat).curves)["lines"][0]
    assert [number(v) for v in (None, 0, 12345.6, 1.23456)] == ["–", "0", "12346", "1.235"]


def test_series_without_a_model_are_named_with_the_reason(family):
    falls = table_of(LABEL | {"op": "broadcast"}, [Row(4, 1, 2**k, 1e5 / k) for k in range(10, 30)])
    few = table_of(LABEL | {"op": "reduce"}, [Row(4, 1, 8, 5.0), Row(4, 1, 64, 6.0)])
    told = Page(page_of([falls, few, family[1]])).text
    assert "1 of 3 series fitted" in told
    for model in fit_tables([falls, few]):
        assert model.kind == "none" and model.name in told and all(fault in told for fault in model.faults)


def test_a_page_without_any_fitted_series(tmp_path):
    few = table_of(LABEL, [Row(4, 1, 8, 5.0), Row(4, 1, 64, 6.0)])
    path = tmp_path / "fit.html"
    models = ModelFile(tuple(fit_tables([few])), ("few.csv",))
    assert write_model_report([few], models, path) == path
    read = Page(path.read_text("utf-8"))
    assert "0 of 1 series fitted" in read.text and "no series was fitted" in read.text and not read.figures


def test_models_without_their_measurements_are_told_in_tables(family):
    read = Page(page_of([], [family[0], fit_series(table(two_algorithms_us, PLACES, noise=0.005, launches=1))]))
    assert "2 of 2 series fitted" in read.text and "alpha_inter_us" in read.text and not read.figures


def test_the_header_says_from_what_and_the_page_needs_no_network(family):
    html = page_of([family[1]], [family[0]])
    read = Page(html)
    assert "runs/a" in read.text and "2026-01-02 03:04" in read.text and f"{family[1].points} points used" in read.text
    assert html.count(get_plotlyjs()) == 1
    rest = html.replace(get_plotlyjs(), "")
    assert len(rest) < 400_000 and not re.search(r"https?://|\bsrc\s*=|<link|@import|url\(", rest)
    policy = next(a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and len(read.code) == 2


def test_nothing_of_a_label_acts_on_the_page():
    evil = {"backend": EVIL, "dtype": EVIL, EVIL: EVIL}
    tables = [
        table(ring_us, PLACES, seed=5, algorithm=EVIL, **evil),
        table(lambda r, n, s: 1.5 * ring_us(r, n, s), PLACES, seed=6, algorithm="own:" + EVIL, **evil),
        table_of(LABEL | evil | {"op": EVIL}, [Row(4, 1, 8, 5.0)]),
    ]
    models = [replace(m, warnings=(EVIL,), left_out={EVIL: 1}) for m in fit_tables(tables)]
    html = model_page(tables, ModelFile(tuple(models), (EVIL,), (), EVIL))
    read = Page(html)
    assert "img" not in {tag for tag, _ in read.tags} and len(read.code) == 2 and len(read.figures) >= 5
    assert html.replace(get_plotlyjs(), "").count(EVIL) == 0 and read.text.count(EVIL) > 20
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    for words in _texts(read.figures):
        assert not re.search(r"<(?!br>|b>|/b>)", words), words  # plotly itself reads a subset of HTML


def _exit_code(*arguments) -> int:
    with pytest.raises(SystemExit) as ended:
        cli([str(argument) for argument in arguments])
    return ended.value.code


def test_commbench_fit_writes_the_page(tmp_path, capsys):
    source, out = tmp_path / "times.csv", tmp_path / "fit.html"
    rows = [f"all_reduce,4,{2**k},{10 + 2**k / 1000}" for k in range(3, 20)]
    source.write_text("\n".join(["op,ranks,size_bytes,time_us", *rows]))
    assert _exit_code("fit", source, "--report", out) == 0
    assert f"written: {out}" in capsys.readouterr().out and "1 of 1 series fitted" in Page(out.read_text("utf-8")).text
    assert _exit_code("fit", source, "--report", tmp_path / "no" / "fit.html") == 2
    assert "choose another --report" in capsys.readouterr().err
