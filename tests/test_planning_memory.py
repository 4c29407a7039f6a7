"""The memory ledger gives the known answers to their digits, and its items are those of the formulas."""

import math
from dataclasses import replace

import pytest

from commbench.errors import UsageError
from commbench.planning.activations import (
    Cut,
    gpt_layer_bytes,
    gpt_parts,
    layer_bytes,
    layer_parts,
    square_dominates_from,
)
from commbench.planning.gpus import gpu_named
from commbench.planning.kv_cache import kv_bytes_per_token, multi_head_bytes_per_token
from commbench.planning.layout import Job, Layout
from commbench.planning.ledger import ledger, ledgers
from commbench.planning.pipeline import (
    Work,
    bubble_ratio,
    bubble_us,
    in_flight,
    layers_of_stages,
    parameter_copies,
)
from commbench.planning.placement import expert_parameters, shared_parameters, stages
from commbench.planning.state import RECIPES, offloaded_bytes, recipe_named, sharded_bytes, state_bytes
from commbench.shapes import read_shape, shape_names
from commbench.shapes.counts import parameters


def test_seventy_billion_parameters_take_1120_GB_and_14_cards():
    size = state_bytes(70e9, RECIPES["adam"])
    assert size == 1120e9
    assert math.ceil(size / 80e9) == 14


