"""The report: what it draws, what it says, and that nothing of a run can act on the page."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from commbench.ops import OPS
from commbench.reports.definitions import FACTORS
from commbench.reports.dots import overview_figure, variants_figure
from commbench.reports.facts import facts
from commbench.reports.figures import line_figure, size_ticks
from commbench.reports.looks import WRONG_COLOUR, colours, painter
from commbench.reports.page import page, write_report
from commbench.reports.rows import figure, rows_of
from commbench.reports.schedules import schedule_sections
from commbench.reports.series import panels
from commbench.reports.table import COLUMNS, table
from commbench.reports.verdict import verdict
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample
from commbench.results.store import load_run

EVIL = '</script><img src=x onerror="alert(1)"><b>&amp;'
COLOURS = colours(["gloo", "nccl", "mpi", "other", EVIL])


def _lines_of(panel):
    return line_figure(panel, painter([panel], COLOURS))


def point(op="all_reduce", backend="gloo", size_bytes=1024, ranks=4, **keys) -> Point:
    keys.setdefault("members", tuple(range(ranks)))
    return Point(op, backend, size_bytes, ranks=ranks, world_size=keys.pop("world_size", ranks), **keys)


def sample(of: Point, time_us=100.0, launch=1, **keys) -> Sample:
    """20 samples whose median is `time_us` and whose 95 % interval is 1 % to each side."""
    times = [time_us * (0.99 if i < 10 else 1.01) for i in range(20)]
    return Sample(of, launch, "2026-01-01T00:00:00Z", **{"samples_us": tuple(times), "wrong": 0, **keys})


def failed(of: Point, status: str, reason="", launch=1) -> Sample:
    return Sample(of, launch, "2026-01-01T00:00:00Z", status=status, reason=reason)


def save(folder, samples, header=None, end=None, launches=1, name="test"):
    """A run on the disk: one journal, its header and end record left out where None."""
    points = {s.point.id: replace(s.point, status="ok") for s in samples}
    Plan(name, tuple((p,) for p in points.values()), Settings(), launches=launches).save(folder / "plan.json")
    lines = [{"record": "header", "schema": 1, **header}] if header is not None else []
    lines += [s.to_json() for s in samples]
    lines += [{"record": "end", "schema": 1, **end}] if end is not None else []
    (folder / "launch-001.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_run(folder)


def sweep(**keys) -> list[Sample]:
    return [sample(point(size_bytes=2**k, **keys), 10 + 2**k / 1000) for k in range(3, 13)]


class Page(HTMLParser):
    """Tags with their attributes, the contents of scripts, and the text outside of scripts and styles."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.text, self._inside = [], [], "", None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attributes).get("type"), ""))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self._inside != "style":
            self.text += data

    @property
    def figures(self) -> list[dict]:
        return [json.loads(text) for kind, text in self.scripts if kind == "application/json"]

    @property
    def code(self) -> list[str]:
        return [text for kind, text in self.scripts if kind is None]


def test_one_file_with_plotly_once_and_no_network(tmp_path):
    run = save(tmp_path, sweep() + sweep(backend="mpi"), end={"exit_code": 0})
    path = tmp_path / "report.html"
    assert write_report(run, path) == path
    html = path.read_text("utf-8")
    assert html.count(get_plotlyjs()) == 1
    rest = html.replace(get_plotlyjs(), "")
    assert len(rest) < 300_000
    assert not re.search(r"https?://|\bsrc\s*=|<link|@import|url\(", rest)
    # plotly.js has a button that uploads a figure's data, unless told otherwise
    assert "showSendToCloud: false" in rest and 'plotlyServerURL: ""' in rest and "modeBarButtons:" in rest


def test_no_script_but_its_own_may_run(tmp_path):
    read = Page(page(save(tmp_path, sweep())))
    policy = next(a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert len(read.code) == 2 and len(read.figures) == 2
    for code in read.code:
        assert base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() in policy
    scripts = re.search(r"script-src ([^;]*)", policy)[1]
    assert "unsafe" not in scripts and policy.startswith("default-src 'none'")
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]


