"""`commbench simulate --pipeline`: figures, drawings in text and on a page, and what it refuses."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from commbench.cli import main
from commbench.cli.simulate_pipeline import drawn
from commbench.reports.gantt import MOST_BARS, gantt_figure, measured_figure, simulated_figure
from commbench.schedules.stages_catalogue import NAMES, build
from commbench.schedules.stages_simulate import Costs, simulate


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def test_all_schedules_in_figures_and_on_a_page(capsys, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "rows.json"
    code, out, _ = _run(capsys, "--pipeline", "all", "--out", str(page), "--json", str(file))
    assert code == 0 and "simulated, not measured" in out
    rows = {row["schedule"]: row for row in json.loads(file.read_text())["rows"]}
    assert {name: row["bubble"] for name, row in rows.items()} == pytest.approx(
        {"gpipe": 9, "1f1b": 9, "interleaved": 4.5, "zb_h1": 3, "zb_v": 1.5, "dualpipe": 2, "dualpipe_v": 3}
    )
    assert all(row["formula"] == pytest.approx(row["bubble"]) for row in rows.values())
    assert rows["zb_v"]["bubble_of_span"] == pytest.approx(0)
    assert [rows[name]["messages"] for name in ("1f1b", "interleaved", "zb_v", "dualpipe")] == [48, 112, 96, 48]
    html = page.read_text()
    assert html.count('class="figure"') == 7 and "Simulated, not measured" in html and str(page) in out


def test_what_is_not_simulated_is_said_beside_what_is(capsys):
    code, out, _ = _run(capsys, "--pipeline", "1f1b,dualpipe", "--stages", "3", "--micro-batches", "4")
    assert code == 0 and "must be even, not 3 and 4" in " ".join(out.split())
    code, out, _ = _run(capsys, "--pipeline", "gpipe", "--stages", "16", "--micro-batches", "128")
    assert code == 0 and "too wide to draw in text" in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "say what to simulate: either an operation"),
        (["all_reduce", "--pipeline", "1f1b"], "say what to simulate"),
        (["--pipeline", "zb"], "'zb' is none of gpipe, 1f1b"),
        (["--pipeline", "1f1b", "--costs", "1,1"], "--costs 1,1: write the times of F, B and W"),
        (["--pipeline", "1f1b", "--costs", "1,0,1"], "above 0"),
        (["--pipeline", "1f1b", "--costs", "1,nan,1"], "above 0"),
        (["--pipeline", "1f1b", "--stages", "5000"], "up to 1024 ranks"),
        (["--pipeline", "1f1b", "--stages", "0"], "1 rank or more"),
        (["--pipeline", "1f1b", "--out", "/nowhere/page.html"], "/nowhere/page.html cannot be written"),
    ],
)
def test_what_cannot_be_is_said(capsys, arguments, said):
    code, _, err = _run(capsys, *arguments)
    assert code == 2 and said in err


def test_the_drawing_in_text():
    assert drawn(simulate(build("1f1b", 2, 2), Costs())).splitlines() == [
        "   0 F0|F1|······BW0  |···BW1  |",
        "   1 ···F0|BW0  |F1|BW1  |",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_a_bar_where_it_is_simulated(name):
    timeline = simulate(build(name, 4, 8), Costs())
    figure = simulated_figure(timeline, "F")
    actions = sum(len(cell) for row in timeline.schedule.rows for cell in row)
    assert sum(len(trace["x"]) for trace in figure["data"]) == actions
    ends = max(base + x for trace in figure["data"] for base, x in zip(trace["base"], trace["x"]))
    assert ends == pytest.approx(timeline.makespan)
    for trace in figure["data"]:
        for y, width in zip(trace["y"], trace["width"]):
            assert abs(y - round(y)) + width / 2 <= 0.5  # within the band of its rank


def test_a_measured_pipeline_is_drawn_and_nothing_else_is():
    schedule = build("zb_h1", 2, 3)
    timeline = simulate(schedule, Costs(1000.0, 1000.0, 1000.0))
    lines = [np.stack(pair, axis=1).ravel().tolist() for pair in zip(timeline.starts, timeline.ends)]
    params = {"schedule": "zb_h1", "micro_batches": 3, "chunks": 2}
    point = SimpleNamespace(params=params, ranks=2)
    figure = measured_figure(SimpleNamespace(point=point, rank_facts={"timeline_us": lines}))
    assert {trace["name"][0] for trace in figure["data"]} == {"F", "B", "W"}
    assert max(b + x for t in figure["data"] for b, x in zip(t["base"], t["x"])) == pytest.approx(
        timeline.makespan / 1e3
    )
    assert measured_figure(SimpleNamespace(point=point, rank_facts={})) is None
    for spoilt in ([lines[0], lines[1][:-2]], [lines[0], ["x"] * 18], 7, [1, 2]):
        assert measured_figure(SimpleNamespace(point=point, rank_facts={"timeline_us": spoilt})) is None
    point.params["micro_batches"] = 10**9
    assert measured_figure(SimpleNamespace(point=point, rank_facts={"timeline_us": lines})) is None


def test_what_is_too_much_is_not_drawn():
    schedule = build("gpipe", 16, 1000)
    times = [np.zeros((len(row), 2)) for row in schedule.rows]
    assert 16 * 2000 > MOST_BARS and gantt_figure(schedule, times, "") is None
