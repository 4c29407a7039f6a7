"""Pipeline schedules: checked, simulated against what is published, and found wrong where they are spoilt."""

from collections import deque
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from commbench.schedules.stages import FORWARD, INPUT, WEIGHT, Action, StageSchedule
from commbench.schedules.stages_catalogue import NAMES, build, problem
from commbench.schedules.stages_check import check
from commbench.schedules.stages_formulas import bubble, copies_of_parameters, peak
from commbench.schedules.stages_messages import posts
from commbench.schedules.stages_simulate import Costs, Deadlock, peak_activations, simulate

UNEVEN = Costs(1.0, 1.2, 0.8)
SIZES = [(p, m) for p in (4, 8, 16) for m in (p, 2 * p, 3 * p, 64) if m % p == 0]
ALL = [(name, p, m) for name in NAMES for p, m in [*SIZES, (1, 4), (2, 4), (3, 9), (5, 3)] if not problem(name, p, m)]
_EXACT_UNEVEN = ("gpipe", "1f1b", "interleaved", "zb_h1")


@pytest.mark.parametrize("name, p, m", ALL)
def test_each_schedule_is_whole_and_its_messages_meet(name, p, m):
    check(build(name, p, m))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [4, 8, 16])
def test_bubbles_and_peaks_are_those_published(name, p):
    for m in (2 * p, 3 * p, 64):
        chunks = (2, 4) if name == "interleaved" else (2,)
        for v in chunks if not problem(name, p, m) else ():
            schedule = build(name, p, m, v)
            for costs in (Costs(), UNEVEN) if name in _EXACT_UNEVEN else (Costs(),):
                timeline = simulate(schedule, costs)
                wanted = bubble(name, p, m, costs, v)
                assert timeline.bubble == pytest.approx(np.full(p, wanted), abs=1e-9), (m, v, costs)
                assert timeline.busy == pytest.approx(np.full(p, m * (costs.forward + costs.input + costs.weight)))
            assert max(peak_activations(schedule)) == pytest.approx(peak(name, p, m, v))


@pytest.mark.parametrize(
    "name, p, m, costs, wanted",
    [  # F = B = W = 1 unless given; from the papers and their repositories by hand
        ("gpipe", 4, 8, Costs(), 9), ("1f1b", 4, 8, Costs(), 9), ("1f1b", 8, 24, Costs(), 21),
        ("zb_h1", 4, 8, Costs(), 3), ("zb_h1", 8, 24, Costs(), 7), ("zb_h1", 4, 8, UNEVEN, 4.2),
        ("interleaved", 4, 8, Costs(), 4.5), ("interleaved", 8, 24, Costs(), 10.5),
        ("zb_v", 4, 8, Costs(), 1.5), ("zb_v", 8, 24, Costs(), 3.5),
        ("dualpipe", 4, 8, Costs(), 2), ("dualpipe", 8, 24, Costs(), 6),
        ("dualpipe", 4, 8, Costs(overlapped=2.4), 1.4), ("dualpipe", 8, 24, Costs(overlapped=2.4), 4.2),
        ("dualpipe_v", 4, 8, Costs(), 3), ("dualpipe_v", 8, 24, Costs(), 7),
    ],
)  # fmt: skip
def test_bubbles_in_numbers(name, p, m, costs, wanted):
    assert simulate(build(name, p, m), costs).bubble.max() == pytest.approx(wanted)


def test_zb_v_has_no_bubble_by_span_and_only_where_f_b_and_w_are_alike():
    for p, m, wanted in ((4, 8, 1.2), (8, 24, 2.8)):
        schedule = build("zb_v", p, m)
        assert simulate(schedule, Costs()).bubble_of_span == pytest.approx(np.zeros(p), abs=1e-9)
        assert simulate(schedule, UNEVEN).bubble_of_span.max() == pytest.approx(wanted)
        assert bubble("zb_v", p, m, UNEVEN) is None