def test_nothing_of_a_run_acts_on_the_page(tmp_path):
    bad = {"backend": EVIL, "group": EVIL, "dtype": EVIL, "params": {EVIL: EVIL}, "algorithm": EVIL}
    samples = [replace(s, algorithm_seen=EVIL, stop_reason=EVIL, reason=EVIL) for s in sweep(**bad)]
    samples[2] = replace(samples[2], status="wrong", wrong=3)
    samples[4] = replace(samples[4], status="skip")
    samples.append(failed(point(op=EVIL, backend=EVIL), "error", EVIL))
    samples.append(failed(point(op="barrier", backend=EVIL), EVIL, EVIL))
    settings = {"environment": {EVIL: EVIL}, "conf_files": {EVIL: EVIL}}
    node = {"host": EVIL, "cpu": EVIL, "gpus": [{"name": EVIL}], **settings}
    header = {"suite": EVIL, "versions": {EVIL: EVIL}, "nodes": [node], "ranks": [{"host": EVIL}], "notes": [EVIL]}
    run = save(tmp_path, samples, header, {"exit_code": 5, "reason": EVIL, "missing": [EVIL]}, name=EVIL)
    html = page(run)
    read = Page(html)
    assert "img" not in {tag for tag, _ in read.tags}
    assert len(read.code) == 2 and len(read.figures) == 2  # none was cut short or added
    assert html.replace(get_plotlyjs(), "").count(EVIL) == 0
    assert read.text.count(EVIL) > 20  # and yet it can be read
    for words in _texts(read.figures):
        # plotly itself reads a subset of HTML in these
        assert not re.search(r"<(?!br>|b>|/b>)", words), words


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def test_text_that_utf8_cannot_hold(tmp_path):
    run = save(tmp_path, sweep(), {"notes": ["cut \ud83d emoji"]})
    assert "cut ? emoji" in write_report(run, tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    "samples, header, end, said",
    [
        ([], None, None, ["no launch has begun"]),
        ([failed(point(), "skip", "no GPU here")], {}, {"exit_code": 3}, ["no GPU here", "every point was skipped"]),
        (sweep(), None, None, ["has no header", "has no end record"]),
        (sweep(), {"nodes": None, "ranks": [None], "versions": [1], "notes": {}}, {}, ["10 rows"]),
        ([failed(point(), "error", "rank 2 was lost")], {}, {"exit_code": 4}, ["rank 2 was lost", "no row is ok"]),
        ([sample(point(op="barrier", size_bytes=0))], {}, {"exit_code": 0}, ["it moves no data"]),
        ([sample(point(), wrong=9, status="wrong")], {}, {"exit_code": 5}, ["1 row wrong or in error", "wrong data"]),
    ],
)
def test_a_page_for_every_run(tmp_path, samples, header, end, said):
    run = save(tmp_path, samples, header, end)
    if not samples:
        (tmp_path / "launch-001.jsonl").unlink()
        run = load_run(tmp_path)
    read = Page(page(run))
    for words in said:
        assert words in read.text
    for drawn in read.figures:
        go.Figure(drawn)


def test_figures_are_plotly_figures():
    wrong = sample(point(size_bytes=64, dtype="int8"), wrong=1, status="wrong")
    rows = rows_of([*sweep(), *sweep(in_place=True), sample(point(dtype="float16")), wrong])
    (panel,) = panels(rows)
    assert len(panel.lines) == 2 and len(panel.variants) == 2
    for drawn in (_lines_of(panel), variants_figure(panel, COLOURS), overview_figure([panel], COLOURS)):
        go.Figure(drawn)  # raises on a property that plotly does not have


def _lines(drawn: dict, axis: str) -> list[dict]:
    return [t for t in drawn["data"] if t["mode"] == "lines+markers" and t.get("xaxis", "x") == axis]


def test_a_line_for_each_way_of_measuring():
    ways = [
        {}, {"backend": "mpi"}, {"dtype": "float16"}, {"in_place": True},
        {"timing": "streaming", "batch": 20}, {"redop": "max"}, {"params": {"window": 4}},
    ]  # fmt: skip
    (panel,) = panels(rows_of([s for way in ways for s in sweep(**way)]))
    lines = _lines(_lines_of(panel), "x")
    assert len(lines) == len(ways) and len({line["name"] for line in lines}) == len(ways)
    assert [line["line"]["color"] for line in lines].count(COLOURS["mpi"]) == 1
    assert [line["line"]["dash"] for line in lines].count("dot") == 1
    assert all(line["x"] == [2**k for k in range(3, 13)] for line in lines)


