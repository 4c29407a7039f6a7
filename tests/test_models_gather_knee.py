"""The knee of all_gather buckets: found where a curve has one, and said where a run does not show it."""

import pytest

from commbench.models.gather_knee import gather_knees, knee, step_knees
from commbench.results.records import Point, Sample

SIZES = [2**power for power in range(10, 27)]


def _gather(elements, time_us, **given):
    point = Point("all_gather", "gloo", elements * 4, ranks=4, world_size=4, timing="streaming", **given)
    return Sample(point, 1, "", samples_us=(time_us,) * 7)


@pytest.mark.parametrize("power", [14, 18, 22])
def test_the_knee_of_latency_and_bandwidth(power):
    """alpha + beta n costs 10 % more than beta n where n = 10 alpha / beta: 2^power by construction."""
    alpha = 2**power / 10 * 0.999
    found = gather_knees([_gather(n, alpha + n) for n in SIZES])
    assert list(found) == [("gloo", "all", 4, "float32", "streaming")]
    # The largest bucket of the curve has a little latency too, so the knee may lie one size lower.
    assert next(iter(found.values())).elements in (2**power, 2 ** (power - 1))


def test_what_a_run_does_not_show_is_said():
    assert "below 1,024 elements" in knee({n: 1.0 for n in SIZES}).reason
    assert "above 67,108,864 elements" in knee({n: 1e9 / n for n in SIZES}).reason
    assert "3 bucket sizes show no knee" in knee({1: 3.0, 2: 2.0, 4: 1.0}).reason
    assert gather_knees([_gather(1024, 5.0)]) == {}


def test_groups_stay_apart_and_wrong_rows_out():
    rows = [_gather(n, 100 + n, group=group) for n in SIZES for group in ("a", "b")]
    rows.append(Sample(rows[0].point, 1, "", samples_us=(1e-3,), status="wrong"))
    found = gather_knees(rows)
    assert len(found) == 2 and len({each.elements for each in found.values()}) == 1


def test_a_dip_does_not_hide_a_slow_size_above_it():
    assert knee({1: 4.0, 2: 1.0, 4: 3.0, 8: 1.0, 16: 1.0, 32: 1.0}).elements == 8


def test_steps_over_their_bucket():
    rows = [Sample(Point("data_parallel", "gloo", 8, kind="layer", params={"bucket": n, "zero": zero}), 1, "",
                   samples_us=(1e6 / n + 1000.0 * zero,)) for n in SIZES for zero in (1, 3)]  # fmt: skip
    found = step_knees(rows)
    assert len(found) == 2
    (one, three) = (found["gloo", "all", (("zero", zero),)].elements for zero in (1, 3))
    assert one == 16384 and three == 4096