@pytest.mark.parametrize("zero, told", [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_leaves_what_its_paper_prints(zero, told):
    assert round(state_bytes(7.5e9, RECIPES["adam"], zero, 64) / 1e9, 1) == told


def test_bytes_a_parameter_by_recipe():
    assert RECIPES["adam"].total == 16 and RECIPES["adam"].optimizer == 12
    assert RECIPES["adam-fp32-grads"].total == 18  # Megatron: 6 + 12/d
    assert offloaded_bytes(sharded_bytes(13e9, RECIPES["adam"], 0, 1)) == (26e9, 182e9)
    with pytest.raises(UsageError, match="recipes: adam, "):
        recipe_named("adagrad")
    with pytest.raises(UsageError, match="stages 0 to 3, not 4"):
        state_bytes(1e9, RECIPES["adam"], 4)


def test_the_square_term_at_8k():
    parts = gpt_parts(8192, 1, 8192, 64)
    sbh = 8192 * 8192
    assert (parts["attention"], parts["mlp"], parts["norms"]) == (11 * sbh, 19 * sbh, 4 * sbh)
    assert round((sum(parts.values()) - parts["square"]) / 1e9, 2) == 2.28
    assert round(parts["square"] / 1e9, 2) == 21.47
    assert round(sum(parts.values()) / 1e9, 2) == 23.76
    assert round(80 * sum(parts.values()) / 1e9, -1) == 1900
    assert math.floor(square_dominates_from(8192, 64)) == 870


def test_the_gpt_formula_by_table_2_of_its_paper():
    s, b, h, a, t = 2048, 2, 12288, 96, 8
    sbh, square = s * b * h, 5 * a * s * s * b
    plain = Cut(s, b, flash=False)
    assert gpt_layer_bytes(h, a, plain) == 34 * sbh + square
    assert gpt_layer_bytes(h, a, replace(plain, tp=t)) == sbh * (10 + 24 / t) + square / t
    assert gpt_layer_bytes(h, a, replace(plain, tp=t, sp=True)) == (34 * sbh + square) / t
    assert gpt_layer_bytes(h, a, replace(plain, tp=t, sp=True, recompute="selective")) == 34 * sbh / t
    assert gpt_layer_bytes(h, a, replace(plain, tp=t, flash=True)) == sbh * (10 + 24 / t)
    assert gpt_layer_bytes(h, a, replace(plain, recompute="full")) == 2 * sbh


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tp, sp", [(1, False), (8, False), (8, True)])
def test_the_count_of_a_shape_is_the_gpt_formula_where_the_shape_is_a_gpt(recompute, tp, sp):
    cut = Cut(2048, 1, tp, sp=sp, flash=False, dropout=True, recompute=recompute)
    assert layer_bytes(read_shape("megatron-175b"), cut) == pytest.approx(gpt_layer_bytes(12288, 96, cut))


def test_the_count_differs_from_the_gpt_formula_for_grouped_heads_and_a_gate():
    shape, cut = read_shape("llama3-70b"), Cut(8192)
    parts = layer_parts(shape, cut)
    tokens = 8192
    assert parts["norms"] == 8 * 8192 * tokens
    assert parts["attention"] == (2 * (2 * 64 + 2 * 8) * 128 + 4 * 64) * tokens
    assert parts["ffn"] == 6 * 28672 * tokens  # three tensors of the gate, 2 bytes each
    assert layer_bytes(shape, cut) / gpt_layer_bytes(8192, 64, cut) == pytest.approx(0.987, abs=0.01)
    light = layer_parts(shape, replace(cut, recompute="light"))
    assert light["norms"] == parts["norms"] / 2 and light["ffn"] == parts["ffn"] * 2 / 3


def test_experts_keep_a_token_for_each_that_takes_it():
    shape = read_shape("deepseek-v3")
    dense, sparse = (layer_parts(shape, Cut(4096), kind) for kind in (False, True))
    moe = shape.moe
    per_token = sparse["experts"] / 4096
    ffn = 6 * moe.expert_hidden
    assert per_token == 8 * (2 * 7168 + ffn + 2 * 7168) + 4 * 256 + ffn
    assert "experts" not in dense and dense["attention"] == sparse["attention"]
    halved = layer_parts(shape, Cut(4096, fp8=True), True)
    assert (sparse["experts"] - halved["experts"]) / 4096 == 8 * (7168 + ffn / 2) + ffn / 2


@pytest.mark.parametrize("name, told", [("llama3-405b", 516_096), ("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680)])
def test_kv_cache_bytes_a_token(name, told):
    assert kv_bytes_per_token(read_shape(name)) == told


def test_grouping_heads_divides_the_cache():
    shape = read_shape("llama3-405b")
    assert multi_head_bytes_per_token(shape) == 16 * kv_bytes_per_token(shape)
    assert multi_head_bytes_per_token(read_shape("gpt3-175b")) == kv_bytes_per_token(read_shape("gpt3-175b"))


def test_one_matrix_of_405b_and_the_whole_of_deepseek():
    shape = read_shape("llama3-405b")
    assert round(2 * shape.hidden * shape.ffn_hidden / 1e9, 1) == 1.7
    whole = 2 * parameters(read_shape("deepseek-v3"))
    assert round(whole / 1e12, 1) == 1.3 and whole > 8 * 80e9


def test_bubbles_by_the_table_of_dualpipe():
    work = Work(1.0, 2.0, 1.0)
    told = {name: bubble_us(name, 8, 2, work) for name in ("gpipe", "1f1b", "interleaved", "zb_h1", "dualpipe")}
    assert told == {"gpipe": 21, "1f1b": 21, "interleaved": 10.5, "zb_h1": 7, "dualpipe": 6}
    assert bubble_us("1f1b", 1, 1, work) == 0
    assert bubble_ratio(8, 64) == pytest.approx(0.109, abs=1e-3)  # GPipe: about 10 %
    assert bubble_ratio(8, 256) == pytest.approx(0.027, abs=1e-3)  # and 3 %


def test_micro_batches_in_flight():
    assert [in_flight("1f1b", 4, 1, 8, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight("gpipe", 4, 1, 8, 0) == 8 and in_flight("1f1b", 4, 1, 2, 0) == 2
    assert in_flight("interleaved", 8, 2, 64, 0) == 8 * (1 + 7 / 16)
    assert in_flight("dualpipe", 8, 1, 64, 0) == 9 and parameter_copies("dualpipe") == 2
    assert in_flight("1f1b", 1, 1, 64, 0) == 1


def test_uneven_layers_leave_the_ends_lighter():
    assert layers_of_stages(126, 16) == [7] + [8] * 14 + [7]
    assert sum(layers_of_stages(61, 16)) == 61 and max(layers_of_stages(61, 16)) == 4
    assert layers_of_stages(5, 1) == [5]
    for layers in range(1, 40):
        for pp in range(1, layers + 1):
            split = layers_of_stages(layers, pp)
            assert sum(split) == layers and max(split) - min(split) <= 1


@pytest.mark.parametrize("name", shape_names())
def test_each_parameter_lies_on_one_rank_of_a_group(name):
    shape = read_shape(name)
    ep = 8 if shape.moe else 1
    layout = Layout(tp=2, pp=4, ep=ep, dp=8)
    placed = sum(
        layout.tp * shared_parameters(shape, layout, s) + ep * expert_parameters(shape, layout, s)
        for s in stages(shape, layout)
    )
    copy = shape.vocab * shape.hidden if shape.tied else 0  # the first and the last stage both hold a tied embedding
    assert placed == pytest.approx(parameters(shape) + copy)


def test_the_first_thing_that_does_not_fit_is_named():
    shape, gpu = read_shape("llama3-70b"), gpu_named("h100")
    job = Job(8, 8192, 64)
    alone = ledger(shape, Layout(dp=8, zero=0), job, gpu)
    assert alone.first_too_much == "weights" and not alone.fits and alone.headroom < 0
    split = ledger(shape, Layout(tp=8, zero=1), job, gpu)
    assert split.first_too_much == "optimizer"
    wide = ledger(shape, Layout(tp=8, dp=8, pp=2, zero=1, recompute="full"), Job(128, 8192, 64), gpu)
    assert wide.fits and wide.first_too_much is None
    assert wide.total == pytest.approx(sum(wide.items.values()))


def test_the_ledger_of_a_known_layout():
    shape, job = read_shape("llama3-405b"), Job(16384, 8192, 2048)
    layout = Layout(tp=8, pp=16, dp=128, vpp=8, schedule="interleaved", zero=2)
    every = ledgers(shape, layout, job, gpu_named("h100"))
    assert len(every) == 16
    one = every[1]
    layer = 2 * 16384 * (16384 + 1024) + 3 * 16384 * 53248 + 2 * 16384
    assert one.items["weights"] == pytest.approx(2 * 8 * layer / 8)
    assert one.items["gradients"] == pytest.approx(4 * 8 * layer / 8 / 128)
    kept = in_flight("interleaved", 16, 8, 16, 1) * 8 * layer_bytes(shape, Cut(8192, 1, 8, sp=True))
    assert one.items["activations"] == pytest.approx(kept)
    assert "logits" in every[-1].items and "logits" not in one.items
    assert ledger(shape, layout, job, gpu_named("h100")).total == max(e.total for e in (every[0], every[1], every[15]))
