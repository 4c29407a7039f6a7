"""The MoE page: time against skew, predictions, matrices and loads, of runs whose times are known."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from measured import write_run

from commbench.reports.exchanges import exchanges
from commbench.reports.moe import moe_section
from commbench.reports.page import page
from commbench.results.journal import Journal
from commbench.results.records import Sample
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite


def samples_of(launches=1, slow=None, ranks=4):
    """The suite moe on one node where each rank's port moves 10 GB/s; `slow`: a flow that takes twice as long."""
    tables = read_suite("moe")
    few = [m | {"tokens": 128} if "skew" in m or "routing" in m else m for m in tables["measure"] if "op" in m]
    steps = expand(check_suite(tables | {"measure": few}, "x"), ranks, ["gloo"], [0] * ranks)
    made = []
    for launch in range(1, launches + 1):
        for point in (p for step in steps for p in step):
            if point.status != "ok":
                made.append(Sample(point, launch, "2026-01-01T00:00:00Z", status="skip", reason=point.reason))
                continue
            moved = max(point.send_bytes, point.recv_bytes) * (ranks - 1) / ranks
            factor = 2 if slow and point.params.get("routing") == slow else 1
            time_us = (5 + factor * moved / 1e4) * (1 + 0.01 * launch)
            made.append(Sample(point, launch, "2026-01-01T00:00:00Z", samples_us=(time_us,) * 20, wrong=0))
    return made


def run_of(tmp_path, samples, ranks=4):
    folder = write_run(tmp_path / "run", samples)
    for path in folder.glob("launch-*.jsonl"):  # a header that places the ranks
        lines = path.read_text().splitlines()[1:]
        path.unlink()
        journal = Journal(path)
        journal.write({"record": "header", "schema": 1, "ranks": [{"rank": r, "node": 0} for r in range(ranks)]})
        journal.close()
        path.write_text(path.read_text() + "\n".join(lines) + "\n")
    return load_run(folder)


def test_padding_and_prediction_of_each_exchange(tmp_path):
    run = run_of(tmp_path, samples_of(slow="zipf:1.2"))
    found = [e for e in exchanges([s for s in run.samples() if s.samples_us], run)]
    ratios = {e.received: e for e in found if e.flow.startswith("ratio:") and e.asked_bytes == 16 << 20
              and e.sample.point.op == "all_to_all_v"}  # fmt: skip
    assert sorted(ratios) == pytest.approx([1, 1.5, 2, 3])
    for skew, one in ratios.items():
        # Everyone sends the same; padded, all blocks are as large as the hot rank's.
        assert one.padding == pytest.approx(1, rel=0.01) and one.busiest == 0
        assert one.predicted.busiest == ("rank 0 sends" if skew == 1 else "rank 0 receives") + " within its node"
    slow = [
        e for e in found if e.flow.startswith("zipf:1.2") and "balanced" not in e.flow and e.asked_bytes == 16 << 20
    ]
    assert slow and all(e.off > 0.2 for e in slow)
    assert all(e.off is None for e in found if "log_normal" in e.flow)


def test_launches_are_one_row(tmp_path):
    once, thrice = ({e.sample.point.id: e for e in exchanges(s, run_of(tmp_path / str(n), s))}
                    for n in (1, 3) for s in [[s for s in samples_of(n) if s.samples_us]])  # fmt: skip
    assert set(once) == set(thrice)
    for key, one in once.items():
        assert thrice[key].time_us == pytest.approx(one.time_us / 1.01 * 1.02)
        assert len(thrice[key].sample.samples_us) == 60


def test_the_section_and_its_figures(tmp_path):
    section = moe_section(run_of(tmp_path, samples_of()))
    (skew,) = section["skew"]
    drawn = go.Figure(skew["figure"]).data
    assert {d.name for d in drawn} >= {"64K", "1M", "16M", "16M, padded", "16M, routers"}
    largest = next(d for d in drawn if d.name == "16M" and d.yaxis is None)
    assert list(largest.x) == pytest.approx([1, 1.5, 2, 3]) and list(largest.y) == sorted(largest.y)
    heat = go.Figure(section["matrices"]["figure"]).data
    assert np.array(heat[0].z)[:, 0] == pytest.approx(3) and len(heat) == len(section["matrices"]["captions"]) == 4
    assert len(section["loads"]) == 2 and all(len(go.Figure(one["figure"]).data) == 4 for one in section["loads"])
    assert "32 further copies" in section["loads"][0]["caption"]
    assert len(section["counts"]) == 1 and section["counts"][0].startswith("gloo, group all, 4 ranks")
    rows = {(row["flow"], row["moved"]): row for row in section["rows"]}
    assert rows["ratio:3", "1M"]["received"] == "3" and rows["ratio:3", "1M"]["off"] == ""
    assert ("ratio:5", "1M") not in rows


