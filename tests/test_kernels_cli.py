"""`commbench kernels attention` from its flags to its run folder."""

import json
import statistics

import pytest

from commbench.cli import main
from commbench.importers.found import Given
from commbench.importers.read import read_file
from commbench.kernels.params import from_params
from commbench.results.store import exit_code, load_run

SMALL = ["kernels", "attention", "--seqlen", "32,64", "--dim", "16", "--hidden", "32", "--tokens", "64",
         "--budget", "0.01", "--device", "cpu", "--no-report"]  # fmt: skip


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*SMALL, *arguments])
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels") / "run"
    with pytest.raises(SystemExit) as ended:
        main([*SMALL, "--causal", "--backend", "tiled,sdpa-flash,flash2", "--out", str(folder)])
    assert not ended.value.code
    return load_run(folder)


def test_a_run_like_any_other(stored):
    samples = stored.samples()
    assert exit_code(stored) == (0, "")
    assert {s.point.id for s in samples} == {p.id for p in stored.plan.points()}
    assert len(samples) == 2 + 2 * 3 * 2 and {s.point.kind for s in samples} == {"kernel"}
    timed = [s for s in samples if s.point.op.startswith("attention") and s.status == "ok"]
    assert len(timed) == 8 and all(s.wrong == 0 and s.flops and s.samples_us for s in timed)
    assert all(s.error_max <= s.reported["error_allowed"] for s in timed)
    skipped = [s for s in samples if s.status == "skip"]
    assert len(skipped) == 4 and all("not installed" in s.reason for s in skipped)
    case = from_params(timed[0].point.params, timed[0].point.dtype)
    assert (case.batch, case.heads, case.sq, case.dim) == (2, 2, 32, 16) and case.mask.right == 0
    header = stored.launches[0].header
    assert header["peak"] is None and header["ranks"][0]["device_name"] and header["versions"]["torch"]


def test_other_verbs_read_it(stored, capsys):
    for arguments in (["status"], ["export", "--format", "csv"], ["export", "--format", "json"]):
        with pytest.raises(SystemExit) as ended:
            main([arguments[0], str(stored.path), *arguments[1:]])
        assert not ended.value.code
    out = capsys.readouterr().out
    assert "10 ok, 4 skip, 0 wrong, 0 error, 0 left of 14 points" in out and "attention_backward" in out


def test_the_table_is_one_that_readers_of_flash_attentions_know(tmp_path, capsys):
    code, out, _ = run(capsys, "--causal", "--backend", "sdpa-flash", "--out", str(tmp_path / "run"))
    assert code == 0 and "### causal=True, headdim=16, batch_size=2, seqlen=32 ###" in out
    assert "no percentages: a processor's peak is not in the table; --peak gives one" in out
    text = tmp_path / "printed.txt"
    text.write_text(out)
    test = read_file(text, Given("", 0, 0)).tests[0]
    found = {(s.point.op, s.point.params["seqlen"]): s.reported["TFLOPS"] for s in test.samples}
    own = {
        (s.point.op, str(s.point.params["seqlen"])): s.flops / statistics.median(s.samples_us) / 1e6
        for s in load_run(tmp_path / "run").samples()
        if s.point.op.startswith("attention") and s.samples_us
    }
    assert len(found) == 6 and len(own) == 4
    assert all(found[key] == pytest.approx(rate, rel=1e-3) for key, rate in own.items())


def test_a_given_peak_is_printed_as_theirs(tmp_path, capsys):
    code, out, _ = run(capsys, "--causal", "--backend", "tiled", "--peak", "2.5", "--out", str(tmp_path / "run"))
    assert code == 0 and out.count("of 2.5 TFLOP/s (given by --peak)") == 3 and "HFU" in out and "MFU unmasked" in out
    assert load_run(tmp_path / "run").launches[0].header["peak"]["tflops"] == 2.5


def test_over_100_percent_is_an_error_with_its_reason(tmp_path, capsys):
    code, out, _ = run(capsys, "--causal", "--backend", "tiled", "--peak", "1e-9", "--out", str(tmp_path / "run"))
    assert code == 3 and "the peak given by --peak is too low" in out
    assert exit_code(load_run(tmp_path / "run"))[0] == 3


def test_wrong_data_is_exit_5_and_has_no_time(tmp_path, capsys, monkeypatch):
    from commbench.kernels import attention_tiled
    from commbench.kernels.masks import Mask

    right = attention_tiled.attention
    monkeypatch.setattr(attention_tiled, "attention", lambda q, k, v, mask: right(q, k, v, Mask(right=1)))
    code, out, _ = run(capsys, "--causal", "--backend", "tiled", "--out", str(tmp_path / "run"))
    assert code == 5 and "fwd wrong:" in out and "TFLOPs/s" not in out
    rows = [s for s in load_run(tmp_path / "run").samples() if s.status == "wrong"]
    assert len(rows) == 4 and all(s.wrong > 0 and not s.samples_us for s in rows)


