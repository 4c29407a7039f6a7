"""Context parallelism: right against attention on one rank, its calls and bytes by formula, its load by counting."""

import pytest
import torch
from layer_ranks import built_on, on_ranks, tried
from runs import commbench, points

from commbench.kernels.attention_reference import allowed, attention
from commbench.kernels.masks import CAUSAL, FULL, Mask
from commbench.layers import attention_pieces, load
from commbench.layers.context_parallel import plan
from commbench.layers.layer import Place
from commbench.layers.numbers import TOLERANCE
from commbench.layers.sequence_cut import chunk_orders, chunks, document_bounds, pieces, reordered

FORMS = ("ring", "all_gather", "ulysses")
CASES = [
    {"form": form, "balance": balance, "documents": documents, "dtype": dtype, "tokens": 48, "batch": batch}
    for form in FORMS
    for balance in (True, False)
    for documents, dtype, batch in ((1, "float32", 2), (5, "float32", 1), (1, "bfloat16", 1), (5, "bfloat16", 2))
]
SHAPES = {2: ("llama3-8b", 2), 3: ("gpt3-175b", 16), 4: ("llama3-8b", 2), 8: ("llama3-70b", 4)}  # kv_heads 8, 6, 8, 8


@pytest.mark.parametrize("ranks", [2, 3, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 8))])
def test_results_and_calls(ranks):
    model, scale = SHAPES[ranks]
    wanted = {2: lambda case: case["batch"] == 2, 3: lambda case: case["documents"] == 5}.get(ranks, lambda case: True)
    cases = [case | {"model": model, "scale": scale} for case in CASES if wanted(case)]
    for rank, rows in enumerate(on_ranks(ranks, tried, "context_parallel", cases)):
        for case, row in zip(cases, rows, strict=True):
            assert row["counted"] == row["wanted"], case
            assert row["wrong"] == 0 and 0 < row["error"] < TOLERANCE[case["dtype"]], (case, row)
            assert row["facts"]["pairs"] == _by_mask(case, rank, ranks), case


def _by_mask(case, rank, ranks):
    """The pairs of `rank`, counted in the mask itself."""
    params = load("context_parallel").options | case
    heads = {"llama3-8b": 32, "gpt3-175b": 96, "llama3-70b": 64}[params["model"]] // params["scale"]
    seen = _allowed(params)
    if params["form"] == "ulysses":
        return int(seen.sum()) * params["batch"] * heads // ranks
    held = chunks(rank, ranks, params["tokens"], params["balance"])
    return sum(int(seen[begin:end].sum()) for begin, end in held) * params["batch"] * heads


def _allowed(params):
    bounds = document_bounds(params["tokens"], params["documents"], params["seed"])
    lengths = tuple(end - begin for begin, end in zip(bounds, bounds[1:]))
    assert len(lengths) == params["documents"] and min(lengths) > 0 and sum(lengths) == params["tokens"]
    return allowed(Mask(right=0, documents=lengths), params["tokens"], params["tokens"])


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_pieces_are_the_mask(form, balance, ranks):
    """Over all ranks and steps, each allowed pair is attended to exactly once, and no other."""
    for documents, seed in ((1, 1), (7, 2), (48, 3)):
        params = {"tokens": 48, "documents": documents, "seed": seed, "form": form}
        found = torch.zeros(48, 48, dtype=torch.int)
        for rank in range(1 if form == "ulysses" else ranks):
            own = [(0, 48)] if form == "ulysses" else chunks(rank, ranks, 48, balance)
            for s, step in enumerate(plan(params, rank, ranks, balance)):
                keys = chunks((rank - s) % ranks, ranks, 48, balance) if form == "ring" else [(0, 48)]
                q_at, k_at = (torch.cat([torch.arange(*chunk) for chunk in held]) for held in (own, keys))
                for piece in step:
                    block = torch.ones(piece.q.stop - piece.q.start, piece.k.stop - piece.k.start, dtype=torch.int)
                    block = block.tril() if piece.causal else block
                    assert int(block.sum()) == piece.pairs
                    found[q_at[piece.q, None], k_at[None, piece.k]] += block
        assert torch.equal(found, _allowed(params).int())