def test_what_moves_is_named_by_its_size_and_its_kind(tmp_path):
    section = moe_section(run_of(tmp_path, samples_of()))
    heat = go.Figure(section["matrices"]["figure"]).data[0]  # ratio:3 of 64K a rank: three quarters to rank 0
    assert [cell.partition(": ")[2] for cell in heat.hovertext[0]] == ["48K", "5504", "5440", "5440"]
    rows = {row["flow"]: row["moved"] for row in section["rows"] if row["flow"].startswith("uniform")}
    # With 4 ranks of 64 experts a token of top-8 misses a rank with (3/4)^8: 3.6 ranks of 8 selections.
    assert rows["uniform"] == "16M" and rows["uniform, copies rank"] == "7428K"
    names = [trace["name"] for trace in section["skew"][0]["figure"]["data"]]
    assert "16M, routers" in names and "16M, routers, copies rank" in names
    (load, *_) = section["loads"]
    assert {load["figure"]["layout"][axis]["title"]["text"] for axis in ("yaxis", "yaxis2")} == {
        "selections", "selections received"
    }  # fmt: skip


def test_the_page_escapes_what_a_journal_holds(tmp_path):
    evil = "<script>alert(1)</script>"
    samples = [replace(s, point=replace(s.point, group=evil)) for s in samples_of()]
    html = page(run_of(tmp_path, samples))
    assert 'id="moe"' in html and evil not in html


def test_a_journal_from_elsewhere_makes_no_page_fall_over_and_no_file_be_read(tmp_path):
    trap = tmp_path / "trap.csv"
    trap.write_text("1,2,3,4,5,6,7,8\n" * 512)
    changes = {
        "uniform": {"routing": f"trace:{trap}"}, "ratio:2": {"received": [1, 2, 3, 4]}, "ratio:1.5": {"sent": "many"},
        "ratio:1": {"tokens": 2**30}, "zipf:1.2": {"experts": "x"}, "node_limited:8:4": {"matrix": [["a"]]},
        "log_normal:1": {"routing": ["log_normal:1"]},
    }  # fmt: skip
    samples = []
    for sample in samples_of():
        params = sample.point.params | changes.get(sample.point.params.get("routing"), {})
        samples.append(replace(sample, point=replace(sample.point, params=params)))
    section = moe_section(run_of(tmp_path, samples))
    flows = {row["flow"]: row for row in section["rows"]}
    for flow in (f"trace:{trap}", "ratio:2", "ratio:1", "zipf:1.2"):
        assert flows[flow]["predicted"] == "–", flow
    assert flows["ratio:3"]["predicted"] != "–" and not {"ratio:1.5", "node_limited:8:4"} & set(flows)
    assert page(run_of(tmp_path / "again", samples))


JUNK = [None, "", "x", -1, 0, 1, 10**12, 1.5, True, [], ["a"], [[1]], {"a": 1}, "trace:/dev/zero", "zipf:8", "hot:1:1"]


def test_no_junk_in_a_point_makes_the_section_fall_over(tmp_path):
    kept = [s for s in samples_of() if s.samples_us][::6]
    rng = np.random.default_rng(0)
    for round_ in range(60):
        samples = []
        for sample in kept:
            params = dict(sample.point.params)
            key = str(rng.choice(sorted({*params, "copies", "placement", "masked", "matrix", "ranks_per_node"})))
            params[key] = JUNK[rng.integers(len(JUNK))]
            changed = {"params": params}
            if round_ % 3 == 0:
                name = ("ranks", "nodes", "count")[rng.integers(3)]
                changed[name] = int(rng.choice([-1, 0, 1, 3, 2**40]))
            if round_ % 5 == 0:
                changed["dtype"] = "float31"
            samples.append(replace(sample, point=replace(sample.point, **changed)))
        run = run_of(tmp_path / str(round_), kept)
        moe_section(replace(run, launches=tuple(replace(x, samples=tuple(samples)) for x in run.launches)))


def test_a_recorded_trace_has_its_matrix_in_the_row(tmp_path):
    trace = tmp_path / "trace.csv"
    np.savetxt(trace, np.random.default_rng(0).permuted(np.tile(np.arange(16), (64, 1)), axis=1)[:, :4], "%d", ",")
    equal = {"op": "all_to_all_v", "matrix": "equal", "size": ["4K", "64K", "1M"]}
    traced = {"op": "all_to_all_v", "routing": f"trace:{trace}", "size": "64K", "experts": 16, "top_k": 4, "tokens": 16}
    steps = expand(check_suite({"name": "x", "measure": [equal, traced]}, "x"), 4, ["gloo"], [0] * 4)
    trace.unlink()
    points = [step[0] for step in steps]
    samples = [Sample(p, 1, "2026-01-01T00:00:00Z", samples_us=(1 + p.size_bytes / 1e4,) * 20) for p in points]
    section = moe_section(run_of(tmp_path, samples))
    (row,) = section["rows"]
    assert row["flow"] == f"trace:{trace}" and row["predicted"] != "–" and len(section["matrices"]["captions"]) == 1


def test_a_run_without_generated_traffic_has_no_such_section(tmp_path):
    samples = [s for s in samples_of() if "routing" not in s.point.params]
    assert moe_section(run_of(tmp_path, samples)) is None
    assert moe_section(run_of(tmp_path / "none", [s for s in samples_of() if s.status == "skip"])) is None


def test_no_header_no_prediction(tmp_path):
    run = load_run(write_run(tmp_path / "run", samples_of()))
    section = moe_section(run)
    assert {row["predicted"] for row in section["rows"]} == {"–"} and section["matrices"]
