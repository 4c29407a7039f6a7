"""Pipelines on real ranks: right against the whole model on one rank, messages counted, bubbles measured."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed.pipelining  # noqa: F401  slow to import; the ranks are forked
from layer_ranks import built_on, on_ranks, tried
from torch.utils.flop_counter import FlopCounterMode

from commbench.layers import load
from commbench.layers.layer import Place
from commbench.layers.numbers import TOLERANCE, scaled
from commbench.layers.pipeline import schedule_of
from commbench.layers.pipeline_bubble import bubble_facts
from commbench.layers.pipeline_stage import MlpStage, block_weights
from commbench.layers.pipeline_torch import SCHEDULES as OF_TORCH
from commbench.layers.wire import DONE
from commbench.schedules.stages_catalogue import NAMES, build, problem
from commbench.schedules.stages_formulas import bubble
from commbench.schedules.stages_simulate import Costs, peak_activations, simulate

SMALL = {"scale": 32, "tokens": 5, "micro_batches": 8}


def _cases(ranks, **more):
    given = SMALL | {"micro_batches": max(8, 2 * ranks)} | more
    m = given["micro_batches"]
    return [given | {"schedule": name} for name in NAMES if not problem(name, ranks, m - m % ranks)]


def _right(rows, cases):
    for of_rank in rows:
        for case, row in zip(cases, of_rank, strict=True):
            assert row["counted"] == row["wanted"], case
            assert row["wrong"] == 0 and row["error"] < TOLERANCE[case.get("dtype", "float32")], (case, row)


@pytest.mark.parametrize(
    "ranks", [2, 3, pytest.param(4, marks=pytest.mark.full), pytest.param(8, marks=pytest.mark.full)]
)
def test_gradients_and_messages(ranks):
    m = max(8, 2 * ranks) // ranks * ranks
    cases = _cases(ranks, micro_batches=m)
    assert len(cases) == 7 - ranks % 2
    rows = on_ranks(ranks, tried, "pipeline", cases)
    _right(rows, cases)
    assert all(row["error"] > 0 for of_rank in rows for row in of_rank)
    for rank, of_rank in enumerate(rows):
        for case, row in zip(cases, of_rank):
            schedule = schedule_of(load("pipeline").options | case, ranks)
            assert row["facts"]["peak_activations"] == peak_activations(schedule)[rank], case


def test_messages_as_the_papers_count_them():
    """Per micro-batch one each way at a boundary of ranks: 2m on the ends and 4m between of 3 ranks; twice that over a V
    less its tip, with the first and last stage on one rank."""
    record = load("pipeline")
    for name, wanted in (
        ("1f1b", (8, 16, 8)),
        ("zb_h1", (8, 16, 8)),
        ("zb_v", (16, 32, 16)),
        ("interleaved", (27, 36, 27)),
    ):
        params = record.options | SMALL | {"dtype": "float32", "schedule": name}
        params["micro_batches"] = 9 if name == "interleaved" else 8
        calls = [record.traffic(params, Place(rank, 3))["send"][0] for rank in range(3)]
        assert calls == list(wanted), name
        assert record.traffic(params, Place(0, 3))["send"][1] == wanted[0] * 5 * 128 * 4
        assert record.traffic(params, Place(0, 1)) == {}


@pytest.mark.parametrize("ranks", [1, 2])
def test_bf16_and_one_rank(ranks):
    cases = _cases(ranks, dtype="bfloat16")
    _right(on_ranks(ranks, tried, "pipeline", cases), cases)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_stages_that_wait_tell_misplaced_messages(ranks):
    times = {"forward_us": 100.0, "input_us": 100.0, "weight_us": 100.0}
    cases = _cases(ranks, work="wait", **times)
    rows = on_ranks(ranks, tried, "pipeline", cases)
    _right(rows, cases)

    def swapped(world):
        built, *_ = built_on(world, "pipeline", cases[0])
        run = built.step.__self__
        if world.rank == 0:  # two micro-batches change places on their way
            run._inputs[0], run._inputs[1] = run._inputs[1], run._inputs[0]
        return built.check()

    assert on_ranks(ranks, swapped)[ranks - 1][0] == 2


def test_a_wrong_result_is_found():
    def spoilt(world):
        built, *_ = built_on(world, "pipeline", SMALL)
        stage = next(iter(built.step.__self__.stages.values()))
        stage.blocks[0][0][0, 0] += 1.0
        return built.check()

    assert all(wrong for wrong, _ in on_ranks(2, spoilt))


def test_a_bubble_is_measured_where_ranks_wait():
    """A busy machine makes it longer, never shorter; tests/benchmarks/pipeline_bubble.py holds it to 10 %."""
    times = {"forward_us": 2000.0, "input_us": 2000.0, "weight_us": 2000.0}
    case = SMALL | {"schedule": "1f1b", "work": "wait", **times}

    def measured(world):
        built, *_ = built_on(world, "pipeline", case)
        run = built.step.__self__
        built.step()
        assert len(run.durations_us()) == 1
        built.sampling()
        assert not run.durations_us()  # slow first steps are no samples
        for _ in range(5):
            built.step()
        return built.facts()

    for facts in on_ranks(2, measured):
        assert facts["busy_us"] >= 8 * 6000
        assert facts["simulated_bubble_us"] == pytest.approx(facts["formula_bubble_us"])
        assert facts["bubble_us"] >= 0.95 * 6000
        assert len(facts["timeline_us"]) == 2 * 16


@pytest.mark.parametrize("name", NAMES)
def test_the_bubble_of_known_times_is_that_of_the_simulation(name):
    """What ranks would report whose cells begin and end as simulated, each step a little later than the last."""
    schedule, costs = build(name, 4, 8), Costs(2000.0, 1900.0, 1800.0, overlapped=5000.0)
    timeline = simulate(schedule, costs)

    def reported(rank):
        times = [np.stack([timeline.starts[rank], timeline.ends[rank]], axis=1) + late for late in (0.0, 100.0, 200.0)]
        return SimpleNamespace(schedule=schedule, device="cpu", most_kept=4, durations_us=lambda: times)

    told = []

    class Collect:
        """What each rank gives; the second time round every rank gets all of it."""

        size = 4

        def __init__(self, rank):
            self.rank = rank

        def all_gather(self, table, own):
            if len(told) < 4:
                told.append(own.clone())
                raise InterruptedError
            table.copy_(torch.cat(told))
            return DONE

    for rank in range(4):
        with pytest.raises(InterruptedError):
            bubble_facts(reported(rank), Collect(rank), 2)
    for rank in range(4):
        facts = bubble_facts(reported(rank), Collect(rank), 2)
        assert facts["bubble_us"] == pytest.approx(timeline.bubble[rank] + 100)
        assert facts["simulated_bubble_us"] == pytest.approx(timeline.bubble[rank], abs=0.001)
        assert facts["bubble_of_span_us"] == pytest.approx(timeline.bubble_of_span[rank], abs=0.001)
        assert facts["busy_us"] == pytest.approx(timeline.busy[rank])
        if name in ("gpipe", "1f1b", "interleaved", "zb_h1"):
            assert facts["formula_bubble_us"] == pytest.approx(bubble(name, 4, 8, costs), abs=0.001)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_torch_s_runtime_computes_the_same(ranks):
    m = max(8, 2 * ranks)
    cases = [SMALL | {"schedule": name, "executor": "torch", "micro_batches": m} for name in OF_TORCH]
    _right(on_ranks(ranks, tried, "pipeline", cases), cases)


def test_a_wrong_result_of_torch_s_runtime_is_found():
    def spoilt(world):
        built, *_ = built_on(world, "pipeline", SMALL | {"executor": "torch"})
        run = built.step.__self__
        with torch.no_grad():
            run._modules[0].matrices[0][0, 0] += 1.0
        return built.check()

    assert all(wrong for wrong, _ in on_ranks(2, spoilt))


def test_where_a_backend_cannot_it_is_said():
    record = load("pipeline")
    assert record.backends(record.options) == ("gloo", "nccl", "mpi")
    assert record.backends(record.options | {"executor": "torch"}) == ("gloo", "nccl")
    assert record.backends(record.options | {"work": "wait"}) == ("gloo", "mpi")


def test_flops_are_those_of_the_matrices():
    record = load("pipeline")
    params = record.options | SMALL | {"dtype": "float32"}
    shape = scaled(params["model"], params["scale"])
    stage = MlpStage([block_weights(params, shape, i) for i in range(params["blocks"])])
    x = torch.randn(5, shape.hidden)
    with FlopCounterMode(display=False) as counter:
        stage.forward(0, x)
        stage.input_gradient(0, x)
        stage.weight_gradient(0)
    assert 8 * counter.get_total_flops() == record.flops(params, Place(0, 2))


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({"schedule": "zb"}, 2, "'zb' is none of gpipe"),
        ({"schedule": "dualpipe"}, 3, "must be even"),
        ({"schedule": "dualpipe_v"}, 8, "needs 16 micro-batches or more, not 8"),
        ({"schedule": "zb_v", "blocks": 3}, 2, "3 blocks on a rank do not make 2 stages"),
        ({"executor": "torch", "schedule": "dualpipe"}, 2, "torch's runtime has no dualpipe; it has gpipe"),
        ({"executor": "torch", "work": "wait"}, 2, "stages that wait are for executor own"),
        ({"executor": "torch", "micro_batches": 2}, 4, "needs 4 micro-batches or more, not 2"),
        ({"tokens": 0}, 2, "0 tokens"),
        ({"work": "wait", "forward_us": 1e12}, 2, "a step would wait 8e+06 s"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    record = load("pipeline")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, ranks)