def test_zigzag_needs_one_call_a_step_and_gives_all_ranks_the_same():
    """ring-flash-attention: causal on the own block, then all queries on half the keys or half the queries on all."""
    params = {"tokens": 64, "documents": 1, "seed": 1, "form": "ring"}
    for ranks in (2, 4, 8):
        loads = []
        for rank in range(ranks):
            steps = plan(params, rank, ranks, True)
            assert [len(step) for step in steps] == [1] * ranks
            n = 64 // ranks
            for s, (piece,) in enumerate(steps[1:], 1):
                from_before = s <= rank
                assert piece.q == slice(0 if from_before else n // 2, n)
                assert piece.k == slice(0, n // 2 if from_before else n)
            loads.append(sum(piece.pairs for step in steps for piece in step))
        assert set(loads) == {64 * 65 // 2 // ranks}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_load_without_balance(ranks):
    """The last rank bounds all: c / (2c - 1) of the ranks' time is work, in the limit of long sequences."""
    params = load("context_parallel").options | {"tokens": 4096, "form": "ring", "dtype": "float32"}
    whole = load("context_parallel").flops(params, Place(0, 1))
    last = load("context_parallel").flops(params | {"balance": False}, Place(ranks - 1, ranks))
    assert whole / ranks / last == pytest.approx(ranks / (2 * ranks - 1), rel=2e-3)


def test_traffic_is_that_of_the_papers():
    """Written out once more for llama3-8b in bfloat16: 32 heads, 8 of keys and values, 128 wide, 8192 tokens, c = 4."""
    record = load("context_parallel")
    params = record.options | {"scale": 1, "tokens": 8192, "dtype": "bfloat16"}
    place = Place(0, 4)
    block = 2 * 2048 * 8 * 128
    assert record.traffic(params | {"form": "ring"}, place) == {"send": (10, 6 * block * 2 + 4 * block * 4)}
    gathered = {"all_gather": (2, 2 * 4 * block * 2), "reduce_scatter": (1, 4 * block * 2)}
    assert record.traffic(params | {"form": "all_gather"}, place) == gathered
    by_heads = {"all_to_all": (8, 2 * 2048 * 128 * (2 * 32 + 2 * 8) * 2)}
    assert record.traffic(params | {"form": "ulysses"}, place) == by_heads
    assert all(record.traffic(params | {"form": form}, Place(0, 1)) == {} for form in FORMS)


def test_one_rank():
    cases = [{"form": form, "tokens": 16, "documents": 3} for form in FORMS]
    for row in on_ranks(1, tried, "context_parallel", cases)[0]:
        assert row["counted"] == {} and row["wrong"] == 0


def test_a_wrong_result_is_found():
    def spoilt(world):
        built, *_ = built_on(world, "context_parallel", {"tokens": 16, "form": "ring"})
        right = attention_pieces.merge
        attention_pieces.merge = lambda o, lse, part, part_lse: right(o, lse, 1.001 * part, part_lse)
        return built.check()

    assert any(wrong for wrong, _ in on_ranks(2, spoilt))


def test_parts_are_merged_where_weights_overflow():
    """Scores of +-1000: exp() of either sum would be no number."""
    o, lse = torch.tensor([[[[1.0]]]]), torch.tensor([[[1000.0]]])
    for part, part_lse, want, want_lse in ((3.0, 1000.0, 2.0, 1000.6931), (9.0, -1000.0, 2.0, 1000.6931)):
        attention_pieces.merge(o, lse, torch.tensor([[[[part]]]], dtype=torch.bfloat16), torch.tensor([[[part_lse]]]))
        assert o.item() == pytest.approx(want) and lse.item() == pytest.approx(want_lse)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_written_out(causal):
    """What a GPU uses in float32, against the reference, and against torch's flash attention."""
    q, k, v = (torch.randn(2, heads, 9, 16).requires_grad_() for heads in (4, 2, 2))
    do = torch.randn(2, 4, 9, 16)
    want, want_lse = attention(q, k, v, CAUSAL if causal else FULL)
    wanted = [want, want_lse, *torch.autograd.grad(want, [q, k, v], do)]
    q, k, v = (x.detach() for x in (q, k, v))
    for forward, backward in (
        (attention_pieces.attend, attention_pieces.attend_backward),
        (attention_pieces.attend_written_out, attention_pieces.attend_backward_written_out),
    ):
        o, lse = forward(q, k, v, causal)
        for found, right in zip([o, lse, *backward(do, q, k, v, o, lse, causal)], wanted, strict=True):
            torch.testing.assert_close(found, right.detach(), rtol=1e-4, atol=1e-5)


def test_chunks_in_order():
    rows = torch.cat([torch.arange(*chunk) for rank in range(3) for chunk in chunks(rank, 3, 24, True)])
    to_positions, back = chunk_orders(3, True, "cpu")
    assert reordered(rows, to_positions).tolist() == list(range(24))
    assert reordered(torch.arange(24), back).tolist() == rows.tolist()
    assert pieces([(0, 8)], [(8, 16)], [0, 16]) == []


@pytest.mark.parametrize(
    "given, ranks, said",
    [
        ({"tokens": 500}, 8, "500 tokens cannot be cut into 16 equal chunks: with balance each of 8 ranks holds two"),
        ({"tokens": 500, "balance": False}, 8, "500 tokens cannot be cut into 8 equal chunks"),
        ({"tokens": 512, "form": "ulysses"}, 8, "degree 8 does not divide heads 4"),
        ({"form": "ulysses", "scale": 1}, 16, "does not divide kv_heads 8"),
        ({"tokens": 4, "documents": 5}, 2, "5 documents do not fit into 4 tokens"),
        ({"tokens": 0}, 2, "tokens is 0"),
        ({"documents": 0}, 2, "documents is 0"),
        ({"model": "deepseek-v3"}, 2, "latent attention"),
    ],
)
def test_what_cannot_be_is_said(given, ranks, said):
    record = load("context_parallel")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, ranks)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_from_the_command_line(tmp_path, backend):
    given = ("--backend", backend, "--ranks", 2, "--iters", 4, "--dtype", "float32,bfloat16", "--no-report")
    options = ("--set", "form=" + ",".join(FORMS), "--set", "tokens=64", "--set", "documents=1,3")
    done = commbench("run", "context_parallel", *given, *options, "--out", tmp_path / "run")
    rows = points(tmp_path / "run")
    skipped = [row for row in rows if row["status"] == "skip"]
    if backend == "mpi":
        assert [(row["params"]["form"], row["dtype"]) for row in skipped] == [("all_gather", "bfloat16")] * 2
        assert "MPI has no datatype for sums of bfloat16" in skipped[0]["reason"]
    assert len(rows) == 12 and all(row["status"] == "ok" for row in rows if row not in skipped), done.stdout
    for row in rows:
        if row not in skipped:
            assert set(row["parts_us"]) == {"compute", "comm"} and row["error_max"] > 0 and row["flops"] > 0
            assert row["rank_facts"]["pairs"] == row["rank_facts"]["pairs_balanced"]


def test_a_bad_cut_ends_with_2_before_ranks_start(tmp_path):
    done = commbench("run", "context_parallel", "--ranks", 2, "--set", "tokens=7", "--out", tmp_path / "run")
    assert done.returncode == 2 and "7 tokens cannot be cut into 4 equal chunks" in done.stderr
    assert not (tmp_path / "run").exists()