def test_what_follows_the_size_splits_no_line():
    rows = rows_of([
        sample(point(size_bytes=2**k, timing="streaming", batch=k, params={"requested_bytes": 2**k, "matrix": [[k]]}))
        for k in range(3, 13)
    ])  # fmt: skip
    assert len(panels(rows)[0].lines) == 1
    swept = rows_of([s for batch in (1, 20) for s in sweep(timing="streaming", batch=batch)])
    assert [dict(line.traits)["batch"] for line in panels(swept)[0].lines] == ["batch 1", "batch 20"]


def test_groups_of_other_kinds_have_panels_of_their_own():
    part = {"ranks": 4, "world_size": 8}
    places = [
        {"ranks": 8},
        {**part, "group": "DIV 4 #0"},
        {**part, "group": "DIV 4 #1"},
        {**part, "group": "MOD 2 #0"},
        {**part, "group": "DIV 4 #0", "scope": "inter"},
    ]
    found = panels(rows_of([s for place in places for s in sweep(**place)]))
    assert [len(panel.groups) for panel in found] == [1, 2, 1, 1]


def test_only_ok_rows_are_drawn_and_lines_break_at_the_others():
    samples = sweep()
    samples[3] = replace(samples[3], status="wrong", wrong=7)
    samples[6] = failed(samples[6].point, "error", "lost")
    drawn = _lines_of(panels(rows_of(samples))[0])
    for axis in ("x", "x2"):
        (line,) = _lines(drawn, axis)
        sizes = [2**k for k in range(3, 13)]
        assert line["x"] == [*sizes[:3], None, *sizes[4:6], None, *sizes[7:]]
        (cross,) = [t for t in drawn["data"] if t["name"] == "wrong data" and t["xaxis"] == axis]
        assert cross["x"] == [64] and cross["marker"]["color"] == WRONG_COLOUR and "7 elements" in cross["hovertext"][0]
        (band,) = [t for t in drawn["data"] if t.get("fill") == "toself" and t["xaxis"] == axis]
        assert band["x"].count(None) == 2


def test_figures_hold_the_metrics():
    drawn = _lines_of(panels(rows_of([sample(point(size_bytes=2**20), 100.0)]))[0])
    (busbw,), (time,) = _lines(drawn, "x"), _lines(drawn, "x2")
    assert time["y"] == [pytest.approx(100.0)]
    assert busbw["y"] == [pytest.approx(2**20 / 100e3 * 1.5)]  # 2(n-1)/n of 4 ranks
    low, high = [t["y"] for t in drawn["data"] if t.get("fill") and t["xaxis"] == "x"][0]
    assert (low, high) == (pytest.approx(busbw["y"][0] / 1.01), pytest.approx(busbw["y"][0] / 0.99))


def test_several_launches_pool_medians():
    samples = [sample(point(), time, launch) for launch, time in ((1, 100.0), (2, 130.0), (3, 110.0))]
    (panel,) = panels(rows_of(samples))
    (spot,) = panel.lines[0].spots
    assert spot.time_us == pytest.approx(110) and spot.band_us == (pytest.approx(100), pytest.approx(130))
    hover = _lines(_lines_of(panel), "x")[0]["hovertext"][0]
    assert "lowest to highest of 3 launches" in hover and "60 samples" in hover


def test_many_groups_share_a_look_and_the_slowest_is_named(tmp_path):
    samples = [
        sample(point(ranks=4, world_size=32, group=f"DIV 4 #{g}", size_bytes=2**k), 150.0 if g == 5 else 100.0 + g)
        for g in range(8)
        for k in (10, 12, 14)
    ]
    run = save(tmp_path, samples)
    (panel,) = panels(rows_of(run.samples()))
    drawn = _lines_of(panel)
    assert len(_lines(drawn, "x")) == 8 and sum(t["showlegend"] for t in drawn["data"]) == 1
    assert "slowest of 8 groups at 16K is DIV 4 #5 with 150 µs" in " ".join(Page(page(run)).text.split())


def test_one_rank_has_no_busbw(tmp_path):
    run = save(tmp_path, sweep(ranks=1))
    drawn = _lines_of(panels(rows_of(run.samples()))[0])
    assert not _lines(drawn, "x") and len(_lines(drawn, "x2")) == 1
    assert "does not apply" in drawn["layout"]["annotations"][0]["text"]
    assert _cells(run)["busbw, GB/s"] == ("n/a", None)


