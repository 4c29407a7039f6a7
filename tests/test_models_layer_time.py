"""The calls of a layer predicted from the collectives of its run."""

from dataclasses import replace

import pytest

from commbench.models.layer_time import collective_curves, predicted_comm_us
from commbench.results.records import Point, Sample

AT = "2026-01-01T00:00:00Z"


def row(op: str, size: int, us: float, **what) -> Sample:
    point = Point(op=op, backend="gloo", size_bytes=size, ranks=what.pop("ranks", 4), members=(0, 1, 2, 3), **what)
    return Sample(point, 1, AT, samples_us=(us,) * 8)


ROWS = [row(op, size, 10 + size / 1000 * scale) for op, scale in (("all_reduce", 2), ("all_gather", 1))
        for size in (1000, 4000, 16000, 64000, 256000)]  # fmt: skip
LAYER = replace(
    row("tensor_parallel", 80000, 900.0, kind="layer"),
    counted={"all_reduce": [4, 80000], "tp.all_gather": [2, 16000]}, wires={"": [4, 1], "tp": [4, 1]},
)  # fmt: skip


def test_calls_add_up():
    """4 all_reduces of 20,000 bytes at 10 + 40 us, 2 all_gathers of 8,000 at 10 + 8."""
    assert predicted_comm_us(LAYER, collective_curves(ROWS)) == pytest.approx(4 * 50 + 2 * 18, rel=1e-3)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"counted": {"all_reduce": [1, 1_000_000]}},  # larger than anything measured
        {"counted": {"all_reduce": [1, 100]}},
        {"wires": {"": [2, 1], "tp": [4, 1]}},  # a group of another size
        {"wires": {"": [4, 2], "tp": [4, 1]}},
        {"counted": {"send": [3, 6000]}},
        {"counted": {}},
    ],
)
def test_what_was_not_measured_is_not_predicted(spoilt):
    assert predicted_comm_us(replace(LAYER, **spoilt), collective_curves(ROWS)) is None


def test_only_plain_rows_make_curves():
    forced = [replace(r, point=replace(r.point, algorithm="own:ring")) for r in ROWS]
    assert collective_curves(forced) == {} and collective_curves(ROWS[:3]) == {}
