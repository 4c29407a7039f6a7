"""Forms are chosen by rank counts they did not see, and fits say of each parameter what the rows tell of it."""

from pathlib import Path

import numpy as np
import pytest
from synthetic import BASE, BETA, INTER, INTRA, SIZES, gather_us, ring_us, series

from commbench.errors import MeasureError, UsageError
from commbench.models.equations import phases, terms
from commbench.models.family import fit_equation, fit_family
from commbench.models.prediction import predict_many
from commbench.models.selection import choose, cuts, forms, hold_out
from commbench.models.table import read_series

DATA = Path(__file__).parent / "data" / "perlmutter_a100_nccl.csv"
BY_NODE = [(4 * n, n) for n in (2, 4, 8, 16, 32)]


def told(model, where="several nodes"):
    return {p.name: p for p in model.parameters if p.where == where}


def test_training_never_sees_what_it_is_held_against():
    table = series(gather_us, BY_NODE, op="all_gather")
    assert cuts(table) == [16, 32, 64]
    _, held = choose("all_gather", [table])
    assert [sorted(set(h.rows.ranks.tolist())) for h in held[0]] == [[32, 64], [64, 128], [128]]
    assert [sorted(set(h.factor.tolist())) for h in held[0]] == [[2, 4], [2, 4], [2]]


def test_a_form_that_fits_better_but_predicts_worse_is_not_chosen():
    """Times of a tree: a ring in many pieces follows the training, and fails on more ranks."""

    def tree_us(ranks, nodes, size_bytes):
        return 15 + 2 * 9 * np.log2(nodes) + 2e-4 * 2 * size_bytes

    table = series(tree_us, BY_NODE, noise=0.03)
    form, held = choose("all_reduce", [table])
    assert "tree" in form and np.mean([h.mape for h in held[0]]) < 0.04
    assert form[3] == "" or form[0] == "minimum"
    training = table.select(table.ranks <= 32)
    ring = forms("all_reduce", training)["switch", "", 0, "ring", 3]

    assert hold_out("all_reduce", ring, table, 32).mape > 0.1


def test_the_parameters_of_a_ring_are_recovered_with_intervals():
    table = series(ring_us, noise=0.02, launches=5, launch_sd=0.03)
    model = fit_equation(table, "all_reduce", "own:ring")
    found = told(model)
    true = {"base_us": BASE, "alpha_intra_us": INTRA, "alpha_inter_us": INTER}
    true |= {f"beta_us_per_byte[g={g}]": beta for g, beta in BETA.items()}
    for name, value in true.items():
        assert found[name].value == pytest.approx(value, rel=0.06), name
        assert found[name].low < found[name].value < found[name].high and "5 launches" in found[name].note
    assert model.regimes[0].launch_sd_log == pytest.approx(0.03, abs=0.02)


def test_intervals_over_launches_hold_the_truth_as_often_as_they_say():
    """Nominal 95 %: of 80 trials 70 to 80 (the chance of fewer than 70 is below 1 in 1000)."""
    hits = 0
    for trial in range(80):
        table = series(ring_us, BY_NODE[:3], SIZES[::3], noise=0.02, launches=5, launch_sd=0.03, seed=trial)
        beta = told(fit_equation(table, "all_reduce", "ring"))["beta_us_per_byte"]
        hits += beta.low <= BETA[4] <= beta.high
    assert hits >= 70
    assert beta.high - beta.low < 0.2 * BETA[4]


def test_with_one_value_of_ranks_per_node_the_two_latencies_are_not_determined():
    found = told(fit_equation(series(ring_us, BY_NODE, noise=0.01), "all_reduce", "ring"))
    assert found["alpha_intra_us"].value is None and found["alpha_inter_us"].value is None
    assert "4 ranks per node throughout" in found["alpha_intra_us"].note
    assert found["alpha_node_us"].value == pytest.approx(INTER + 3 * INTRA, rel=0.03)


def test_with_one_rank_count_base_and_steps_are_one_figure():
    found = told(fit_equation(series(ring_us, [(32, 8)], noise=0.01), "all_reduce", "ring"))
    assert found["base_us"].value is None and "latency_us" in found["base_us"].note
    assert found["latency_us"].value == pytest.approx(BASE + 2 * 24 * INTRA + 2 * 7 * INTER, rel=0.03)


def test_a_cost_that_never_shows_is_not_determined():
    """Sizes so large that no latency is to be seen: none is printed."""
    found = told(fit_equation(series(ring_us, BY_NODE, 2.0 ** np.arange(31, 36), noise=0.01), "all_reduce", "ring"))
    assert found["base_us"].value is None and found["base_us"].note.startswith("ring, not determined")
    assert found["beta_us_per_byte"].value == pytest.approx(BETA[4], rel=0.03)


