"""A layout is read from its words, and what cannot be is refused in one sentence."""

import pytest

from commbench.errors import UsageError
from commbench.planning.gpus import gpu_named, gpu_names, gpu_of_fabric
from commbench.planning.layout import Job, Layout, check_layout, describe, parse_layout
from commbench.shapes import read_shape

LLAMA, DEEPSEEK = read_shape("llama3-405b"), read_shape("deepseek-v3")


def test_a_layout_is_read_and_written_back():
    layout = parse_layout("tp=8, pp=16,vpp=8,zero=2", 16384)
    assert (layout.tp, layout.pp, layout.dp, layout.schedule) == (8, 16, 128, "interleaved")
    assert parse_layout(describe(layout)) == layout
    odd = parse_layout("tp=2,sp=off,flash=off,dropout=on,recompute=selective,micro_batch=4,cp=2,cp_kind=ring", 64)
    assert parse_layout(describe(odd)) == odd and not odd.sp and odd.dropout


@pytest.mark.parametrize(
    "text, said",
    [
        ("tp", "'tp' is not understood; write tp=8,pp=16 with tp, cp"),
        ("tensor=8", "'tensor=8' is not understood"),
        ("tp=8,tp=4", "names tp twice"),
        ("tp=eight", "tp is 'eight'; it must be a whole number"),
        ("tp=-8", "tp is '-8'"),
        ("tp=9999999999", "tp is '9999999999'"),
        ("tp=0", "tp is 0; it must be 1 or more"),
        ("", "the layout is empty"),
        ("sp=maybe", "sp is 'maybe'; write on or off"),
        ("tp=3", "tp x cp x pp is 3, which does not divide 16384 GPUs"),
    ],
)
def test_words_that_are_no_layout(text, said):
    with pytest.raises(UsageError, match=said):
        parse_layout(text, 16384)


@pytest.mark.parametrize(
    "shape, text, said",
    [
        (LLAMA, "tp=8,cp=16,pp=16,dp=4", r"8 x 16 x 16 x 4 = 8192, but the job has 16384"),  # as a print of it has it
        (LLAMA, "tp=256,dp=64", "128 heads; a head is not cut"),
        (LLAMA, "tp=0,dp=64", "tp is 0"),
        (LLAMA, "pp=256,dp=64", "126 layers to cut"),
        (LLAMA, "pp=16,vpp=16,dp=1024", "pp x vpp is 256"),
        (LLAMA, "pp=16,vpp=2,schedule=1f1b,dp=1024", "vpp above 1 and interleaved go together"),
        (LLAMA, "dp=16384,schedule=2f2b", "schedule '2f2b' is not known; there are gpipe"),
        (LLAMA, "dp=16384,recompute=some", "recompute 'some' is not known"),
        (LLAMA, "dp=16384,zero=4", "stages 0 to 3"),
        (LLAMA, "dp=16384", "does not divide the global batch of 2048"),
        (LLAMA, "dp=4096,cp=4,cp_kind=tree", "cp_kind 'tree' is not known"),
        (LLAMA, "tp=8,dp=64,cp=32,cp_kind=ulysses", "cp by Ulysses is 32 with tp 8, but llama3-405b has 128 heads"),
        (LLAMA, "dp=2,cp=8192", "no multiple of 2 x cp"),
        (LLAMA, "dp=2048,pp=8,ep=2", "has no experts"),
        (DEEPSEEK, "dp=16384,ep=96", "does not divide the 256 experts"),
        (DEEPSEEK, "dp=2,pp=61,ep=4", "= 122"),
        (DEEPSEEK, "dp=1024,pp=16,ep=3", "does not divide"),
        (DEEPSEEK, "tp=4,dp=2048,ep=64,pp=1,schedule=dualpipe,cp=2", "pp is 1 with schedule dualpipe.* must be even"),
        (DEEPSEEK, "dp=1024,pp=16,ep=64,schedule=dualpipe", "dualpipe needs 32 micro-batches on 16 stages.* makes 2"),
        (LLAMA, "dp=1024,pp=16,vpp=2", "interleaved needs 16 micro-batches on 16 stages.* makes 2"),
    ],
)
def test_a_layout_that_cannot_be(shape, text, said):
    with pytest.raises(UsageError, match=said):
        check_layout(shape, parse_layout(text), Job(16384, 8192, 2048))


def test_an_expert_group_lies_within_its_stage():
    with pytest.raises(UsageError, match=r"ep is 64, which does not divide tp x cp x dp = 32"):
        check_layout(DEEPSEEK, Layout(pp=4, dp=32, ep=64), Job(128, 4096, 128))


@pytest.mark.parametrize(
    "name, bf16, fp8, fp32, memory_GBps",
    [
        ("a100", 312, None, 19.5, 2039),
        ("a800", 312, None, 19.5, 2039),
        ("h100", 989.4, 1978.9, 66.9, 3350),
        ("h800", 989.4, 1978.9, None, 3350),
        ("h200", 989.4, 1978.9, 66.9, 4800),
        ("b200", 2250, 4500, None, 8000),
        ("gb200", 2500, 5000, None, 8000),
        ("tpuv4", 275, None, None, 1200),
    ],
)
def test_peaks_of_shipped_gpus(name, bf16, fp8, fp32, memory_GBps):
    gpu = gpu_named(name)
    assert (gpu.bf16_TFLOPs, gpu.fp8_TFLOPs, gpu.fp32_TFLOPs, gpu.memory_GBps) == (bf16, fp8, fp32, memory_GBps)
    assert "memory: " in gpu.source


def test_gpus_and_their_peaks(tmp_path):
    assert gpu_of_fabric("h100-8x400g").bf16_TFLOPs == 989.4 and gpu_of_fabric("lab") is None
    for name in gpu_names():
        gpu = gpu_named(name)
        assert gpu.fp8_TFLOPs is None or gpu.fp8_TFLOPs == pytest.approx(2 * gpu.bf16_TFLOPs, rel=1e-3)
    with pytest.raises(UsageError, match="a100 has no fp8"):
        gpu_named("a100").peak_TFLOPs("fp8")
    with pytest.raises(UsageError, match="no GPU 'v100'; GPUs: a100"):
        gpu_named("v100")
    path = tmp_path / "own.toml"
    body = 'bf16_TFLOPs = 0.1\nmemory_GB = 16\nmemory_GBps = 20\nsource = "measured"\n'
    path.write_text("[cpu]\n" + body)
    assert gpu_named(str(path)).name == "cpu" and gpu_named(str(path)).fp8_TFLOPs is None
    for wrong, said in (
        ("[cpu]\n" + body.replace("memory_GB = 16\n", ""), "memory_GB is missing"),
        ("[cpu]\n" + body.replace("memory_GB = 16", "memory_GB = 0"), "memory_GB is 0"),
        ("[cpu]\n" + body + "speed = 3\n", "speed is not a known key"),
        ("[cpu]\n" + body.replace('"measured"', "3"), "source is 3"),
        (body, "one table"),
        ("[cpu", "not valid TOML"),
        ("a = " + "[" * 10_000, "not valid TOML"),
    ):
        path.write_text(wrong)
        with pytest.raises(UsageError, match=said):
            gpu_named(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        gpu_named(str(tmp_path / "none.toml"))
