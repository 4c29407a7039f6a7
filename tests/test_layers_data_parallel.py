"""Data parallelism and ZeRO: right against the whole batch on one rank, calls and bytes by formula, memory as held."""

import gc

import pytest
import torch
from layer_ranks import built_on, on_ranks, tried

from commbench.layers import load
from commbench.layers.buckets import cut_into_buckets
from commbench.layers.layer import Place
from commbench.layers.numbers import TOLERANCE
from commbench.layers.wire import wire_bytes

SMALL = {"scale": 32, "tokens": 16, "layers": 3, "bucket": 30000}
ROOMY = SMALL | {"bucket": 300000}  # a bucket over more than one block


def _right(ranks, cases):
    rows = on_ranks(ranks, tried, "data_parallel", cases)
    for row_of_rank in rows:
        for case, row in zip(cases, row_of_rank, strict=True):
            assert row["counted"] == row["wanted"], case
            tolerance = TOLERANCE[case.get("dtype", "float32")]
            assert row["wrong"] == 0 and 0 < row["error"] < tolerance, (case, row)
    return rows[0]


def test_every_stage_with_one_and_more_micro_batches():
    _right(2, [SMALL | {"zero": zero, "dtype": dtype, "micro_batches": micro}
               for zero in (0, 1, 2, 3) for dtype, micro in (("float32", 2), ("bfloat16", 1))])  # fmt: skip


def test_three_ranks():
    """3 divides no matrix here, so buckets are filled up."""
    _right(3, [SMALL | {"zero": zero, "bucket": 300000} for zero in (0, 1, 2, 3)])


@pytest.mark.full
def test_buckets_of_all_sizes():
    """A bucket may hold one matrix, parts of two blocks, or all; weights are asked for in time or ahead of it."""
    _right(3, [SMALL | {"zero": zero, "bucket": bucket, "prefetch": prefetch, "fp32_gradients": True}
               for zero in (0, 1, 2, 3) for bucket in (1, 300000, 2**20) for prefetch in (0, 2)])  # fmt: skip


def test_replicas_of_shards_and_tensor_parallel_inside():
    rows = _right(4, [ROOMY | {"zero": 3, "shard": 2, "micro_batches": 2, "dtype": "bfloat16"},
                      ROOMY | {"zero": 3, "tensor_parallel": 2, "scale": 16}])  # fmt: skip
    assert set(rows[0]["counted"]) == {"shard.reduce_scatter", "shard.all_gather", "replica.all_reduce"}
    assert set(rows[1]["counted"]) == {"shard.reduce_scatter", "shard.all_gather", "tensor.all_reduce"}


@pytest.mark.full
@pytest.mark.parametrize("ranks", [4, 8])
def test_every_cut_on_four_and_eight_ranks(ranks):
    cuts = {}, {"shard": 2}, {"shard": 1}, {"tensor_parallel": 2, "shard": 2, "scale": 16}
    few = ROOMY | {"layers": 2}
    _right(ranks, [few | {"zero": zero, **cut} for zero in (1, 2, 3) for cut in cuts]
           + [few | {"zero": 3, "tensor_parallel": 4, "scale": 8, "layers": 1}])  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 3])
def test_torch_as_a_second_executor(ranks):
    """fully_shard makes the calls of the own stage 3 where a bucket is a block: twice all weights and once gradients."""
    cases = [
        SMALL | {"zero": 3, "bucket": 237568, "executor": executor, **given}
        for executor in ("own", "torch")
        for given in ({}, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "fp32_gradients": True, "micro_batches": 2})
    ]
    for row in on_ranks(ranks, tried, "data_parallel", cases):
        for case, own, torchs in zip(cases, row[:3], row[3:]):
            for found in (own, torchs):
                assert found["counted"] == found["wanted"] and found["wrong"] == 0, (case, found)
            assert {op: calls for op, (calls, _) in own["counted"].items()} == {
                op: calls for op, (calls, _) in torchs["counted"].items()
            }
            if ranks == 2:
                assert own["counted"] == torchs["counted"]
                assert torchs["facts"]["state_bytes"] == torchs["facts"]["state_formula_bytes"] == 16 * 712704 / 2


