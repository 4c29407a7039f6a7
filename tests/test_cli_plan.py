"""`commbench plan` as a person types it: what it prints, its page, and one sentence for what cannot be."""

import json
import math
import re
import subprocess
import sys

import plotly.graph_objects as go
import pytest
from measured import line_run, write_csv
from test_report import Page

from commbench.cli import main
from commbench.errors import UsageError
from commbench.fabrics import load_fabric
from commbench.models.model_file import ModelFile
from commbench.models.series_fit import fit_tables
from commbench.models.table import read_series
from commbench.planning.advice import advise_layout, advise_search
from commbench.planning.efficiency import machine_of
from commbench.planning.fitted_links import fitted_links
from commbench.planning.gpus import gpu_named
from commbench.planning.judged import judge
from commbench.planning.layout import Job, parse_layout
from commbench.planning.ledger import ledgers
from commbench.planning.links import Group, fabric_links
from commbench.planning.machine import Assumptions
from commbench.planning.search import Limits
from commbench.reports.plan_figures import account_figure, break_even_figure, memory_figure, published_figure
from commbench.reports.plan_page import plan_page
from commbench.shapes import SHIPPED, read_shape

H100 = ("--fabric", "h100-8x400g")
SIZES = [2**k for k in range(3, 29)]


@pytest.fixture
def commbench(capsys):
    """The command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return stopped.value.code or 0, out, err

    return run


def test_one_layout_with_its_arithmetic_shown(commbench):
    code, out, _ = commbench("plan", "llama3-405b", *H100, "--gpus", 16384, "--layout", "tp=8,pp=16,vpp=8,zero=2")
    assert code == 0
    assert "tp x cp x pp x dp = 8 x 1 x 16 x 128 = 16384" in out
    assert re.search(r"memory of the fullest rank \(pipeline rank 1 of 16\), GB of 85.5: 6.5 GB free", out)
    shares = [
        float(found) for found in re.findall(r"^  \S[\w -]*?\s+[\d.]+\s+([\d.]+) %", out.split("one step")[1], re.M)
    ]
    assert sum(shares) == pytest.approx(100, abs=0.6)
    assert "the interval comes mostly from: kernel efficiency and TP" in out
    assert "7.8 a day, one in 3.1 hours" in out
    assert "fitted to 6 published runs on h100" in out and "NVLink : NIC is 7.7" in out


def test_a_layout_that_does_not_fit_says_first_at_what(commbench):
    code, out, _ = commbench("plan", "llama3-70b", *H100, "--layout", "tp=8,zero=0", "--batch", 8)
    assert code == 0 and "DOES NOT FIT" in out and "first at the optimizer" in out


def test_the_ranking_says_why_the_others_lose(commbench):
    code, out, _ = commbench("plan", "llama3-405b", *H100, "--gpus", 16384)
    lines = out.splitlines()
    assert code == 0 and re.search(r"\d+ of \d+ layouts fit; the others lack memory, first for: activations", out)
    best = next(line for line in lines if line.endswith("best"))
    assert "tp=8,cp=2,pp=16" in best
    assert re.search(r"TP \+\d+\.\d %, PP bubble -\d", out)
    assert re.search(r"^  8 +\d+\.\d+ +1\.000 +tp=8", out, re.M)


def test_what_cannot_be_distinguished_is_said(commbench):
    code, out, _ = commbench("plan", "llama3-405b", "--fabric", "h800-8x400g", "--gpus", 16384)
    assert code == 0 and out.count("cannot distinguish from the best") >= 1


def test_json_holds_the_same(commbench):
    code, out, _ = commbench("plan", "llama3-8b", *H100, "--layout", "tp=2,dp=8", "--batch", 64, "--json")
    told = json.loads(out)
    assert code == 0 and told["step_us"]["total"] == pytest.approx(sum(told["step_us"]["terms"].values()))
    assert told["memory_bytes"]["total"] == pytest.approx(sum(told["memory_bytes"]["items"].values()))
    code, out, _ = commbench("plan", "llama3-8b", *H100, "--gpus", 16, "--batch", 64, "--json")
    told = json.loads(out)
    assert told["fit"] <= told["looked_at"] and told["runners_up"][0]["times_best"][0] >= 1
    steps = [told["best"]["step_us"]["total"], *(one["step_us"] for one in told["runners_up"])]
    assert steps == sorted(steps)
    code, out, _ = commbench("plan", "--published", "--json")
    assert len(json.loads(out)["runs"]) >= 20 and json.loads(out)["held_out"]["error_points"] < 4


def test_published_runs_as_a_table(commbench):
    code, out, _ = commbench("plan", "--published")
    assert code == 0
    assert "Megatron 1T of 2021: the 52 % counts recomputed FLOPs: it is an HFU; the MFU is 39 %" in out
    assert re.search(r"held out: \d+ runs, mean error \d\.\d points of MFU", out)
    assert "Llama's order 43 > 41 > 38 kept" in out and "(under half of that: yes)" in out


def test_serving(commbench):
    code, out, _ = commbench("plan", "llama3-405b", *H100, "--serving")
    assert code == 0 and "cache 516,096 bytes a token" in out
    assert re.search(r"equal .* 1\.0 ", out) and "arithmetic takes over from 295 tokens" in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "needs a model"),
        (("llama3-8b",), "needs --fabric F or --run RUN"),
        (("llama3-8b", *H100, "--run", "x"), "and not both"),
        (("llama", *H100, "--gpus", 8), "no model or model file 'llama'"),
        (("llama3-8b", "--fabric", "h100", "--gpus", 8), "no fabric or fabric file 'h100'"),
        (("llama3-8b", *H100), "how many GPUs"),
        (("llama3-8b", *H100, "--gpus", -1), "give a number from 1"),
        (("llama3-8b", *H100, "--gpus", 8, "--layout", "tp=8,dp=2"), r"8 x 1 x 1 x 2 = 16, but the job has 8 GPUs"),
        (("llama3-405b", *H100, "--gpus", 8), "none of .* layouts fits: no room for weights"),
        (("llama3-8b", *H100, "--gpus", 8, "--efficiency", 1.2), "kernels at 120 %"),
        (("llama3-8b", *H100, "--gpus", 8, "--efficiency", 0.5, "--kernel-TFLOPs", 500), "not both"),
        (("llama3-8b", *H100, "--gpus", 8, "--kernel-TFLOPs", 1500), "kernels at 152 %"),
        (("llama3-8b", *H100, "--gpus", 8, "--optimizer", "lion"), "no optimizer recipe 'lion'"),
        (("llama3-8b", *H100, "--gpus", 8, "--zero-with-pp", "5"), "stages of 0 to 3"),
        (("llama3-8b", *H100, "--gpus", 8, "--gpu", "v100"), "no GPU 'v100'"),
        (("llama3-8b", *H100, "--gpus", 8, "--checkpoint", 0), "above 0 seconds"),
        (("llama3-8b", *H100, "--gpus", 8, "--checkpoint", "nan"), "above 0 seconds"),
        (("llama3-8b", *H100, "--gpus", 8, "--restart", "nan"), "a restart takes 0 seconds or more, not nan"),
        (("llama3-8b", *H100, "--gpus", 8, "--restart", -5), "a restart takes 0 seconds or more, not -5"),
        (("llama3-8b", *H100, "--gpus", 8, "--layout", "tp=0"), "tp is 0; it must be 1 or more"),
        (("llama3-8b", *H100, "--gpus", 8, "--layout", ""), "the layout is empty"),
        (("llama3-8b", *H100, "--serving", "--layout", "tp=2"), "--serving has no use for --layout"),
        (("llama3-8b", *H100, "--serving", "--json"), "--serving has no use for --json"),
        (("--claim", "mfu=nan", "--gpu", "h100"), "write a name and a number"),
        (("--claim", "recompute=nan"), "write a name and a number"),
        (("--claim", "mfu=50", "--gpu", "h100", "--peak", 0), "0 TFLOP/s is no peak of h100"),
        (("llama3-8b", "--fabric", "a100-8x200g", "--gpus", 8, "--precision", "fp8"), "a100 has no fp8"),
        (("llama3-8b", *H100, "--gpus", 8, "--gpu", "tpuv4"), "state it by --efficiency"),
        (("--claim", "mfu=152", "--gpu", "h100"), "152 % cannot be"),
        (("--claim", "mfu=40"), "needs --gpu"),
        (("--claim", "gpu-util=90"), "not an MFU"),
        (("--claim", "recompute=33"), "not a measurement"),
        (("--claim", "dualpipe=2"), "not the activations"),
        (("--claim", "speed=2"), "there are mfu"),
        (("--claim", "mfu"), "write a name and a number"),
        (("--claim", "mfu=41", "--gpu", "h100", "--json"), "--claim stands alone"),
        (("llama3-8b", "--published"), "--published stands alone"),
        (("deepseek-v3", "--fabric", "h800-8x400g", "--gpus", 64, "--ep-most", 0), "--ep-most 0: an expert group"),
        (
            ("llama3-8b", "--run", "a.json", "b", "--gpu", "h100", "--layout", "tp=2"),
            "a.json: a model file stands alone",
        ),
        (("llama3-8b", "--fabric", "h800-8x400g", "--gpus", 8, "--precision", "fp32"), "h800 has no fp32 rate that is"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_2(commbench, arguments, said):
    code, out, err = commbench("plan", *arguments)
    assert code == 2 and out == ""
    assert err.startswith("commbench: ") and len(err.splitlines()) == 1 and re.search(said, err), err


def test_a_possible_claim(commbench):
    code, out, _ = commbench("plan", "--claim", "mfu=41", "--gpu", "h100")
    assert code == 0 and out == "mfu=41 can be\n"


def test_files_of_ones_own_with_a_fault(commbench, tmp_path):
    shape = tmp_path / "mine.toml"
    shape.write_text((SHIPPED / "llama3-8b.toml").read_text().replace("layers = 32\n", ""))
    code, _, err = commbench("plan", shape, *H100, "--gpus", 8)
    assert code == 2 and "layers is missing" in err
    fabric = tmp_path / "no-nic.toml"
    text = (SHIPPED.parent / "fabrics" / "h100-8x400g.toml").read_text()
    fabric.write_text(text.replace("nics_per_node = 8\n", ""))
    code, _, err = commbench("plan", "llama3-8b", "--fabric", fabric, "--gpus", 8)
    assert code == 2 and "nics_per_node is missing" in err


def test_without_a_batch_other_numbers_of_gpus_than_powers_of_two_find_layouts(commbench):
    for gpus, batch in ((8, 2048), (9, 2304), (72, 2304), (1000, 2000), (16383, 2048)):
        code, out, _ = commbench("plan", "llama3-8b", *H100, "--gpus", gpus)
        assert code == 2 or f"a step: {batch} sequences" in out
        assert (code == 2) == (gpus == 16383)


def test_a_report_is_written_though_nobody_reads_on(tmp_path):
    page = tmp_path / "plan.html"
    asked = ["plan", "llama3-8b", *H100, "--layout", "dp=8", "--batch", "8", "--report", str(page)]
    with subprocess.Popen([sys.executable, "-m", "commbench", *asked], stdout=subprocess.PIPE) as child:
        child.stdout.close()
    assert page.exists()


def test_what_is_moved_to_the_host_is_what_the_rank_holds(commbench):
    asked = ("--fabric", "h800-8x400g", "--gpus", 2048, "--layout", "pp=16,ep=64,schedule=dualpipe")
    _, out, _ = commbench("plan", "deepseek-v3", *asked)
    item = {name: float(gb) for name, gb in re.findall(r"^  (\w+) +([\d.]+) +\d+ %$", out, re.M)}
    here, there = map(float, re.search(r"on the host: ([\d.]+) GB here, ([\d.]+) GB there a rank: does", out).groups())
    assert there == pytest.approx(item["gradients"] + item["optimizer"], abs=0.11)
    assert here == pytest.approx(item["total"] - there, abs=0.11)


def test_small_models_have_their_parameters(commbench, tmp_path):
    shape = tmp_path / "small.toml"
    text = (SHIPPED / "llama3-8b.toml").read_text()
    for key, value in (("layers", 2), ("hidden", 256), ("ffn_hidden", 512), ("vocab", 1000)):
        text = re.sub(rf"^{key} = .*", f"{key} = {value}", text, flags=re.M)
    shape.write_text(text)
    out = commbench("plan", shape, *H100, "--layout", "dp=2", "--batch", 2)[1]
    count = 2 * (256 * (4096 + 2048) + 4096 * 256 + 3 * 256 * 512 + 512) + 2 * 1000 * 256 + 256
    assert out.startswith(f"llama3-8b ({count / 1e6:.3g}e6 parameters)")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A node of 2 ranks with known alpha and beta, for all that a layout of tp or dp 2 calls."""
    folder = tmp_path_factory.mktemp("measured")
    for op in ("all_gather", "reduce_scatter"):
        line_run(folder / op, 20.0, 1e-4, sizes=SIZES[::3], launches=3, launch_sd=0.02, op=op, ranks=2)
    return folder