def test_a_late_w_is_no_help_where_it_is_longer_than_f():
    """The formula of ZB-H1 holds for a W that fits into the gaps; the simulation says what happens else."""
    costs = Costs(weight=1.5)
    assert bubble("zb_h1", 4, 8, costs) == pytest.approx(1.5)
    assert simulate(build("zb_h1", 4, 8), costs).bubble.max() == pytest.approx(3.0)


def test_f_and_b_that_are_no_one_cell_halve_dualpipe_v_s_bubble():
    """The published formula counts on cells whose results appear at their end."""
    schedule = build("dualpipe_v", 4, 8)
    apart = replace(schedule, rows=tuple(tuple((a,) for cell in row for a in cell) for row in schedule.rows))
    assert simulate(apart, Costs()).bubble.max() == pytest.approx(1.5)


def test_peaks_by_rank():
    assert peak_activations(build("1f1b", 4, 8)) == [4, 3, 2, 1]
    assert peak_activations(build("zb_h1", 4, 8)) == [4, 4, 4, 4]
    assert peak_activations(build("gpipe", 4, 8)) == [8, 8, 8, 8]
    assert peak_activations(build("interleaved", 4, 8, 2)) == [5.5, 4.5, 3.5, 2.5]
    assert [copies_of_parameters(name) for name in ("1f1b", "zb_v", "dualpipe", "dualpipe_v")] == [1, 1, 2, 1]


def slow_makespan(schedule: StageSchedule, costs) -> Fraction:
    """By a clock of small ticks that shares no code with the simulator: a rank begins what it can, when it can."""
    tick = Fraction(1, 20)
    length = {kind: round(Fraction(value).limit_denominator(10) * Fraction(schedule.share) / tick)
              for kind, value in (("F", costs.forward), ("B", costs.input), ("W", costs.weight),
                                  ("BW", costs.input + costs.weight))}  # fmt: skip
    message = round(Fraction(costs.message).limit_denominator(10) / tick)
    queues = [deque(row) for row in schedule.rows]
    running, arrived, now = [None] * schedule.ranks, {}, 0  # arrived: (what, stage, micro-batch, rank) -> tick
    n = schedule.chain_stages
    while any(queues) or any(running):
        for rank in range(schedule.ranks):
            if running[rank] and running[rank][0] <= now:
                for kind, i, stage in running[rank][1]:
                    if kind in "FW":
                        to = [(kind, i, stage, stage)] + [(kind, i, stage, stage + 1)] * ((stage + 1) % n != 0)
                    else:
                        to = [("B", i, stage, stage)] + [("B", i, stage, stage - 1)] * (stage % n != 0)
                    for what, number, made_by, user in to:
                        away = schedule.rank_of[user] != rank
                        arrived[what, number, made_by, user] = now + message * away
                running[rank] = None
        for rank in range(schedule.ranks):
            if running[rank] is None and queues[rank]:
                needs = []
                for kind, i, stage in queues[rank][0]:
                    if kind == "F":
                        needs += [("F", i, stage - 1, stage)] * (stage % n != 0)
                    elif kind == "W":
                        needs.append(("B", i, stage, stage))
                    else:
                        needs += [("F", i, stage, stage)] + [("B", i, stage + 1, stage)] * ((stage + 1) % n != 0)
                if all(arrived.get(need, now + 1) <= now for need in needs):
                    cell = queues[rank].popleft()
                    running[rank] = now + sum(length[kind] for kind, _, _ in cell), cell
        now += 1
    return (now - 1) * tick


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("costs", [Costs(), Costs(1.0, 1.2, 0.8, 0.3), Costs(2.0, 1.0, 0.5, 1.1)])
def test_the_simulator_agrees_with_a_slow_clock(name, costs):
    schedule = build(name, 4, 8)
    assert simulate(schedule, costs).makespan == pytest.approx(float(slow_makespan(schedule, costs)))


