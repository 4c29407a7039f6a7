import numpy as np
import pytest

from commbench.models.crossover import Affine, crossings, crossover

RING, TREE = Affine(1764, 1.96875 / 45e3), Affine(168, 1.2302e-4)
MEET = (1764 - 168) / (1.2302e-4 - 1.96875 / 45e3)
RANGE = 8, 8 * 2**30


def test_two_lines_meet_where_the_formula_says():
    assert crossings(RING, TREE, *RANGE) == [pytest.approx(MEET)]
    general = crossings(lambda s: RING(s), lambda s: TREE(s), *RANGE)
    assert general == [pytest.approx(MEET, rel=1e-6)]


def test_no_crossing_outside_the_sizes_asked_nor_below_zero_nor_of_parallels():
    assert crossings(RING, TREE, 8, MEET / 2) == []
    assert crossings(Affine(10, 2e-4), Affine(20, 3e-4), *RANGE) == []
    assert crossings(Affine(10, 2e-4), Affine(20, 2e-4), *RANGE) == []


def test_all_crossings_of_arbitrary_times_are_listed():
    def wavy(size):
        return 100 * np.exp(0.1 * np.sin(np.log2(size)))

    found = crossings(wavy, lambda size: 100 + 0 * size, 8, 2.0**20)
    expected = 2 ** (np.pi * np.arange(1, 7))
    assert found == pytest.approx([size for size in expected if 8 < size < 2**20], rel=1e-6)


def test_a_jump_is_a_crossing():
    assert crossings(lambda s: np.where(s < 5000, 10.0, 30.0), lambda s: 20 + 0 * s, *RANGE) == [
        pytest.approx(5000, rel=1e-6)
    ]


def test_equal_over_a_stretch_counts_once():
    first = lambda s: np.where(s < 1024, 10.0, np.where(s < 4096, 20.0, 40.0))  # noqa: E731
    found = crossings(first, lambda s: 20 + 0 * s, 8, 2**20)
    assert len(found) == 1 and 1000 < found[0] < 4200


def launches(rng, line, spread, count=5):
    return [Affine(*(np.array(line) * np.exp(spread * rng.standard_normal(2)))) for _ in range(count)]


def test_launches_give_an_interval_around_the_crossing():
    rng = np.random.default_rng(1)
    told = crossover(launches(rng, RING, 0.03), launches(rng, TREE, 0.03), *RANGE)
    (crossing,) = told.crossings
    assert told.verdict == "crossover" and told.label == "5 launches"
    assert (crossing.below, crossing.above) == ("tree", "ring")
    assert crossing.low_bytes < crossing.size_bytes < crossing.high_bytes
    assert crossing.high_bytes / crossing.low_bytes < 1.5
    assert [who for _, _, who in told.regions] == ["tree", None, "ring"]


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = []
    for _ in range(200):
        told = crossover(launches(rng, RING, 0.03), launches(rng, TREE, 0.03), *RANGE)
        hits += [any(c.low_bytes <= MEET <= c.high_bytes for c in told.crossings)]
    assert 0.90 <= np.mean(hits) <= 0.99


def test_one_that_is_always_faster():
    rng = np.random.default_rng(3)
    slow = launches(rng, (4000, 3e-4), 0.01)
    assert crossover(launches(rng, RING, 0.01), slow, *RANGE).verdict == "ring always"
    assert crossover(slow, launches(rng, RING, 0.01), *RANGE).verdict == "tree always"


def test_what_launches_do_not_agree_on_is_not_determined():
    rng = np.random.default_rng(4)
    told = crossover(launches(rng, RING, 0.2), launches(rng, RING, 0.2), *RANGE)
    assert told.verdict == "not determined" and told.crossings == ()
    same = crossover([RING, RING], [RING, RING], *RANGE)
    assert same.verdict == "not determined"


def test_a_winner_at_some_sizes_alone_is_not_always():
    first = [lambda s, f=f: (20 + s * 1e-4) * (1 + f / np.sqrt(s)) for f in (-1, 1, -0.5)]
    second = [lambda s: 20 + s * 2e-4] * 3
    told = crossover(first, second, *RANGE, names=("a", "b"))
    assert told.verdict == "not determined"
    assert [who for _, _, who in told.regions] == [None, "a"]


def test_one_launch_is_labelled_and_has_an_interval_only_from_fits_with_a_size_left_out():
    bare = crossover([RING], [TREE], *RANGE)
    assert bare.label == "one launch, no interval"
    assert bare.crossings[0][:3] == (pytest.approx(MEET), None, None)
    rng = np.random.default_rng(5)
    left_out = launches(rng, RING, 0.002, 20), launches(rng, TREE, 0.002, 20)
    told = crossover([RING], [TREE], *RANGE, left_out=left_out)
    assert told.label == "within-launch only"
    assert told.crossings[0].low_bytes < MEET < told.crossings[0].high_bytes
