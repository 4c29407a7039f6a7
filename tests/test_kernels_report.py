"""Attention kernels on the page of a run: from records made by hand, and from what flash-attention prints."""

from dataclasses import replace

import pytest

from commbench.cli.kernels_run import point
from commbench.importers.found import Given
from commbench.importers.read import read_file
from commbench.importers.runs import runs_of, write_run
from commbench.kernels.flops import Attention, executed_backward_flops, forward_flops
from commbench.kernels.masks import CAUSAL
from commbench.reports.kernels import kernels_section
from commbench.reports.page import page
from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample
from commbench.results.store import load_run

PEAK = {
    "tflops": 989.4,
    "name": "H200, dense bfloat16",
    "source": "sheet",
    "sparse_tflops": None,
    "memory_GBps": 4800.0,
}


def stored(folder, backends=("ours", "theirs"), peak=None, name="H200"):
    """A run on which a forward takes 2 us per 1000 pairs, a backward three times as long."""
    samples = []
    for seqlen in (512, 1024):
        case = Attention(2, 8, 8, seqlen, seqlen, 64, 64, "bfloat16", CAUSAL)
        for backend in backends:
            for which, factor in (("forward", 1), ("backward", 3)):
                time = factor * case.pairs / 500
                flops = forward_flops(case) if which == "forward" else executed_backward_flops(case)
                samples.append(Sample(
                    point(case, backend, which, "cuda"), 1, "", samples_us=(time,) * 7, flops=float(flops), wrong=0,
                    reported={"memory_bytes": 1000 * seqlen},
                ))  # fmt: skip
        absent = point(case, "flash2", "forward", "cuda")
        samples.append(Sample(absent, 1, "", status="skip", reason="not installed: <b>pip</b>"))
    copy = Point("copy", "cuda", 2**28, kind="kernel", ranks=1)
    product = Point("matmul", "cuda", 2**20, kind="kernel", ranks=1, params={"side": 512})
    samples += [Sample(copy, 1, "", samples_us=(134.2,) * 7), Sample(product, 1, "", samples_us=(100.0,), flops=5e10)]
    folder.mkdir()
    Plan(name, tuple((s.point,) for s in samples), Settings()).save(folder / "plan.json")
    journal = Journal(folder / "launch-001.jsonl")
    journal.write({"record": "header", "schema": 1, "peak": peak})
    for sample in samples:
        journal.write(sample.to_json())
    journal.close()
    return load_run(folder)


def test_rates_memory_and_roofs(tmp_path):
    section = kernels_section(stored(tmp_path / "run"))
    (setting,) = section["settings"]
    assert setting["title"] == "cuda, bfloat16, head dim 64, 8 heads, causal"
    ours = next(t for t in setting["rates"]["data"] if t["name"] == "ours" and t["xaxis"] == "x")
    rate = 2 * (64 + 64) * 500 / 1e6  # TFLOP/s: 256 operations a pair, 500 pairs a microsecond
    assert ours["x"] == [512, 1024] and ours["y"] == pytest.approx([rate, rate])
    memory = {t["name"]: t["y"] for t in setting["memory"]["data"]}
    assert memory["ours"] == pytest.approx([512e3 / 2**20, 1024e3 / 2**20])
    assert memory["the score matrix in float32"] == [2 * 8 * 512**2 * 4 / 2**20, 2 * 8 * 1024**2 * 4 / 2**20]
    assert section["roofs"] == pytest.approx((2 * 2**28 / 134.2 / 1e3, 500.0))
    roof = section["roofline"]["data"][-1]
    assert max(roof["y"]) == pytest.approx(500.0) and len(roof["x"]) == 3
    assert section["absent"] == [("flash2", "not installed: <b>pip</b>")] and section["peak"] is None


def test_percentages_stand_beside_their_peak(tmp_path):
    section = kernels_section(stored(tmp_path / "run", peak=PEAK))
    forward, backward = (
        next(r for r in section["settings"][0]["rows"] if r["pass"] == p) for p in ("forward", "backward")
    )
    assert forward["mfu"] == forward["hfu"] == f"{100 * 0.128 / 989.4:.3g} %"
    assert backward["hfu"] == f"{100 * 0.128 * 2.5 / 3 / 989.4:.3g} %"
    html = page(stored(tmp_path / "again", peak=PEAK))
    assert "989.4 TFLOP/s (H200, dense bfloat16; source: sheet)" in html and "MFU unmasked" in html


def test_the_page_without_a_peak_says_so_and_escapes(tmp_path):
    html = page(stored(tmp_path / "run", backends=("<script>alert(1)</script>", "b"), name="<i>x"))
    assert "There are no percentages" in html and "Attention kernels" in html
    assert "Every kernel was checked" in html
    assert "<script>alert(1)" not in html and "<b>pip</b>" not in html


@pytest.mark.parametrize("peak", [7, {"tflops": "989"}, {"tflops": -1}, {"tflops": 1e300}, {}])
def test_a_damaged_peak_is_none(tmp_path, peak):
    assert kernels_section(stored(tmp_path / "run", peak=peak))["peak"] is None


def test_damaged_parameters_are_left_out(tmp_path):
    run = stored(tmp_path / "run")
    broken = [replace(s.point, params={"seqlen": "x", "headdim": []}) for s in run.samples()]
    journal = Journal(tmp_path / "run" / "launch-002.jsonl")
    for damaged in broken:
        journal.write(Sample(damaged, 1, "", samples_us=(1.0,)).to_json())
    journal.close()
    assert len(kernels_section(load_run(tmp_path / "run"))["settings"]) == 1


def test_flash_attentions_own_output_is_drawn(tmp_path):
    text = tmp_path / "bench.txt"
    text.write_text(
        "### causal=True, headdim=64, batch_size=32, seqlen=512 ###\n"
        "Flash2 fwd: 84.08 TFLOPs/s, bwd: 52.88 TFLOPs/s, fwd + bwd: 59.15 TFLOPs/s\n"
        "### causal=True, headdim=64, batch_size=16, seqlen=1024 ###\n"
        "Flash2 fwd: 95.00 TFLOPs/s, bwd: 60.00 TFLOPs/s, fwd + bwd: 67.00 TFLOPs/s\n"
    )
    (draft,) = runs_of([read_file(text, Given("", 0, 0))], False)
    write_run(draft, tmp_path / "run", ["commbench", "import"])
    section = kernels_section(load_run(tmp_path / "run"))
    (setting,) = section["settings"]
    assert setting["title"] == "cuda, headdim 64, causal True" and setting["memory"] is None
    assert [t["y"] for t in setting["rates"]["data"]] == [[84.08, 95.0], [52.88, 60.0]]
    assert section["roofline"] is None
    html = page(load_run(tmp_path / "run"))
    assert "Attention kernels" in html
    assert "Nothing here says that these kernels were checked" in html and "Every kernel was checked" not in html


def test_a_run_of_collectives_has_no_such_section(tmp_path):
    one = Point("all_reduce", "gloo", 8, members=(0, 1), ranks=2, world_size=2)
    (tmp_path / "run").mkdir()
    Plan("t", ((one,),), Settings()).save(tmp_path / "run" / "plan.json")
    journal = Journal(tmp_path / "run" / "launch-001.jsonl")
    journal.write(Sample(one, 1, "", samples_us=(1.0,)).to_json())
    journal.close()
    assert kernels_section(load_run(tmp_path / "run")) is None
