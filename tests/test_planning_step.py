"""FLOPs, links and the account of a step against published counts, closed forms and measured layer times."""

from dataclasses import replace

import pytest

from commbench.errors import UsageError
from commbench.fabrics import load_fabric
from commbench.planning.experts import dispatch_bytes, distinct, exchange, nodes_reached
from commbench.planning.flops import hardware_flops_per_token, model_flops_per_token, utilisation
from commbench.planning.gpus import gpu_named
from commbench.planning.layer_time import TERMS, Setting, layer_us
from commbench.planning.layout import Job, Layout, check_layout
from commbench.planning.links import Group, fabric_links, group_of
from commbench.planning.machine import Assumptions, Machine
from commbench.planning.step import account, hfu, mfu, predict_step
from commbench.shapes import read_shape
from commbench.shapes.counts import parameters

LLAMA8, LLAMA405 = read_shape("llama3-8b"), read_shape("llama3-405b")


def machine(fabric: str, efficiency: float = 0.6, spread: float = 0.0) -> Machine:
    gpu = gpu_named(fabric.split("-")[0])
    ends = efficiency * (1 - spread), efficiency * (1 + spread)
    return Machine(gpu, fabric_links(load_fabric(fabric)), efficiency, *ends, "stated")


@pytest.mark.parametrize(
    "s, published",
    [
        (4096, (48.2, 51.5, 54.6)),
        (8192, (51.5, 57.9, 61.1)),
        (32768, (70.8, 96.6, 99.7)),
        (131072, (148, 251, 254)),
    ],
)
def test_flops_a_token_are_those_of_three_programs(s, published):
    """Megatron-LM (num_floating_point_operations), torchtitan (models/utils.py: 6 of all parameters but the embedding)
    and picotron (utils.py, get_mfu: 6 of all), the latter two with whole score matrices."""
    h, layers, inner, vocab = 4096, 32, 14336, 128256
    norms, embedding = (2 * layers + 1) * h, vocab * h
    causal, full = (model_flops_per_token(LLAMA8, s, convention) for convention in ("causal", "full"))
    megatron = 3 * (layers * (4 * h * h * (1 + 8 / 32) + 2 * s * h + 4 * h * inner * 1.5) + 2 * h * vocab)
    torchtitan = 6 * (parameters(LLAMA8) - embedding) + 12 * layers * h * s
    picotron = 6 * parameters(LLAMA8) + 12 * layers * h * s
    assert (causal, full + 6 * norms, full + 6 * (norms + embedding)) == (megatron, torchtitan, picotron)
    assert [flops / 1e9 for flops in (megatron, torchtitan, picotron)] == pytest.approx(
        published, abs=0.5 if s > 1e5 else 0.05
    )


def test_flops_of_an_iteration_are_equation_7_of_the_megatron_paper():
    layers, s, h, v = 96, 2048, 12288, 51200
    iteration = 72 * layers * s * h * h * (1 + s / (6 * h) + v / (12 * h * layers))
    # Biases, which the equation leaves out, are in the weights counted here.
    assert s * model_flops_per_token(read_shape("megatron-175b"), s) == pytest.approx(iteration, rel=1e-4)


def test_full_recomputation_is_equation_3_of_megatron_2021():
    layers, s, h, v = 128, 2048, 25600, 51200
    iteration = 96 * layers * s * h * h * (1 + s / (6 * h) + v / (16 * layers * h))
    layout = Layout(recompute="full", flash=False)
    assert s * hardware_flops_per_token(read_shape("megatron-1t"), s, layout) == pytest.approx(iteration, rel=1e-4)


def test_palm_is_at_46_percent():
    tokens = 238_300 / 6144
    assert 100 * utilisation(model_flops_per_token(read_shape("palm-540b"), 2048), tokens, 275) == pytest.approx(
        46.2, abs=0.1
    )


def test_what_recomputation_adds_to_hardware_flops():
    s = 8192
    core = LLAMA8.layers * 2 * s * LLAMA8.heads * 2 * LLAMA8.head_dim
    model = model_flops_per_token(LLAMA8, s)
    added = {
        r: hardware_flops_per_token(LLAMA8, s, Layout(recompute=r, flash=False)) - model for r in ("none", "selective")
    }
    assert added == {"none": 0, "selective": pytest.approx(core)}
    assert hardware_flops_per_token(LLAMA8, s, Layout()) - model == pytest.approx(core / 2)  # flash: scores once more
    with pytest.raises(UsageError, match="convention 'half' is not known"):
        model_flops_per_token(LLAMA8, s, "half")


@pytest.mark.parametrize(
    "ranks, stride, domain, told", [(8, 1, 8, (8, 8)), (16, 1, 8, (16, 8)), (64, 8, 8, (64, 1)), (16, 4, 8, (16, 2)),
                                    (16, 1, 72, (16, 16)), (12, 1, 8, (12, 6)), (1, 8, 8, (1, 1))]
)  # fmt: skip
def test_where_a_group_lies(ranks, stride, domain, told):
    assert group_of(ranks, stride, domain) == Group(*told)