def test_size_ticks():
    assert size_ticks([8])[1] == ["8"]
    values, names = size_ticks([8, 2**30])
    assert 5 <= len(values) <= 9 and values[0] == 8 and names[:2] == ["8", "128"]
    assert size_ticks([1000, 100_000])[1][0] == "512"


def _cells(run, at=0) -> dict:
    columns = table(rows_of(run.samples()))
    return {column.name: cell[:2] for column, cell in zip(COLUMNS, columns["lines"][at][1], strict=True)}


def test_table(tmp_path):
    slow = sample(point(backend="mpi", size_bytes=2**20, members=(4, 5, 6, 7)), 100.0, slowest_count=(1, 17, 2, 0))
    unchecked = sample(point(op="all_to_all", in_place=True), wrong=None)
    skipped = failed(point(size_bytes=0, params={"requested_bytes": 4096}), "skip", "why not")
    run = save(tmp_path, [slow, unchecked, skipped])
    cells = _cells(run)
    assert cells["size"] == ("1M", 2**20)
    assert cells["time, µs"] == ("100.00", pytest.approx(100))
    assert cells["95 % interval, µs"][0] == "99.00 – 101.00"
    assert cells["busbw, GB/s"][0] == "15.729" and cells["algbw, GB/s"][0] == "10.486"
    assert cells["p95, µs"][0] == "101.00" and cells["p99, µs"] == ("–", None)  # 20 samples
    assert cells["slowest rank"] == ("5 (85%)", pytest.approx(0.85))
    assert _cells(run, 1)["#wrong"] == ("not checked", None)
    assert _cells(run, 2)["size"] == ("4K", 4096) and _cells(run, 2)["time, µs"] == ("–", None)
    columns = table(rows_of(run.samples()))
    assert ("dtype", "float32") in columns["same"] and "backend" not in dict(columns["same"])
    assert sum(fold for _, _, fold in columns["heads"]) == columns["folded"]
    assert not any(fold for *_, fold in table(rows_of([slow]))["heads"])  # a single row folds nothing


def test_verdict(tmp_path):
    samples = [
        sample(point(size_bytes=8), oversubscribed=True),
        sample(point(op="all_to_all", size_bytes=8, in_place=True), wrong=None),
        sample(point(size_bytes=16), samples_us=(1.0, 2.0)),
        failed(point(size_bytes=32), "error", "lost"),
        sample(point(size_bytes=64), wrong=5, status="wrong"),
        *[failed(point(op="gather", backend="nccl", size_bytes=2**k), "skip", "no gather") for k in range(3)],
        failed(point(op="reduce", size_bytes=8), "skip", "other"),
    ]
    run = save(tmp_path, samples, {"plan_hash": "another"}, {"exit_code": 5, "reason": "wrong data"}, launches=2)
    told = verdict(run, rows_of(run.samples()))
    assert (told["code"], told["meaning"]) == (5, "wrong data")
    assert told["counts"] == [("ok", 3), ("wrong", 1), ("error", 1), ("skip", 4)]
    assert told["planned"] == 18 and told["unmeasured"] == 9
    assert [row.sample.status for row in told["failed"]] == ["wrong", "error"]
    assert told["skips"] == [
        {"reason": "no gather", "count": 3, "where": "nccl gather (3)"},
        {"reason": "other", "count": 1, "where": "gloo reduce (1)"},
    ]
    warnings = " ".join(told["warnings"])
    for words in (
        "1 row of 3 measured with more ranks than cores", "gloo all_to_all in place (1)", "from within one launch",
        "gloo all_reduce (2)", "1 row with fewer than 6 samples", "another plan",
    ):  # fmt: skip
        assert words in warnings


def test_no_warning_without_cause(tmp_path):
    samples = [replace(s, launch=launch) for launch in (1, 2) for s in sweep(in_place=True)]
    run = save(tmp_path, samples, {}, {"exit_code": 0}, launches=2)
    run = replace(run, launches=(replace(run.launches[0], header={"launch": 1}),))
    told = verdict(run, rows_of(run.samples()))
    assert (told["code"], told["warnings"], told["unmeasured"]) == (0, [], 0)