def hierarchical_us(ranks, nodes, size_bytes, overlap=0.6):
    names, columns = terms("all_reduce", "hierarchical", ranks, nodes, size_bytes)
    kinds, values = np.array(phases("all_reduce", "hierarchical", names)), np.array([20, 1, 2e-5, 6, 4e-5])
    intra, inter = (columns[:, kinds == kind] @ values[kinds == kind] for kind in ("intra", "inter"))
    return 20 + np.maximum(intra, inter) + (1 - overlap) * np.minimum(intra, inter)


def test_the_overlap_of_two_phases_is_fitted():
    places = [(g * n, n) for g in (2, 8) for n in (2, 8)]
    model = fit_equation(series(hierarchical_us, places, SIZES[::3], noise=0.005), "all_reduce", "hierarchical")
    found = told(model)
    assert found["overlap"].value == pytest.approx(0.6, abs=0.051)
    assert found["overlap"].low <= 0.6 <= found["overlap"].high
    assert found["beta_intra_us_per_byte"].value == pytest.approx(2e-5, rel=0.1)


def test_one_node_and_several_are_fitted_apart():
    places = [(2, 1), (4, 1), (8, 1), *BY_NODE[:3]]
    table = series(lambda r, n, s: gather_us(r, n, s) * np.where(n == 1, 0.1, 1), places, noise=0.01, op="all_gather")
    model = fit_family(table)
    assert [regime.name for regime in model.regimes] == ["one node", "4 ranks per node"]
    assert told(model, "one node")["alpha_intra_us"].value == pytest.approx(0.25, rel=0.15)


def test_rank_counts_of_a_node_that_no_ring_joins_are_fitted_each():
    """Two GPUs over a slow link, four over a fast one, as on Perlmutter."""
    table = series(lambda r, n, s: 8.0 + s * np.where(r == 2, 8e-6, 3e-6), [(2, 1), (4, 1)], op="all_gather")
    model = fit_family(table)
    assert [regime.name for regime in model.regimes] == ["one node, 2 ranks", "one node, 4 ranks"]
    assert all(regime.mape < 0.01 for regime in model.regimes)


def test_rank_counts_that_no_form_holds_for_are_said_to_be_fitted_each():
    table = series(lambda r, n, s: (8.0 + s * 3e-6) * np.where(r % 8 == 4, 40, 1), [(2, 1), (4, 1), (8, 1), (12, 1)])
    model = fit_family(table)
    assert [len(regime.ranks) for regime in model.regimes] == [1, 1, 1, 1]
    assert {r.chosen_by for r in model.regimes} == {"BIC: no form holds for all 4 rank counts, so each by itself"}
    assert all(p.name == "algorithm" and p.value is None for p in model.parameters)


@pytest.mark.parametrize(
    "change, error, sentence",
    [
        (dict(sizes=[8.0, 64.0]), MeasureError, "10 points at 2 sizes of 2 or more ranks; a fit needs 6 points at 3"),
        (dict(places=[(1, 1)]), MeasureError, "one node: not fitted, 0 points"),
        (dict(op="all_to_all_v"), UsageError, "no model over ranks for all_to_all_v"),
        (dict(time_of=lambda r, n, s: np.full(len(r), np.nan)), UsageError, "times above 0"),
    ],
)
def test_too_little_is_one_sentence(change, error, sentence):
    table = series(**{"time_of": gather_us, "places": BY_NODE, "op": "all_gather"} | change)
    with pytest.raises(error, match=sentence):
        fit_family(table)


@pytest.mark.parametrize("op, bar", [("all_gather", 0.09), pytest.param("all_reduce", 0.08, marks=pytest.mark.full)])
def test_512_gpus_are_predicted_from_128(op, bar):
    """Perlmutter, 4 GPUs a node: form, parameters and intervals from at most 128 GPUs."""
    (table,) = [t for t in read_series([DATA]) if t.label["op"] == op]
    table = table.select((table.per_node == 4) & (table.nodes > 1))
    test = table.select(table.ranks > 128)
    model = fit_family(table.select(table.ranks <= 128))
    time_us, low_us, high_us = predict_many(model, model.regimes[0], test.ranks, test.nodes, test.size_bytes)
    assert len(test) == 38
    assert np.mean(np.abs(time_us / test.time_us - 1)) <= bar
    assert np.mean((low_us <= test.time_us) & (test.time_us <= high_us)) >= 0.9
    assert np.median((high_us - low_us) / 2 / time_us) <= 0.3