def test_ctrl_c_keeps_what_is_finished(tmp_path, capsys, monkeypatch):
    from commbench.cli import kernels_run

    right, calls = kernels_run.run, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(*arguments)

    monkeypatch.setattr(kernels_run, "run", interrupted)
    code, _, err = run(capsys, "--backend", "tiled", "--out", str(tmp_path / "run"))
    stored = load_run(tmp_path / "run")
    assert code == 4 and "finished rows are kept" in err
    assert len(stored.samples()) == 4 and exit_code(stored)[0] == 4


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--seqlen", "0"], "--seqlen 0: write one or more numbers above 0"),
        (["--seqlen", "many"], "--seqlen many"),
        (["--seqlen-k", "0"], "sequence lengths are 32 queries and 0 keys; both must be 1 or more"),
        (["--dim", "0"], "--dim 0: write head dims such as 64,128"),
        (["--dim", "64/32/16"], "--dim 64/32/16"),
        (["--dim", "24"], "--hidden 32 with head dim 24 is 1.33333 heads"),
        (["--gqa", "3"], "which --gqa 3 must divide; choose --hidden 48"),
        (["--gqa", "0"], "--gqa 0: write a number from 1 up"),
        (["--dtype", "int8"], "--dtype int8: attention is timed in float32, float16, bfloat16"),
        (["--window", "-1"], "the window is -1 to the left"),
        (["--documents", "40"], "--documents 40 of a sequence of 32 tokens would be empty"),
        (["--documents", "2", "--seqlen-k", "64"], "which attends to itself"),
        (["--backend", "flash9"], "--backend flash9: there is no such backend; there are reference, tiled, triton"),
        (["--peak", "0"], "--peak 0: write the device's peak in TFLOP/s"),
        (["--peak", "nan"], "--peak nan"),
        (["--budget", "0"], "--budget 0: write seconds above 0"),
        (["--budget", "nan"], "--budget nan: write seconds above 0"),
        (["--budget", "inf"], "--budget inf: write seconds above 0, a million at most"),
        (["--hidden", "0"], "--hidden 0: write a number from 1 up"),
        (["--tokens", "0"], "--tokens 0: write a number from 1 up"),
        (["--backend", ""], "there is no such backend"),
        (["--seqlen", "1M", "--hidden", "65536"], "are free on cpu; take fewer --tokens or a smaller --hidden"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, told, tmp_path, capsys):
    code, out, err = run(capsys, *arguments, "--out", str(tmp_path / "run"))
    assert code == 2 and told in err and err.count("\n") == 1 and not out
    assert not (tmp_path / "run").exists()


def test_it_cannot_be_resumed(stored, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--resume", str(stored.path)])
    assert (
        ended.value.code == 2 and "is a run of `commbench kernels`, which cannot be resumed" in capsys.readouterr().err
    )
    code, _, err = run(capsys, "--out", str(stored.path))
    assert code == 2 and "holds a run already; choose another --out" in err and "--resume" not in err


def test_what_the_flags_stand_for():
    from types import SimpleNamespace

    from commbench.cli.kernels import cases

    flags = dict(hidden=None, tokens=None, dtype="bf16", gqa=8, documents=1, budget=1.0, dim="192/128", seqlen="512..16384",
                 seqlen_k=None, causal=True, window=None)  # fmt: skip
    made = cases(SimpleNamespace(**flags), "cuda")
    assert [(c.batch, c.sq) for c in made] == [(32, 512), (16, 1024), (8, 2048), (4, 4096), (2, 8192), (1, 16384)]
    assert {(c.heads, c.kv_heads, c.dim, c.dim_v, c.dtype) for c in made} == {(8, 1, 192, 128, "bfloat16")}
    (one,) = cases(SimpleNamespace(**flags | {"seqlen": "100", "documents": 3, "window": 7, "causal": False}), "cpu")
    assert one.mask.documents == (34, 33, 33) and (one.mask.left, one.mask.right) == (7, 7)


def test_other_kernels_and_devices_that_are_not_there(capsys):
    import torch

    with pytest.raises(SystemExit) as ended:
        main(["kernels", "gemm"])
    assert ended.value.code == 2 and "there is no kernel 'gemm' to time" in capsys.readouterr().err
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit) as ended:
            main(["kernels", "attention", "--device", "cuda"])
        assert ended.value.code == 2 and "torch sees no GPU here" in capsys.readouterr().err


def test_records_hold_no_numbers_that_json_lacks(stored):
    for path in stored.path.glob("launch-*.jsonl"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=lambda text: pytest.fail(text))