def lockstep(schedule: StageSchedule) -> bool:
    """True where the schedule ends when each rank runs its cells and messages strictly one after another, and a message
    is over only when both its ends are at it: the strictest network there is."""
    table = posts(schedule)
    lists = []
    for rank, row in enumerate(schedule.rows):
        steps = deque()
        for k in range(len(row) + 1):
            steps += table[rank][k]
            steps += [None] * (k < len(row))
        lists.append(steps)
    moved = True
    while moved:
        moved = False
        for steps in lists:
            while steps and steps[0] is None:
                steps.popleft()
                moved = True
            if steps and (other := lists[steps[0].src if lists[steps[0].dst] is steps else steps[0].dst]):
                if other[0] == steps[0]:
                    steps.popleft()
                    other.popleft()
                    moved = True
    return not any(lists)


@pytest.mark.parametrize("name, p, m", [case for case in ALL if case[1] <= 8])
def test_no_rank_waits_in_a_circle_even_where_messages_block(name, p, m):
    assert lockstep(build(name, p, m))


def _spoilt(change):
    schedule = build("1f1b", 3, 4)
    rows = [list(row) for row in schedule.rows]
    change(rows)
    return replace(schedule, rows=tuple(map(tuple, rows)))


def _swap(rank, i, j):
    def change(rows):
        rows[rank][i], rows[rank][j] = rows[rank][j], rows[rank][i]

    return change


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda rows: rows[1].pop(), "micro-batch 3 on stage 1: 1 F, 0 B, 0 W, 0 BW"),
        (lambda rows: rows[1].append((Action(FORWARD, 0, 1),)), "micro-batch 0 on stage 1: 2 F"),
        (lambda rows: rows[0].append((Action(FORWARD, 9, 0),)), "F9@0 is no part of the schedule"),
        (lambda rows: rows[0].append((Action(FORWARD, 0, 2),)), "F0@2 stands on rank 0; its stage is on rank 2"),
        (lambda rows: rows[2].__setitem__(1, (Action(INPUT, 0, 2),)), "1 F, 1 B, 0 W, 0 BW"),
        (lambda rows: rows[0].__setitem__(0, (Action(FORWARD, 0, 0), Action(FORWARD, 1, 0))), "F0@0&F1@0 in one cell"),
    ],
)
def test_what_is_wrong_is_said(change, said):
    with pytest.raises(ValueError, match=said):
        check(_spoilt(change))


def test_a_backward_before_its_forward_is_a_deadlock():
    with pytest.raises(Deadlock, match="1f1b stops with .*rank 2 at BW0@2"):
        check(_spoilt(_swap(2, 0, 1)))


def test_w_needs_its_b():
    schedule = build("zb_h1", 2, 2)
    rows = [list(row) for row in schedule.rows]
    i, j = (rows[0].index((Action(kind, 0, 0),)) for kind in (INPUT, WEIGHT))
    rows[0][i], rows[0][j] = rows[0][j], rows[0][i]
    with pytest.raises(Deadlock, match="rank 0 at W0@0"):
        check(replace(schedule, rows=tuple(map(tuple, rows))))


@pytest.mark.parametrize(
    "name, p, m, chunks, said",
    [
        ("zb", 4, 8, 2, "'zb' is none of gpipe, 1f1b"),
        ("1f1b", 0, 8, 2, "1 rank or more"),
        ("interleaved", 4, 6, 2, "must be divided by 4, not 6"),
        ("interleaved", 4, 8, 1, "2 stages or more on each rank"),
        ("dualpipe", 3, 8, 2, "must be even, not 3 and 8"),
        ("dualpipe", 4, 6, 2, "dualpipe on 4 ranks needs 8 micro-batches or more, not 6"),
        ("dualpipe_v", 4, 7, 2, "needs 8 micro-batches or more, not 7"),
        ("gpipe", 4096, 4096, 2, "more than 400000 cells"),
    ],
)
def test_what_cannot_be_is_said(name, p, m, chunks, said):
    assert said in problem(name, p, m, chunks)
    with pytest.raises(ValueError):
        build(name, p, m, chunks)