def test_a_measured_run_takes_the_place_of_a_fabric(commbench, run):
    asked = ("plan", "llama3-8b", "--run", run, "--gpu", "h100", "--layout", "tp=2,dp=1", "--batch", 4)
    code, out, err = commbench(*asked, "--efficiency", 0.5, "--json")
    assert code == 0, err
    told = json.loads(out)
    size = 2 * 8192 * 4096
    assert told["step_us"]["terms"]["TP"] == pytest.approx(4 * 32 * 8 * (20 + 1e-4 * size), rel=0.05)
    assert told["moved_by_us"]["TP"] > 0 and told["moved_by_us"]["kernel efficiency"] == 0
    assert told["notes"] == []
    code, out, _ = commbench(*asked, "--kernel-TFLOPs", 494.7)
    assert code == 0 and "kernels reach 50.0 % of the peak (stated" in out


def test_beyond_the_measured_sizes_is_called_extrapolated(commbench, run):
    asked = ("plan", "llama3-8b", "--run", run, "--gpu", "h100", "--layout", "dp=2", "--batch", 2)
    code, out, err = commbench(*asked, "--efficiency", 0.5)
    assert code == 0, err
    assert re.search(r"note: reduce_scatter on 2 ranks: extrapolation \d+ times", out)  # gradients of 32 GB