def test_nodes_alike_are_one_machine(tmp_path):
    def node(i, **keys):
        cards = [{"name": "H200", "uuid": f"{i}-{k}"} for k in range(8)]
        environment = {"NCCL_ALGO": "Ring", "SLURM_PROCID": str(8 * i)}
        return {"host": f"n{i:03}", "cpu": "EPYC", "gpus": cards, "environment": environment, **keys}

    nodes = [node(i, memory_available_bytes=i) for i in range(100)] + [node(100, cpu="Xeon")]
    run = save(tmp_path, sweep(), {"world_size": 808, "nodes": nodes, "versions": {"torch": "2.9"}}, {})
    told = facts(run)
    assert told["hosts"] == 101 and told["world_sizes"] == ["808"] and told["versions"] == [("torch", ["2.9"])]
    common, odd = told["machines"]
    assert len(common["hosts"]) == 100 and odd["hosts"] == ["n100"]
    assert common["gpus"] == "8 × H200" and common["facts"] == [("cpu", "EPYC")]
    assert len(dict(common["lists"])["gpus"]["lines"]) == 64 * 8
    settings = dict(common["environment"])
    assert settings["NCCL_ALGO"] == ["Ring"] and len(settings["SLURM_PROCID"]) == 100


def test_factors_are_those_of_the_operations():
    formulas = {
        "2(n-1)/n": lambda n: 2 * (n - 1) / n,
        "(n-1)/n": lambda n: (n - 1) / n,
        "1": lambda n: 1,
        "2": lambda n: 2,
    }
    assert set(FACTORS) == set(OPS)
    for name, (_, formula, _) in FACTORS.items():
        if OPS[name].sized:
            assert all(OPS[name].bus_factor(n) == formulas[formula](n) for n in range(2, 65)), name
        else:
            assert formula == "none"


def test_figure_of_a_number():
    assert [figure(value) for value in (None, 0, 0.0004, 0.01234, 12.3456, 999.96, 48123.4)] == [
        "–", "0", "<0.001", "0.01234", "12.35", "1000", "48123",
    ]  # fmt: skip


def test_algorithms_are_compared_within_a_backend_each_in_its_colour():
    samples = [
        s for b in ("gloo", "mpi") for a in ("library", "own:ring", "ring") for s in sweep(backend=b, algorithm=a)
    ]
    drawn = panels(rows_of(samples))
    assert [panel.first.backend for panel in drawn] == ["gloo", "mpi"] and all(panel.by_algorithm for panel in drawn)
    paint = painter(drawn, COLOURS)
    used = [[paint(panel, series) for series in panel.lines] for panel in drawn]
    assert len(set(used[0])) == len(set(used[1])) == 3
    assert used[0][1:] == used[1][1:] and used[0][0] == COLOURS["gloo"] and used[1][0] == COLOURS["mpi"]


def test_pieces_of_a_pipeline_do_not_cut_its_line():
    points = [point(size_bytes=2**k, algorithm="own:tree", params={"pieces": 2 ** (k // 8)}) for k in range(3, 24)]
    assert len(panels(rows_of([sample(p) for p in points]))[0].lines) == 1


def test_schedules_are_drawn_with_what_went_over_each_link():
    points = [
        point(size_bytes=4 * count, count=count, ranks=4, algorithm="own:ring") for count in (16, 1 << 20)
    ] + [
        point(size_bytes=4096, count=1024, ranks=4, algorithm="own:hierarchical", params={"per_node": 2}),
        point(size_bytes=4096, count=1024, ranks=65, algorithm="own:tree", params={"pieces": 1}),
        point(size_bytes=4096, count=1024),
    ]  # fmt: skip
    ring, hierarchical, tree = schedule_sections(points)
    assert ring["title"] == "all_reduce by own:ring on 4 ranks: 6 steps"
    assert ring["caption"].startswith("24.00 MiB in all for a size of 4.00 MiB; a rank sends 6.00 MiB to 6.00 MiB")
    added, kept, links = go.Figure(ring["figure"]).data  # plotly takes it as it is
    assert len(added.x) == len(kept.x) == 3 * 4 * 3  # 3 steps of 4 messages, each a line and a gap
    assert [[cell for cell in row if cell] for row in links.z] == [[6.0]] * 4
    assert hierarchical["figure"] and tree["figure"] is None and "more than 64 ranks" in tree["caption"]