def test_ring_times_are_latency_and_bytes_over_the_narrowest_link():
    time = fabric_links(load_fabric("h100-8x400g")).time
    size = 2.0**30
    node, nodes, rail = Group(8, 8), Group(16, 8), Group(16, 1)
    assert time("all_gather", node, size).time_us == pytest.approx(7 * 1.9 + size * 7 / 8 / 370e3)
    assert time("all_gather", nodes, size).time_us == pytest.approx(4 + 14 * 1.9 + size * 15 / 16 / 370e3)
    assert time("reduce_scatter", rail, size).time_us == pytest.approx(15 * 4 + size * 15 / 16 / 48e3)
    assert time("all_reduce", rail, size).time_us == pytest.approx(2 * time("all_gather", rail, size).time_us)
    in_switch = 4 * 6.25 + size * 9 / 8 / 308.5e3
    assert time("all_reduce", node, size).time_us == pytest.approx(in_switch)
    assert time("send", Group(2, 1), size).time_us == pytest.approx(4 + size / 48e3)
    assert time("all_to_all", rail, size).time_us == pytest.approx(4 + size * 15 / 16 / 48e3)
    assert time("all_to_all", Group(1, 1), size).time_us == 0
    told = time("send", Group(2, 1), size)
    assert told.low_us == pytest.approx(2 + size / 50e3) and told.high_us == pytest.approx(6 + size / 46e3)
    assert (told.at(-1), told.at(0), told.at(1)) == (told.low_us, told.time_us, told.high_us)


def test_distinct_nodes_are_those_of_deepep():
    told = [distinct(places, 256, 8) for places in (2, 4, 8, 16, 32, 64)]
    assert told == pytest.approx([1.99, 3.61, 5.30, 6.52, 7.27, 7.68], abs=0.006)
    moe = read_shape("deepseek-v3").moe
    assert nodes_reached(moe, 8) == pytest.approx(distinct(4, 128, 8)) and nodes_reached(moe, 2) == distinct(2, 256, 8)


def test_an_exchange_takes_the_slower_of_both_links():
    moe = read_shape("deepseek-v3").moe
    links = fabric_links(load_fabric("h800-8x400g"))
    told = exchange(moe, Group(64, 8), 4096, dispatch_bytes(7168, FP8), links)
    outside = nodes_reached(moe, 8) * 7 / 8 * 4096 * 7168 * (1 + 4 / 128)
    assert told.time_us == pytest.approx(4 + outside / 48e3)
    # DeepEP measured 51 GB/s of RDMA there, which counts the local node too: 8/7 of what leaves it.
    assert nodes_reached(moe, 8) * 4096 * dispatch_bytes(7168, FP8) / told.time_us / 1e3 == pytest.approx(51, rel=0.1)
    assert exchange(moe, Group(8, 8), 4096, 7168.0, links).time_us < told.time_us


@pytest.mark.parametrize(
    "recompute, sp, forward_ms, backward_ms",
    [("none", False, 7.7, 11.9), ("none", True, 7.2, 11.8), ("full", False, 7.7, 19.5), ("selective", True, 7.2, 13.1)],
)
def test_a_layer_takes_what_was_measured_on_a100(recompute, sp, forward_ms, backward_ms):
    """arXiv 2205.05198, table 4: one layer of the 22B model, micro-batch 4, tp 8. Nothing is fitted to it."""
    layout = Layout(tp=8, sp=sp, recompute=recompute, flash=False, dropout=True, micro_batch=4)
    setting = Setting(read_shape("megatron-22b"), layout, Job(8, 2048, 4), machine("a100-8x200g", 0.7), Assumptions())
    forward, backward = (sum(way.values()) / 1e3 for way in layer_us(setting, False))
    assert forward == pytest.approx(forward_ms, rel=0.15)
    assert backward == pytest.approx(backward_ms, rel=0.20)


JOB = Job(64, 8192, 64)
FP8 = Job(64, 4096, 64, "fp8")
PLAIN = Assumptions()
LAYOUT = Layout(tp=8, pp=4, dp=2, zero=1)


def test_an_account_adds_up():
    one = account(LLAMA8, LAYOUT, JOB, machine("h100-8x400g"), Assumptions())
    assert set(TERMS) < set(one.terms) and min(one.terms.values()) >= 0
    assert one.step_us == pytest.approx(sum(one.terms.values()))
    assert one.tokens_per_s_per_gpu == pytest.approx(64 * 8192 / (one.step_us / 1e6) / 64)
    # 32 micro-batches on 4 stages: the bubble is 3/32 of the slowest stage's work.
    work = sum(one.terms[t] for t in TERMS) + one.terms["stage imbalance"]
    assert one.terms["PP bubble"] == pytest.approx(work * 3 / 32)


