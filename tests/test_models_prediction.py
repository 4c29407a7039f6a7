"""Predictions: intervals that hold, words for the distance, and a sentence where nothing can be said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic import SIZES, gather_us, ring_us, series

from commbench.errors import UsageError
from commbench.models.family import fit_equation, fit_family
from commbench.models.model import Model
from commbench.models.prediction import predict, predict_many

BY_NODE = [(4 * n, n) for n in (2, 4, 8, 16, 32)]
FURTHER = [(4 * n, n) for n in (64, 128)]


@pytest.fixture(scope="module")
def gather():
    return fit_family(series(gather_us, BY_NODE, noise=0.03, op="all_gather"))


@pytest.fixture(scope="module")
def ring():
    return fit_equation(series(ring_us, BY_NODE, noise=0.03), "all_reduce", "ring")


def test_intervals_of_an_envelope_hold_beyond_the_measured_ranks(gather):
    test = series(gather_us, FURTHER, noise=0.03, op="all_gather", seed=9)
    time_us, low_us, high_us = predict_many(gather, gather.regimes[0], test.ranks, test.nodes, test.size_bytes)
    assert np.mean((low_us <= test.time_us) & (test.time_us <= high_us)) >= 0.9
    assert np.median((high_us - low_us) / time_us / 2) < 0.2
    assert np.mean(np.abs(time_us / test.time_us - 1)) < 0.06


def test_intervals_within_the_measured_ranks_hold_as_often_as_they_say():
    held = []
    for seed in range(12):
        model = fit_equation(series(ring_us, BY_NODE, SIZES[::2], noise=0.03, seed=seed), "all_reduce", "ring")
        test = series(ring_us, [(48, 12)], SIZES[1::2], noise=0.03, seed=100 + seed)
        _, low_us, high_us = predict_many(model, model.regimes[0], test.ranks, test.nodes, test.size_bytes)
        held.append(np.mean((low_us <= test.time_us) & (test.time_us <= high_us)))
    assert 0.88 <= np.mean(held) < 1


@pytest.mark.parametrize(
    "ranks, size_bytes, label",
    [
        (64, 2**20, "interpolation"), (256, 2**20, "extrapolation 2 times"), (1024, 2**20, "extrapolation 8 times"),
        (4096, 2**20, "projection 32 times"), (64, 2**35, "extrapolation 4 times in size"),
        (4096, 2**35, "projection 32 times and 4 times in size"),
    ],
)  # fmt: skip
def test_the_word_says_how_far_a_prediction_reaches(ring, ranks, size_bytes, label):
    assert predict(ring, ranks, ranks // 4, size_bytes).label == label


def test_intervals_widen_with_distance(ring):
    widths = [(p.high_us - p.low_us) / p.time_us for p in (predict(ring, r, r // 4, 2**20) for r in (64, 256, 4096))]
    assert widths[0] < widths[1] < widths[2] and widths[2] > 1.5 * widths[0]


def test_launches_that_differ_widen_the_interval():
    quiet, loud = (
        predict(
            fit_equation(series(ring_us, BY_NODE, noise=0.01, launches=5, launch_sd=sd), "all_reduce", "ring"),
            64,
            16,
            2**20,
        )
        for sd in (0.0, 0.1)
    )
    assert (loud.high_us - loud.low_us) / loud.time_us > 3 * (quiet.high_us - quiet.low_us) / quiet.time_us


def test_the_sentence_says_what_a_prediction_rests_on(ring):
    text = predict(ring, 256, 64, 2**20).text
    assert text.startswith(f"extrapolation 2 times, from {5 * len(SIZES)} points on 8 to 128 ranks (4 ranks per node)")
    assert "launch-to-launch variation is not in the interval" in text and "on rank counts held out" in text


@pytest.mark.parametrize(
    "ranks, nodes, sentence",
    [
        (64, 8, r"nothing was measured with 8 ranks per node on several nodes \(measured: 4 ranks per node\)"),
        (4, 1, "nothing was measured with one node"),
        (9, 2, "cannot lie evenly"),
        (1, 1, "no place for a collective"),
    ],
)
def test_a_place_that_was_not_measured_is_refused(ring, ranks, nodes, sentence):
    with pytest.raises(UsageError, match=sentence):
        predict(ring, ranks, nodes, 2**20)


def test_one_rank_count_says_nothing_about_others():
    model = fit_family(series(gather_us, [(32, 8)], op="all_gather"))
    assert predict(model, 32, 8, 2**20).time_us == pytest.approx(gather_us(32, 8, 2.0**20), rel=0.05)
    with pytest.raises(UsageError, match="32 ranks were measured .* says nothing about 64"):
        predict(model, 64, 16, 2**20)


def test_a_size_of_nothing_is_refused(ring):
    with pytest.raises(UsageError, match="size 0 is none"):
        predict(ring, 64, 16, 0)


@pytest.mark.parametrize("which", ["gather", "ring"])
def test_a_model_survives_json(which, request):
    model = request.getfixturevalue(which)
    assert Model.from_json(json.loads(json.dumps(model.to_json(), allow_nan=False))) == model


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r["pieces"][0].update(values=[-1.0, -1.0, -1.0]),
        lambda r: r["pieces"][0].update(values=[1.0]),
        lambda r: r["pieces"][0].update(names=["base_us", "__class__", "beta_us_per_byte"]),
        lambda r: r.update(residual_log_95=[]),
        lambda r: r.update(replicates=[[1.0]]),
        lambda r: r.update(pieces=[]),
    ],
)
def test_a_damaged_model_is_refused(ring, damage):
    data = json.loads(json.dumps(ring.to_json()))
    damage(data["regimes"][0])
    with pytest.raises((KeyError, ValueError, TypeError)):
        Model.from_json(data)


def test_a_prediction_is_never_below_zero(ring):
    tiny = replace(ring.regimes[0], residual_log_95=(50.0,), holdout_log_95=())
    _, low_us, high_us = predict_many(ring, tiny, [64], [16], [2.0**20])
    assert 0 < low_us[0] < high_us[0] < np.inf