def test_what_is_sent_beside_an_all_reduce_of_the_gradients():
    """arXiv 1910.02054, section 7: once for plain data parallelism and stages 1 and 2, and 1.5 times for stage 3."""
    record = load("data_parallel")
    for ranks in (2, 4, 8):
        sent = []
        for zero in (0, 1, 2, 3):
            calls = record.traffic(record.options | SMALL | {"zero": zero, "dtype": "bfloat16"}, Place(0, ranks))
            sent.append(sum(wire_bytes(op.split(".")[1], size, ranks) for op, (_, size) in calls.items()))
        plain = 2 * (ranks - 1) / ranks * 712704 * 2
        assert sent == [plain, plain, plain, 1.5 * plain]


# Bytes a parameter on one of two ranks. arXiv 1910.02054, figure 1; Megatron's 18 bytes have fp32 gradients.
HELD = [
    ({"dtype": "bfloat16"}, (16, 4 + 12 / 2, 2 + 14 / 2, 16 / 2)),
    ({"dtype": "bfloat16", "fp32_gradients": True}, (18, 6 + 12 / 2, 2 + 16 / 2, 18 / 2)),
    ({"dtype": "float32"}, (16, 8 + 8 / 2, 4 + 12 / 2, 16 / 2)),
]


def test_memory_that_is_held():
    cases = [(SMALL | given | {"zero": zero}, each) for given, row in HELD for zero, each in enumerate(row)]
    for rows in on_ranks(2, _held, [case for case, _ in cases]):
        for (case, each), facts in zip(cases, rows, strict=True):
            assert facts["parameters"] == 712704
            assert facts["state_bytes"] == facts["state_formula_bytes"] == each * 712704, case
            # Nothing that lives on is missing from what the row says, but for the batch itself.
            assert facts["state_bytes"] + facts["bucket_bytes"] == facts["seen_bytes"], case


def _held(world, cases):
    """The facts of a row after two steps, and what the interpreter itself finds of large tensors that live."""
    rows = []
    gc.collect()
    gc.freeze()  # what was there before is no longer looked at
    for case in cases:
        built = built_on(world, "data_parallel", case)[0]
        built.step()
        built.step()
        gc.collect()
        seen = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in gc.get_objects()
                if isinstance(t, torch.Tensor)}  # fmt: skip
        rows.append(built.facts() | {"seen_bytes": sum(size for size in seen.values() if size > 2**14)})
        del built
    return rows


def test_a_gradient_that_was_not_reduced_is_found():
    for wrong in on_ranks(2, _unreduced, [SMALL | {"zero": zero} for zero in (0, 1, 2, 3)]):
        assert all(wrong)


def _unreduced(world, cases):
    wrong = []
    for case in cases:
        built, tape, *_ = built_on(world, "data_parallel", case)
        tape.on = False
        wrong.append(built.check()[0])
    return wrong


def test_flops_are_those_of_the_blocks():
    record, inner = load("data_parallel"), load("tensor_parallel")
    params = record.options | SMALL | {"dtype": "float32", "micro_batches": 2}
    once = inner.flops(inner.options | params, Place(0, 1))
    assert record.flops(params, Place(0, 4)) == 6 * once > 0


def test_where_torch_can_send():
    record = load("data_parallel")
    assert record.backends(record.options | {"executor": "torch"}) == ("gloo", "nccl")
    assert "mpi" in record.backends(record.options)


def test_buckets():
    cut = cut_into_buckets([5, 5, 5, 20, 3], 10, 4)
    assert [(b.first, b.last, b.begins, b.filled, b.elements) for b in cut] == [
        (0, 2, (0, 5), 10, 12), (2, 4, (0, 5), 25, 28), (4, 5, (0,), 3, 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({"zero": 4}, 2, "stages 0 (nothing is cut) to 3, not 4"),
        ({"zero": 3, "shard": 3}, 4, "shard 3 does not divide the 4 data-parallel ranks"),
        ({"shard": 2}, 4, "zero 0 cuts nothing"),
        ({"tensor_parallel": 3}, 4, "tensor_parallel 3 does not divide the 4 ranks"),
        ({"tensor_parallel": 8, "scale": 8}, 8, "degree 8 does not divide heads 4"),
        ({"layers": 0}, 2, "layers is 0"),
        ({"executor": "torch", "zero": 2}, 2, "is fully_shard, zero 3 over all ranks"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    record = load("data_parallel")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, ranks)