def test_a_group_that_was_not_measured_is_refused(commbench, run, tmp_path):
    asked = ("plan", "llama3-8b", "--run", run, "--gpu", "h100", "--efficiency", 0.5, "--batch", 8)
    code, out, err = commbench(*asked, "--layout", "tp=8")
    assert code == 3 and out == "" and "valid for the measured world size only, 2 ranks on 1 node" in err
    code, out, err = commbench(*asked, "--layout", "pp=2,dp=2")
    assert code == 3 and "holds nothing of p2p_latency, which this layout calls" in err
    code, out, err = commbench(*asked, "--gpus", 2)  # a search: what was not measured is left out, and said
    assert code == 0 and re.search(r"\d+ more fit but were left out: .*holds nothing of p2p_latency", out), err
    page = run.parent / "plan.html"
    told = json.loads(commbench(*asked, "--gpus", 2, "--json", "--report", page)[1])
    assert "more fit but were left out: " in page.read_text() and "holds nothing of p2p_latency" in page.read_text()
    assert sum(told["left_out"].values()) + told["fit"] < told["looked_at"] and told["fit"] > 0
    code, out, err = commbench(*asked, "--gpus", 64)
    assert code == 3 and out == "" and "valid for the measured world size only" in err
    line_run(tmp_path / "p2p", 20.0, 1e-4, sizes=SIZES[:2], op="p2p_latency", ranks=2)
    code, _, err = commbench(*asked[:4], tmp_path / "p2p", *asked[4:], "--layout", "pp=2")
    assert code == 3 and re.search(r"p2p_latency.* was measured but has no model: .*2 size", err), err
    code, _, err = commbench(*asked[:3], tmp_path / "p2p", *asked[4:], "--layout", "pp=2")
    assert code == 2 and re.search(r"no fitted series, of 1 measured: p2p_latency.*: .*2 size", err), err
    code, _, err = commbench(*asked[:3], run / "none", "--gpu", "h100", "--gpus", 4)
    assert code == 2 and "does not exist" in err


