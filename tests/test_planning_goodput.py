"""Interruptions, checkpoints and what they leave of an MFU."""

import numpy as np
import pytest

from commbench.errors import UsageError
from commbench.planning.goodput import (
    LLAMA3,
    Interruptions,
    daly_interval_s,
    effective_mfu,
    goodput,
    young_interval_s,
)


def test_llama_3_was_interrupted_every_three_hours():
    assert round(LLAMA3.per_day, 1) == 7.8 and round(LLAMA3.hours_between, 1) == 3.1
    assert round(100 * effective_mfu(0.41, 0.90)) == 37
    twice = LLAMA3.on(32768)
    assert twice.per_day == pytest.approx(2 * LLAMA3.per_day) and LLAMA3.on(16384).hours_between == pytest.approx(
        LLAMA3.hours_between
    )


def test_young_and_daly():
    assert young_interval_s(60, 3600) == pytest.approx((2 * 60 * 3600) ** 0.5)
    # Rare interruptions: the same to first order; Daly's is shorter by the checkpoint itself.
    assert daly_interval_s(1, 1e8) == pytest.approx(young_interval_s(1, 1e8), rel=1e-3)
    assert daly_interval_s(100, 40) == 40


@pytest.mark.parametrize("checkpoint_s, between_s", [(10, 3600), (60, 11135), (300, 7200), (600, 3600)])
def test_dalys_interval_is_the_best_of_the_complete_model(checkpoint_s, between_s):
    best = daly_interval_s(checkpoint_s, between_s)
    at = [goodput(t, checkpoint_s, 300, between_s) for t in np.geomspace(best / 10, best * 10, 2001)]
    assert goodput(best, checkpoint_s, 300, between_s) >= max(at) * (1 - 1e-4)


def test_goodput_against_a_simulated_run():
    checkpoint, restart, between = 60.0, 600.0, 10_000.0
    interval = daly_interval_s(checkpoint, between)
    draw = np.random.default_rng(1)
    wall = done = 0.0
    for _ in range(20_000):  # segments: try until one passes without an interruption
        while True:
            failure = draw.exponential(between)
            if failure >= interval + checkpoint:
                wall += interval + checkpoint
                break
            wall += failure
            while (again := draw.exponential(between)) < restart:  # restarts are interrupted too
                wall += again
            wall += restart
        done += interval
    assert goodput(interval, checkpoint, restart, between) == pytest.approx(done / wall, rel=0.01)


def test_what_is_no_time():
    for wrong in ((0, 3600), (60, 0), (-1, 5)):
        with pytest.raises(UsageError, match="above 0 seconds"):
            daly_interval_s(*wrong)
    with pytest.raises(UsageError, match="0 seconds or more, not nan"):
        goodput(600, 30, float("nan"), 3600)
    assert goodput(600, 30, 1e9, 3600) == 0  # no restart ends before the next interruption
    assert Interruptions(1, 1, 8, "x").hours_between == 24