def test_matmul_time_is_flops_over_the_rate():
    one = account(LLAMA8, Layout(dp=8, zero=1), Job(8, 8192, 8), machine("h100-8x400g", 0.5), Assumptions())
    # The flash kernel skips the masked half of the scores: the causal count.
    flops = 8192 * model_flops_per_token(LLAMA8, 8192, "causal")
    norms_and_biases = 1e-3
    assert one.terms["matmul"] == pytest.approx(flops / (989.4e12 * 0.5) * 1e6, rel=norms_and_biases)
    assert one.terms["TP"] == one.terms["PP bubble"] == one.terms["CP"] == one.terms["EP"] == 0


def test_what_each_choice_costs():
    def terms(layout, assume=PLAIN, fabric="h100-8x400g"):
        check_layout(LLAMA8, layout, JOB)
        return account(LLAMA8, layout, JOB, machine(fabric), assume).terms

    plain = terms(LAYOUT)
    assert terms(LAYOUT, fabric="h800-8x400g")["TP"] > 2 * plain["TP"]
    assert terms(LAYOUT, Assumptions(tp_overlap=True))["TP"] < 0.3 * plain["TP"]
    assert terms(LAYOUT, Assumptions(dp_overlap=False))["DP"] > plain["DP"]
    assert terms(Layout(**{**vars(LAYOUT), "recompute": "full"}))["TP"] == pytest.approx(1.5 * plain["TP"])
    halved = terms(Layout(**{**vars(LAYOUT), "vpp": 2, "schedule": "interleaved"}))
    assert halved["PP bubble"] == pytest.approx(plain["PP bubble"] / 2)
    ring, gather = (terms(Layout(tp=4, cp=2, pp=4, dp=2, cp_kind=kind))["CP"] for kind in ("ring", "all_gather"))
    assert ring == 0 < gather  # 4096 queries hide a gather of keys and values


def test_without_sequence_parallelism_two_all_reduces_a_direction():
    layout = Layout(tp=8, dp=1, sp=False)
    setting = Setting(LLAMA8, layout, Job(8, 8192, 8), machine("h800-8x400g"), Assumptions())
    forward, backward = layer_us(setting, False)
    once = setting.machine.links.time("all_reduce", Group(8, 8), 2 * 8192 * 4096).time_us
    assert forward["TP"] == backward["TP"] == pytest.approx(2 * once)


def test_the_interval_comes_from_the_inputs():
    sure = predict_step(LLAMA8, Layout(dp=64, zero=0), JOB, machine("h100-8x400g"), Assumptions(memory_spread=0.0))
    assert sure.moved_by["kernel efficiency"] == sure.moved_by["TP"] == 0
    told = predict_step(LLAMA8, LAYOUT, JOB, machine("h800-8x400g", 0.6, 0.1), Assumptions())
    assert told.low_us < told.account.step_us < told.high_us
    assert told.dominant == ["TP", "kernel efficiency"]  # H800's NVLink: 160 measured of 200
    wide = predict_step(LLAMA8, LAYOUT, JOB, machine("h800-8x400g", 0.6, 0.3), Assumptions())
    assert wide.dominant[0] == "kernel efficiency" and wide.high_us > told.high_us


def test_mfu_by_both_conventions_and_hfu():
    m = machine("h100-8x400g")
    one = mfu(LLAMA405, Job(1, 131072, 1), m, 100.0)
    assert one["full"] / one["causal"] == pytest.approx(1.40, abs=0.01)
    assert (
        hfu(LLAMA405, Layout(recompute="full"), Job(1, 8192, 1), m, 100.0)["full"]
        > 1.3 * mfu(LLAMA405, Job(1, 8192, 1), m, 100.0)["full"]
    )


def test_dualpipe_hides_the_exchange_and_lends_multiprocessors():
    shape, job = read_shape("deepseek-v3"), Job(2048, 4096, 4096, "fp8", "adam-bf16-moments")
    m = machine("h800-8x400g")
    hidden = account(shape, Layout(pp=16, dp=128, ep=64, schedule="dualpipe"), job, m, Assumptions()).terms
    exposed = account(shape, Layout(pp=16, dp=128, ep=64), job, m, Assumptions()).terms
    assert hidden["EP"] < exposed["EP"] and hidden["PP bubble"] < exposed["PP bubble"]
    no_experts = Layout(pp=16, dp=128)
    assert account(shape, no_experts, job, m, Assumptions()).terms["EP"] == 0


def test_fp32_doubles_what_is_moved():
    gpu = replace(gpu_named("h100"), fp32_TFLOPs=989.4)
    m = replace(machine("h800-8x400g"), gpu=gpu)
    narrow, wide = (
        account(LLAMA8, LAYOUT, Job(64, 8192, 64, precision), m, PLAIN).terms for precision in ("bf16", "fp32")
    )  # fmt: skip
    assert wide["matmul"] == narrow["matmul"] and wide["memory-bound"] == pytest.approx(2 * narrow["memory-bound"])
    assert wide["TP"] == pytest.approx(2 * narrow["TP"], rel=0.03)  # but for the latency
    with pytest.raises(UsageError, match="h800 has no fp32"):
        account(LLAMA8, LAYOUT, Job(64, 8192, 64, "fp32"), machine("h800-8x400g"), PLAIN)