def test_two_series_of_an_operation_must_be_told_apart(tmp_path):
    for backend in ("gloo", "mpi"):
        line_run(tmp_path / backend, 20.0, 1e-4, sizes=SIZES, op="all_reduce", ranks=2, backend=backend)
    models = ModelFile(tuple(fit_tables(read_series([tmp_path]))), ("here",))
    with pytest.raises(UsageError, match="holds 2 series of all_reduce; choose one by --series"):
        fitted_links(models, "here").time("all_reduce", Group(2, 2), 1024.0)
    told = fitted_links(models, "here", "mpi").time("all_reduce", Group(2, 2), 1024.0)
    assert told.time_us == pytest.approx(20.1, rel=0.05) and told.low_us < told.time_us < told.high_us
    with pytest.raises(UsageError, match="holds no fitted series with 'nccl'"):
        fitted_links(models, "here", "nccl")


def test_a_model_file_serves_as_well(commbench, tmp_path):
    times = {size: 20 + 1e-4 * size for size in SIZES}
    csv = [write_csv(tmp_path / f"{op}.csv", times, op=op, ranks=2) for op in ("all_gather", "reduce_scatter")]
    model = tmp_path / "model.json"
    assert commbench("fit", *csv, "--out", model)[0] == 0
    asked = ("plan", "llama3-8b", "--gpu", "h100", "--efficiency", 0.5, "--layout", "tp=2", "--batch", 2, "--json")
    code, out, err = commbench(*asked, "--run", model)
    assert code == 0, err
    assert json.loads(out)["step_us"]["terms"]["TP"] == pytest.approx(
        2 * 32 * 8 * (20 + 1e-4 * 2 * 8192 * 4096), rel=0.02
    )


