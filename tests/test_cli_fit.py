"""fit, predict and plan-sweep as a person types them: what they print, and one sentence for what cannot be."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from measured import SIZES, line_run, sample, write_csv, write_run
from runs import COMMBENCH, clean_environment

from commbench.cli import main

HEAD = "op,ranks,size_bytes,time_us\n"


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


def refused(result, code, sentence):
    """One sentence on standard error, and nothing that looks like a result."""
    got, out, err = result
    assert got == code and err.startswith("commbench: ") and len(err.splitlines()) == 1
    assert re.search(sentence, err), err
    assert "latency us" not in out


def ring_runs(folder, counts=(2, 4, 8, 16), launches=1, **what):
    """Runs of a ring all_gather: 10 us and 3 us a step, 1e-3 us a byte that passes."""
    runs = []
    for n in counts:
        rng = np.random.default_rng(n)
        rows = [
            sample(float(np.exp(rng.normal(0, 0.02))) * (10 + 3 * (n - 1) + 1e-3 * size * (n - 1) / n), size, launch,
                   op="all_gather", ranks=n, noise=0.005, **what)
            for launch in range(1, launches + 1)
            for size in SIZES
        ]  # fmt: skip
        runs.append(write_run(folder / f"{n}", rows))
    return runs


def test_a_ring_over_ranks_is_fitted_and_predicted_where_nobody_measured(tmp_path, commbench):
    model = tmp_path / "model.json"
    code, out, _ = commbench("fit", *ring_runs(tmp_path, launches=3), "--out", model)
    assert code == 0 and f"written: {model}" in out
    assert "all_gather, library, gloo, float32, isolated" in out
    assert f"{4 * len(SIZES)} points used; 3 launches; model: equations over ranks" in out
    assert "hold-out over rank counts" in out and "alpha_intra_us" in out
    code, out, _ = commbench("predict", model, "--ranks", "8,64,1024", "--size", "64,16M")
    assert code == 0
    rows = {(line.split()[0], line.split()[3]): line for line in out.splitlines() if re.match(r"  \d+ x", line)}
    assert "interpolation" in rows["8", "64"] and "extrapolation 4 times" in rows["64", "64"]
    assert "projection 64 times" in rows["1024", "64"]
    for n in (8, 64):
        for text, size in (("64", 64), ("16M", 2**24)):
            time_us, low, _, high = rows[str(n), text].split()[4:8]
            truth = 10 + 3 * (n - 1) + 1e-3 * size * (n - 1) / n
            assert float(time_us) == pytest.approx(truth, rel=0.12) and float(low) < truth < float(high)
    busbw = float(rows["64", "16M"].split()[8])
    assert busbw == pytest.approx(63 / 64 * 2**24 / float(rows["64", "16M"].split()[4]) / 1e3, rel=1e-3)


def test_one_world_size_is_valid_for_itself_only(tmp_path, commbench):
    """Contention: four ranks on a host share what two had for themselves, so a fit of two says nothing of four."""
    model = tmp_path / "model.json"
    code, out, _ = commbench("fit", line_run(tmp_path / "two", ranks=2), "--out", model)
    assert code == 0 and "note: valid for the measured world size only: 2 ranks on 1 node(s)" in out
    assert "within-launch only" in out
    code, out, _ = commbench("predict", model, "--ranks", "2", "--size", "1M")
    assert code == 0 and "interpolation" in out and "valid for the measured world size only" in out
    assert "1 launch, so launch-to-launch variation is not in the interval" in out
    result = commbench("predict", model, "--ranks", "4", "--size", "1M")
    refused(result, 3, "valid for the measured world size only, 2 ranks on 1 node.*says nothing about 4 on 1 node")
    code, out, _ = commbench("predict", model, "--ranks", "2,4", "--size", "1M")
    assert code == 3 and "interpolation" in out and "not predicted: " in out


def test_points_that_failed_their_check_are_not_fitted_and_counted(tmp_path, commbench):
    """MoE traffic over emitted bytes, with one rung that failed."""
    rows = [sample(20 + 1e-3 * s, s, op="all_to_all_v", params={"matrix": [[s] * 4] * 4}) for s in SIZES]
    rows[9] = sample(9e9, SIZES[9], status="wrong", op="all_to_all_v", params={"matrix": [[1] * 4] * 4})
    code, out, _ = commbench("fit", write_run(tmp_path / "moe", rows))
    assert code == 0
    assert f"{len(SIZES) - 1} points used, 1 left out because the check found wrong data" in out


@pytest.mark.parametrize("beta", [4.7e-6, 7e-5])
def test_thirty_percent_noise_at_small_sizes_leaves_alpha_with_an_interval(tmp_path, commbench, beta):
    """alpha 20 us, beta of NVLink or of a network, as published for two clusters; residuals are relative."""
    rng = np.random.default_rng(11)
    sizes = [2**k for k in range(3, 34)]
    times = {s: (20 + beta * s) * np.exp(rng.normal(0, 0.3 if beta * s < 10 else 0.02)) for s in sizes}
    model = tmp_path / "m.json"
    code, _, _ = commbench("fit", write_csv(tmp_path / "t.csv", times), "--out", model)
    assert code == 0
    latency, slope = json.loads(model.read_text())["series"][0]["curves"][0]["parameters"]
    assert latency["value"] == pytest.approx(20, rel=0.25) and 0 <= latency["low"] < 20 < latency["high"]
    assert slope["value"] == pytest.approx(beta, rel=0.03)


def test_data_that_asks_for_a_negative_alpha_gives_none(tmp_path, commbench):
    times = {2**k: 1e-3 * 2**k - 5.0 for k in range(14, 30)}
    code, out, _ = commbench("fit", write_csv(tmp_path / "t.csv", times))
    assert code == 0 and "not determined" in out
    assert not re.search(r"(?<![\w.e])-\d", out)


def test_a_floor_of_100_ms_is_marked_absurd_and_not_fitted(tmp_path, commbench):
    collapsed = dict(zip([2**k for k in range(27, 34)], [103114, 104294, 109572, 132630, 181106, 166449, 235696]))
    path = write_csv(tmp_path / "a.csv", collapsed, op="alltoall", ranks=16)
    refused(commbench("fit", path), 3, "no model was fitted: absurd latency: on 16 ranks even 128M takes 103 ms")


def test_unstable_and_steady_series_stand_side_by_side(tmp_path, commbench):
    good, bad = {s: 20 + 1e-3 * s for s in SIZES}, {s: 1e4 / (1 + i) for i, s in enumerate(SIZES)}
    files = write_csv(tmp_path / "good.csv", good), write_csv(tmp_path / "bad.csv", bad, op="broadcast")
    model = tmp_path / "m.json"
    code, out, _ = commbench("fit", *files, "--out", model)
    assert code == 0 and "model: NOT FITTED" in out and "not fitted: the time falls with size" in out
    refused(
        commbench("predict", model, "--op", "broadcast", "--ranks", 8, "--size", "1K"),
        3,
        "was not fitted: the time falls",
    )
    assert commbench("predict", model, "--ranks", 8, "--size", "1K")[0] == 0


def test_two_algorithms_are_compared_where_both_were_measured(tmp_path, commbench):
    runs = [
        line_run(tmp_path / "tree", 20.0, 2e-3, algorithm="own:tree", launches=5, launch_sd=0.01),
        line_run(tmp_path / "ring", 120.0, 1e-3, algorithm="own:ring", launches=5, launch_sd=0.01),
        line_run(tmp_path / "library", 10.0, 5e-4, launches=5, launch_sd=0.01),
    ]
    model = tmp_path / "m.json"
    code, out, _ = commbench("fit", *runs, "--out", model)
    assert code == 0 and "Who is faster where" in out
    line = next(line for line in out.splitlines() if "own:tree against own:ring" in line)
    assert "own:tree up to" in line and "own:ring from there on" in line and "5 launches" in line
    crossing = json.loads(model.read_text())["crossovers"][0]["found"]["crossings"][0]
    assert crossing[1] < 1e5 < crossing[2] and crossing[0] == pytest.approx(1e5, rel=0.1)  # 100 us / 1e-3 us/B
    assert "library always" in out


@pytest.mark.parametrize(
    "text, code, sentence",
    [
        (HEAD + "all_reduce,8,1024,10\nall_reduce,8,2048,11\n", 3, "2 size.s. measured, which any line fits; measure 3 or more"),
        (HEAD + "".join(f"all_reduce,8,{2**k},{-10 - k}\n" for k in range(9)), 2, "time_us is '-10'"),
        (HEAD + "".join(f"all_reduce,8,{2**k},0\n" for k in range(9)), 2, "time_us is '0'"),
        (HEAD + "".join(f"all_reduce,8,{k},10\n" for k in range(9)), 2, "size_bytes is '0'"),
        (HEAD + "all_reduce,8,8,10\n" * 2, 2, "line 3 repeats line 2"),
        ("op,ranks,size_kb,time_us\nall_reduce,8,1,10\n", 2, "no column size_bytes.*'size_kb'"),
        ("op,ranks,size_bytes,time_ms\nall_reduce,8,1,10\n", 2, "no column time_us or median_us.*'time_ms'"),
        (HEAD + "all_reduce,8,8,NaN\n", 2, "time_us is 'NaN'"),
        (HEAD + "".join(f"all_reduce,8,{2**k},{1000 - 50 * k}\n" for k in range(12)), 3, "the time falls with size on 8 ranks"),
        ("", 2, "has no rows"),
        (HEAD, 2, "has no rows"),
        ("\x00\x01\x02", 2, "has no rows|not a CSV"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path, commbench, text, code, sentence):
    path, model = tmp_path / "t.csv", tmp_path / "m.json"
    path.write_text(text)
    refused(commbench("fit", path, "--out", model), code, sentence)
    assert not model.exists()


def test_what_is_no_measurement_is_refused(tmp_path, commbench):
    (tmp_path / "raw").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "folder").mkdir()
    refused(commbench("fit", tmp_path / "raw"), 2, "is not a CSV file in UTF-8")
    refused(commbench("fit", tmp_path / "folder"), 2, "is no run and holds none")
    refused(commbench("fit", tmp_path / "none"), 2, "does not exist")
    refused(
        commbench("fit", line_run(tmp_path / "run"), "--op", "scatter"),
        2,
        "nothing of 'scatter' was measured; there is all_reduce",
    )
    refused(commbench("fit", line_run(tmp_path / "run"), "--ranks", "0"), 2, "--ranks 0")
    assert commbench("fit")[0] == 2


def test_bad_models_and_flags_of_predict(tmp_path, commbench):
    model = tmp_path / "m.json"
    commbench("fit", *ring_runs(tmp_path), "--out", model)
    good = model.read_text()
    ask = ("--ranks", "8", "--size", "1M")
    for text, sentence in (
        ("", "is no JSON"),
        ("{}", "holds no models"),
        (good.replace('"schema": 1', '"schema": 7'), "has schema 7; this commbench reads schema 1"),
    ):
        model.write_text(text)
        refused(commbench("predict", model, *ask), 2, sentence)
    model.write_text(good)
    refused(commbench("predict", model), 2, "needs --ranks and --size")
    refused(commbench("predict", model, "--ranks", "8", "--size", "1q"), 2, "size '1q' is not understood")
    refused(
        commbench("predict", model, "--ranks", "8", "--size", "0"), 2, "--size 0: write one or more numbers above 0"
    )
    refused(commbench("predict", model, "--ranks", "x", "--size", "1M"), 2, "--ranks x")
    refused(
        commbench("predict", model, "--ranks", "9", "--nodes", "2", "--size", "1M"), 2, "cannot lie evenly on 2 nodes"
    )
    refused(commbench("predict", model, "--op", "reduce", *ask), 2, "has no series like that; it has all_gather")
    refused(commbench("predict", tmp_path, *ask), 2, "is a folder")


def test_exports_through_the_verb(tmp_path, commbench):
    model = tmp_path / "m.json"
    commbench("fit", *ring_runs(tmp_path), "--out", model)
    code, out, _ = commbench("predict", model, "--export", "python", "--out", tmp_path / "gather.py")
    assert (code, out) == (0, f"written: {tmp_path / 'gather.py'}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gather; print(gather.time_us(32, 1, 2**20))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(10 + 3 * 31 + 1e-3 * 2**20 * 31 / 32, rel=0.1)
    code, out, _ = commbench("predict", model, "--export", "astra", "--ranks", "8")
    assert code == 0 and "npus_count: [ 8 ]" in out
    refused(commbench("predict", model, "--export", "tuner"), 3, "chooses among forced algorithms")
    refused(commbench("predict", model, "--export", "astra"), 2, "needs --ranks")
    refused(
        commbench("predict", model, "--export", "python", "--out", tmp_path / "no" / "x.py"), 2, "cannot be written"
    )
    two = (
        write_csv(tmp_path / "a.csv", {s: 20 + s for s in SIZES}),
        write_csv(tmp_path / "b.csv", {s: 9 + s for s in SIZES}, op="reduce"),
    )
    commbench("fit", *two, "--out", model)
    refused(commbench("predict", model, "--export", "python"), 2, "is for one series; choose by --op")
    assert commbench("predict", model, "--export", "python", "--op", "reduce")[0] == 0


def test_plan_sweep_says_which_points_are_missing(tmp_path, commbench):
    code, out, _ = commbench(
        "plan-sweep", "--op", "all_reduce", "--ranks", "32,64", "--per-node", "8", "--size", "1M..64M"
    )
    assert code == 0 and "alpha_intra_us and alpha_inter_us cannot be told apart; measure 4 per node as well" in out
    assert re.search(r"^  16 +4 +(\w+,)+1M,2M,4M,8M,16M,32M,64M(,|$)", out, re.MULTILINE)
    run = line_run(tmp_path / "run", op="all_gather", ranks=8)
    code, out, _ = commbench("plan-sweep", run, "--op", "all_gather")
    assert code == 0 and "with 8 ranks only, base and steps are one figure; measure 3 or more rank counts" in out
    code, out, _ = commbench("plan-sweep", *ring_runs(tmp_path), "--op", "all_gather")
    assert code == 0 and "measure" not in out and "this tells all parameters apart" in out
    refused(commbench("plan-sweep", "--op", "all_reduce"), 2, "nothing is planned")
    refused(
        commbench("plan-sweep", run, "--op", "reduce"),
        2,
        "nothing of reduce library was measured; there is all_gather library",
    )
    refused(commbench("plan-sweep", "--op", "magic", "--ranks", "8"), 2, "there is no equation for magic")
    refused(commbench("plan-sweep", "--op", "all_reduce", "--ranks", "12", "--per-node", "8"), 2, "do not lie evenly")


def test_names_from_outside_cannot_move_the_cursor(tmp_path, commbench):
    rows = [sample(20 + 1e-3 * s, s, group="\x1b[2Jx\ny") for s in SIZES]
    _, out, _ = commbench("fit", write_run(tmp_path / "run", rows))
    assert "\x1b" not in out and "[2Jx y" in out


@pytest.mark.parametrize("verb", ["fit", "predict", "plan-sweep"])
def test_help_loads_no_numbers(verb):
    code = (
        "import sys\nfrom commbench.cli import main\ntry:\n    main([sys.argv[1], '--help'])\n"
        "except SystemExit:\n    print('LOADED', *sorted({'numpy', 'scipy', 'torch', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, verb], capture_output=True, text=True, env=clean_environment())
    assert done.stdout.splitlines()[-1] == "LOADED" and f"commbench {verb}" in done.stdout


def test_a_closed_pipe_loses_no_model(tmp_path):
    run, model = line_run(tmp_path / "run"), tmp_path / "m.json"
    command = " ".join([*COMMBENCH, "fit", str(run), "--out", str(model), "| head -1"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=clean_environment())
    assert "Traceback" not in done.stderr and json.loads(model.read_text())["schema"] == 1


@pytest.mark.full
def test_ranks_per_node_in_place_of_nodes(commbench, tmp_path):
    data = Path(__file__).parent / "data" / "perlmutter_a100_nccl.csv"
    model = tmp_path / "m.json"
    assert commbench("fit", data, "--op", "all_gather", "--out", model)[0] == 0
    code, out, _ = commbench("predict", model, "--ranks", "512,2048,8192", "--per-node", "4", "--size", "64M")
    assert code == 0 and "projection" in out
    assert [line.split()[2] for line in out.splitlines() if line.strip()[:1].isdigit()] == ["128", "512", "2048"]
    code, _, err = commbench("predict", model, "--ranks", "510", "--per-node", "4", "--size", "64M")
    assert code == 2 and "no whole nodes of 4" in err
    assert commbench("predict", model, "--ranks", "8", "--per-node", "4", "--nodes", "2", "--size", "64M")[0] == 2


def test_far_outside_the_measured_sizes_nothing_is_predicted(tmp_path, commbench):
    model = tmp_path / "m.json"
    few = write_csv(tmp_path / "t.csv", {2**20: 10, 2**21: 30, 2**22: 60})
    assert commbench("fit", few, "--out", model)[0] == 0
    for size in ("1", "64K", "1G", "1T", "1024T"):
        refused(commbench("predict", model, "--ranks", 8, "--size", size), 3, "octaves outside what was measured")
    code, out, _ = commbench("predict", model, "--ranks", 8, "--size", "1,2M,1T")
    assert code == 3 and "interpolation" in out
    assert "not predicted: a size of 1 on 8 ranks lies 20 octaves outside what was measured" in out


def test_ranks_that_were_not_measured_are_the_same_refusal_in_both_kinds(tmp_path, commbench):
    model = tmp_path / "m.json"
    commbench("fit", line_run(tmp_path / "one", ranks=4), "--out", model)
    assert commbench("predict", model, "--ranks", 32, "--nodes", 8, "--size", "1M")[0] == 3
    commbench("fit", *ring_runs(tmp_path), "--out", model)
    refused(
        commbench("predict", model, "--ranks", 32, "--nodes", 8, "--size", "1M"), 3, "nothing was measured with 4 r"
    )


def test_one_rank_count_names_no_algorithm(tmp_path, commbench):
    """Eight ranks of a node beside three worlds of several: on one count a ring, a tree and a doubling fit alike."""
    rows = ["op,ranks,nodes,size_bytes,time_us,launch"]
    rng = np.random.default_rng(1)
    for n in (8, 16, 32, 64):
        for launch in range(1, 6):
            times = [2 * (n - 1) * (5 + s / n / 1e5) * np.exp(rng.normal(0, 0.01)) for s in SIZES]
            rows += [f"all_reduce,{n},{n // 8},{s},{t},{launch}" for s, t in zip(SIZES, times)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    model = tmp_path / "m.json"
    code, out, _ = commbench("fit", tmp_path / "t.csv", "--out", model)
    assert code == 0 and re.search(r"one node, 8 ranks +lines over the size", out)
    parameters = json.loads(model.read_text())["series"][0]["family"]["parameters"]
    told = {(p["name"], p["value"]) for p in parameters if p["where"] == "one node, 8 ranks"}
    assert told == {("algorithm", None)} and "on 8 ranks alone every algorithm fits" in out
    assert any(p["name"] == "beta_us_per_byte" and p["value"] for p in parameters)


def test_a_bandwidth_out_of_noise_is_not_determined(tmp_path, commbench):
    rng = np.random.default_rng(3)
    rows = ["op,ranks,size_bytes,time_us,launch"]
    sizes = [2**k for k in range(3, 24)]
    rows += [f"all_reduce,8,{s},{50 * np.exp(rng.normal(0, 0.1))},{i}" for s in sizes for i in range(5)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    model = tmp_path / "m.json"
    code, out, _ = commbench("fit", tmp_path / "t.csv", "--out", model)
    latency, slope = json.loads(model.read_text())["series"][0]["curves"][0]["parameters"]
    assert code == 0 and slope["value"] is None and slope["note"].startswith("not determined: ")
    assert latency["value"] == pytest.approx(50, rel=0.1)


def test_an_operation_of_nobody_is_warned_of(tmp_path, commbench):
    model = tmp_path / "m.json"
    path = write_csv(tmp_path / "t.csv", {s: 20 + 1e-3 * s for s in SIZES}, op="all_redcue")
    code, out, _ = commbench("fit", path, "--out", model)
    assert code == 0 and "note: all_redcue is no operation of commbench's, so it has no bus bandwidth" in out
    refused(commbench("predict", model, "--export", "simai"), 3, "are of bus bandwidth, and all_redcue has none")


def test_of_many_rivals_the_fastest_are_compared(tmp_path, commbench):
    rows = ["op,ranks,size_bytes,time_us,algorithm"]
    for a in range(20):
        rows += [f"all_reduce,8,{s},{(20 + a) + (40 - a) * 1e-4 * s},a{a}" for s in SIZES]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    code, out, _ = commbench("fit", tmp_path / "t.csv")
    lines = [line for line in out.splitlines() if " against " in line]
    assert code == 0 and len(lines) == 15 and any("a0 against a19" in line for line in lines)
    assert "note: all_reduce on 8 x 1: of 20 rivals only the 6 that are fastest anywhere are compared" in out


def test_plan_sweep_asks_for_what_it_misses_on_each_machine(tmp_path, commbench):
    two = write_csv(tmp_path / "two.csv", {8: 70, 16: 70})
    code, out, _ = commbench("plan-sweep", two, "--op", "all_reduce")
    assert code == 0
    added = {line.split()[0]: line.split()[2] for line in out.splitlines() if re.match(r"  \d+ +1 ", line)}
    assert set(added) == {"2", "4", "8"}
    assert all(len(sizes.split(",")) >= 4 for sizes in added.values()) and added["2"].startswith("8,16,")
    rows = ["op,ranks,nodes,size_bytes,time_us,dataset"]
    for name, counts in (("here", (8, 16)), ("there", (4,))):
        rows += [f"all_reduce,{n},{max(1, n // 8)},{s},{20 + 1e-3 * s},{name}" for n in counts for s in SIZES]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    code, out, _ = commbench("plan-sweep", tmp_path / "t.csv", "--op", "all_reduce", "--ranks", "32", "--size", "1M")
    assert code == 0 and out.splitlines()[0] == "here" and "there" in out.splitlines()
    here, there = out.split("\nthere\n")
    assert "8 x 1, 16 x 2, 32 x 4" in here and "4 x 1, 32 x 8" in there