@pytest.fixture(scope="module")
def told():
    fabric = load_fabric("h100-8x400g")
    m = machine_of(gpu_named("h100"), fabric_links(fabric))
    job, shape = Job(64, 8192, 64), read_shape("llama3-8b")
    search = advise_search(shape, job, m, Assumptions(), Limits(), fabric, 30.0, 600.0)
    one = advise_layout(shape, parse_layout("tp=2,pp=4,dp=8"), job, m, Assumptions(), 30.0, 600.0)
    return search, one


def test_figures_agree_with_the_answer(told):
    search, one = told
    memory = memory_figure(one)
    every = ledgers(one.shape, one.layout, one.job, one.machine.gpu)
    bars = [sum(trace["y"][i] for trace in memory["data"]) for i in range(4)]
    assert bars == pytest.approx([filled.total / 1e9 for filled in every])
    account = account_figure(search)
    stack = [trace for trace in account["data"] if trace["type"] == "bar"]
    assert sum(trace["x"][-1] for trace in stack) == pytest.approx(search.best.prediction.account.step_us / 1e6)
    assert len(stack[0]["y"]) == 1 + len(search.runners_up)
    curve = break_even_figure(search.break_even)
    at = [min(trace["y"][i] for trace in curve["data"]) for i in range(len(search.break_even.ratio))]
    assert at == pytest.approx([1.0] * len(at))
    marks = [note["text"] for note in curve["layout"]["annotations"]]
    assert marks == ["H800 3.3", "H100 7.7", "B200, NVL72 14.2"]
    assert [note["x"] for note in curve["layout"]["annotations"]][1] == pytest.approx(math.log10(7.7))
    rows, _ = judge()
    drawn = sum(len(trace["x"]) for trace in published_figure(rows)["data"] if trace["mode"] == "markers")
    assert drawn == sum(row.predicted is not None for row in rows)


def test_figures_are_valid(told):
    search, one = told
    rows, _ = judge()
    for figure in (memory_figure(one), account_figure(one), account_figure(search), break_even_figure(search.break_even),
                   published_figure(rows)):  # fmt: skip
        go.Figure(figure)  # raises for an attribute that plotly does not have


def test_the_page_holds_its_parts(told):
    search, one = told
    rows, verdict = judge()
    page = plan_page(search, rows, verdict)
    for head in (
        "Memory of each pipeline rank",
        "What one step is spent on",
        "The links decide the tp",
        "Published runs",
    ):
        assert head in page
    assert page.count('<div class="figure"') == 4
    assert plan_page(one, rows, verdict).count('<div class="figure"') == 3
    alone = plan_page(None, rows, verdict)
    assert alone.count('<div class="figure"') == 1 and "Memory of each" not in alone
    assert "the MFU is 39 %" in alone


def test_nothing_of_a_name_can_act_on_the_page(told):
    _, one = told
    evil = "<script>alert(1)</script>"
    links = type(one.machine.links)(**{**vars(one.machine.links), "source": evil})
    bad = type(one)(**{**vars(one), "machine": type(one.machine)(**{**vars(one.machine), "links": links})})
    page = plan_page(bad, *judge())
    assert len(Page(page).code) == 2  # plotly and our own
    assert evil not in page and "&lt;script&gt;alert(1)" in page


def test_a_report_is_written_or_refused(commbench, tmp_path):
    asked = ("plan", "llama3-8b", *H100, "--layout", "dp=8", "--batch", 8, "--report")
    code, out, err = commbench(*asked, tmp_path / "plan.html")
    assert code == 0 and "written: " in err and (tmp_path / "plan.html").read_text().startswith("<!DOCTYPE html>")
    code, _, err = commbench(*asked, tmp_path / "none" / "plan.html")
    assert code == 2 and "choose another --report" in err
