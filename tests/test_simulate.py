"""The simulator against a slow one that shares no code with it, against formulas, and its short form against its long one."""

import json
from collections import defaultdict
from dataclasses import replace

import pytest

from commbench.cli import main
from commbench.errors import UsageError
from commbench.fabrics import load_fabric
from commbench.schedules.catalogue import BY_NODE, SCHEDULES, build
from commbench.schedules.closed_forms import closed_form_us, uniform_terms
from commbench.schedules.counting import count
from commbench.schedules.schedule import Block, Schedule, step
from commbench.schedules.simulate import chunk_bytes, simulate

H100 = replace(load_fabric("h100-8x400g"), gamma_us_per_byte=1.7e-6)  # a reduction cost that no other term hides
SHARED = replace(H100, nics_per_node=3)  # three ranks, three ranks and two ranks share a NIC
SLOW_INSIDE = replace(H100, intra=H100.inter, inter=H100.intra)
RACK = replace(H100, ranks_per_node=4, nics_per_node=2, domain_ranks=12)
ALONE = replace(H100, ranks_per_node=1, nics_per_node=1, domain_ranks=1)  # every hop is between nodes
TOGETHER = replace(H100, ranks_per_node=600, nics_per_node=600, domain_ranks=600)  # none is
FABRICS = {
    "h100": H100, "shared": SHARED, "slow_inside": SLOW_INSIDE, "rack": RACK, "alone": ALONE, "together": TOGETHER,
}  # fmt: skip
ALL = [(op, name) for op, names in SCHEDULES.items() for name in names]
SIZE = 1e6 + 7  # no multiple of any number of ranks
UP_TO_64 = range(1, 65)
TO_512 = (96, 100, 127, 128, 192, 255, 256, 257, 384, 511, 512)


def built(op, name, n, per_node=1, pieces=3):
    """The schedule, None where it does not exist for so many ranks."""
    if (op, name) in BY_NODE and n % per_node:
        return None
    return build(op, name, n, per_node, pieces)


def per_node_of(fabric, n):
    """Ranks a node for two-level schedules: the domain's, or any divisor where the fabric has one kind of hop."""
    if fabric in (ALONE, TOGETHER):
        return next(g for g in (4, 3, 2, 1) if n % g == 0)
    return min(n, fabric.domain_ranks)


def slow_simulation(schedule, fabric, size_bytes):
    """(time, bytes by class, bytes and busy time by resource, bytes sent by rank) from dense steps, one message after
    another."""
    n, ended, sent = schedule.n_ranks, defaultdict(float), defaultdict(float)
    of_class, of_resource, busy = defaultdict(float), defaultdict(float), defaultdict(float)
    chunk = size_bytes * (n if schedule.op == "all_to_all" else 1) / schedule.n_chunks
    for one in schedule.steps():
        sizes, added = defaultdict(float), defaultdict(float)
        for src, dst, chunks, adds in zip(one.src, one.dst, one.count, one.reduce):
            sizes[int(src), int(dst)] += chunks * chunk
            added[int(src), int(dst)] += chunks * chunk * bool(adds)
        load, uses, link, adding = defaultdict(float), {}, {}, defaultdict(float)
        for (src, dst), amount in sizes.items():
            kind = "intra" if src // fabric.domain_ranks == dst // fabric.domain_ranks else "inter"
            kind = "in_switch" if n in (src, dst) else kind
            link[src, dst] = getattr(fabric, kind)
            sent[src] += amount
            uses[src, dst] = []
            if kind != "inter":
                uses[src, dst] = [(side, rank) for side, rank in (("send", src), ("receive", dst)) if rank < n]
            else:
                for side, rank in (("out", src), ("in", dst)):
                    node, local = divmod(rank, fabric.ranks_per_node)
                    uses[src, dst].append((side, node, local * fabric.nics_per_node // fabric.ranks_per_node))
            of_class[kind] += amount
            for resource in uses[src, dst]:
                us = amount / link[src, dst].bandwidth_GBps / 1e3
                load[resource] += us
                busy[resource] += us
                of_resource[resource] += amount
            adding[dst] += fabric.gamma_us_per_byte * added[src, dst] * (dst < n)
        before = dict(ended)
        for src, dst in sizes:
            start = max(before.get(src, 0.0), before.get(dst, 0.0))
            end = start + link[src, dst].latency_us + max(load[resource] for resource in uses[src, dst])
            ended[src] = max(ended[src], end)
            ended[dst] = max(ended[dst], end + (adding[dst] if added[src, dst] else 0))
    return max(ended.values(), default=0.0), of_class, of_resource, busy, sent


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("op, name", ALL)
def test_it_equals_a_slow_simulator_that_goes_message_by_message(op, name, fabric):
    fabric = FABRICS[fabric]
    for n in (1, 2, 3, 5, 8, 12, 13, 16, 21, 24, 32):
        schedule = built(op, name, n, per_node_of(fabric, n))
        if schedule is None or (schedule.switch and n > fabric.domain_ranks):
            continue
        time_us, of_class, of_resource, busy, sent = slow_simulation(schedule, fabric, SIZE)
        result = simulate(schedule, fabric, SIZE)
        assert result.time_us == pytest.approx(time_us, rel=1e-9)
        assert result.link_bytes == pytest.approx(of_class, rel=1e-9)
        assert result.n_steps == sum(1 for _ in schedule.steps())
        assert result.rank_bytes == pytest.approx(max(sent[r] for r in range(n)), rel=1e-9)
        if busy:
            assert result.busiest.share == pytest.approx(max(busy.values()) / time_us, rel=1e-9)
            word, number, *nic = result.busiest.name.split()
            side = {"sending": "send", "receiving": "receive"}.get(nic[-1], nic[-1])
            resource = (side, int(number)) if word == "rank" else (side, int(number), int(nic[1]))
            assert busy[resource] == pytest.approx(max(busy.values()), rel=1e-9)
            assert result.busiest.bytes == pytest.approx(of_resource[resource], rel=1e-9)
        else:
            assert result.busiest is None and n == 1


@pytest.mark.parametrize("op, name", ALL)
def test_it_equals_the_closed_form(op, name):
    if name in ("tree", "hierarchical_tree"):
        pytest.skip("the number of its steps has no formula; it is held against the slow simulator")
    for n in (*UP_TO_64, *TO_512):
        if op == "all_to_all" and n in (255, 257, 384, 511) or name == "chain" and 128 < n < 511:
            continue  # slow
        for fabric in (ALONE, TOGETHER):
            g = per_node_of(fabric, n)
            pieces = (1, 3, 8)[n % 3]
            formula = closed_form_us(op, name, n, SIZE, fabric, g, pieces)
            if name == "nvls" and fabric is ALONE and n > 1:
                assert formula is None
                continue
            assert simulate(built(op, name, n, g, pieces), fabric, SIZE).time_us == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("fabric", ["h100", "shared", "slow_inside", "rack"])
@pytest.mark.parametrize(
    "op, name",
    [("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"),
     ("all_reduce", "rail_ring"), ("all_reduce", "hierarchical"), ("all_to_all", "two_level")],
)  # fmt: skip
def test_it_equals_the_closed_form_of_two_link_classes(op, name, fabric):
    fabric = FABRICS[fabric]
    for n in (*UP_TO_64, *TO_512):
        if name != "ring" and n > fabric.domain_ranks and n % fabric.domain_ranks:
            continue
        g = min(n, fabric.domain_ranks)
        formula = closed_form_us(op, name, n, SIZE, fabric, g)
        assert simulate(built(op, name, n, g), fabric, SIZE).time_us == pytest.approx(formula, rel=1e-9)


def test_there_is_no_formula_where_two_link_classes_mix():
    assert closed_form_us("all_reduce", "rabenseifner", 16, SIZE, H100) is None
    assert closed_form_us("all_reduce", "hierarchical", 16, SIZE, H100, per_node=4) is None
    assert uniform_terms("all_reduce", "tree", 8, SIZE) is None


def test_the_ring_formula_is_the_textbooks():
    a, b, n = TOGETHER.intra.latency_us, 1 / 370e3, 64
    textbook = 2 * (n - 1) * (a + SIZE / n * b) + (n - 1) / n * SIZE * 1.7e-6
    assert closed_form_us("all_reduce", "ring", n, SIZE, TOGETHER) == pytest.approx(textbook, rel=1e-12)


@pytest.mark.parametrize("op, name", ALL)
def test_a_tree_or_any_other_schedule_takes_no_longer_than_all_its_steps(op, name):
    if name == "nvls":
        return
    for n in (2, 7, 33, 64, 128):
        schedule = built(op, name, n, 1)
        biggest = max(
            max(counts.values()) * chunk_bytes(schedule, SIZE) for counts in map(_chunks_by_port, schedule.steps())
        )
        slowest = H100.intra.latency_us + biggest * (1 / 370e3 + 1.7e-6)
        assert simulate(schedule, TOGETHER, SIZE).time_us <= schedule.n_steps * slowest * (1 + 1e-9)


def _chunks_by_port(one):
    ports = defaultdict(int)
    for src, dst, chunks in zip(one.src.tolist(), one.dst.tolist(), one.count.tolist()):
        ports["send", src] += chunks
        ports["receive", dst] += chunks
    return ports


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("op, name", ALL)
def test_short_equals_long(op, name, fabric):
    """One period of ranks and one repetition stand for all of them."""
    fabric = FABRICS[fabric]
    for n in (17, 36, 40, 64, 72, 96):
        schedule = built(op, name, n, per_node_of(fabric, n), pieces=20)
        if schedule is None or (schedule.switch and n > fabric.domain_ranks):
            continue
        short, long = simulate(schedule, fabric, SIZE), simulate(schedule, fabric, SIZE, long=True)
        assert short.time_us == pytest.approx(long.time_us, rel=1e-9)
        assert short.link_bytes == pytest.approx(long.link_bytes, rel=1e-9)
        assert short.rank_bytes == pytest.approx(long.rank_bytes, rel=1e-9)
        assert (short.busiest.share, short.busiest.bytes) == pytest.approx(
            (long.busiest.share, long.busiest.bytes), rel=1e-9
        )


@pytest.mark.full
@pytest.mark.parametrize("op, name", ALL)
def test_short_equals_long_up_to_a_thousand_ranks(op, name):
    for n in (255, 256, 512, 1000):
        if op == "all_to_all" and n > 256:
            continue
        for fabric in (H100, SHARED):
            schedule = built(op, name, n, 8)
            if schedule is None or schedule.switch:
                continue
            long = simulate(schedule, fabric, SIZE, long=True).time_us
            assert simulate(schedule, fabric, SIZE).time_us == pytest.approx(long, rel=1e-9)


def test_a_slow_link_sets_the_pace_only_once_its_delay_has_come_round():
    """Ranks start at different times: the first repetitions are not like the later ones, and are not multiplied."""
    late = Block((step(0, 1, first=0),), times=40)  # ranks 0 and 1 are 40 messages late
    ring = build("all_gather", "ring", 64).blocks
    schedule = Schedule("all_gather", "late", 64, 64, (late, *ring))
    fabric = replace(H100, intra=replace(H100.intra, latency_us=3.9))
    short, long = simulate(schedule, fabric, SIZE), simulate(schedule, fabric, SIZE, long=True)
    assert short.time_us == pytest.approx(long.time_us, rel=1e-9)
    unlike = simulate(Schedule("all_gather", "ring", 64, 64, ring), fabric, SIZE).time_us
    assert short.time_us > unlike + 30 * 3.9


@pytest.mark.parametrize("op, name", ALL)
def test_bytes_are_those_that_the_schedule_counts(op, name):
    n, elements = 24, 24 * 16 * 3
    if name == "nvls":
        n, elements = 8, 64
    schedule = built(op, name, n, 8)
    counted = count(schedule, elements, 8)
    vector = op in ("all_reduce", "broadcast")
    result = simulate(schedule, H100, elements if vector else elements * n)
    total, between = counted.sent.sum(), counted.sent_between_nodes.sum()
    assert sum(result.link_bytes.values()) == pytest.approx(total, rel=1e-9)
    assert result.link_bytes.get("inter", 0) == pytest.approx(between, rel=1e-9)
    assert result.rank_bytes == pytest.approx(counted.sent[:n].max(), rel=1e-9)


def _one(*rows, n=16, op="all_reduce"):
    """A schedule of one step from rows (src, dst, chunks, reduce), a chunk being 1e6 bytes at a size of 16e6."""
    src, dst, chunks, adds = zip(*rows)
    return Schedule(op, "one", n, 16, (Block((step(src, dst, 0, chunks, adds),)),))


def test_a_message_of_several_rows_has_one_latency():
    plain = replace(H100, gamma_us_per_byte=0.0)
    assert simulate(_one((0, 1, 1, False), (0, 1, 2, False)), plain, 16e6).time_us == pytest.approx(1.9 + 3e6 / 370e3)


def test_a_rank_has_one_send_and_one_receive_port_within_its_node():
    plain = replace(H100, gamma_us_per_byte=0.0)
    two = simulate(_one((0, 1, 1, False), (0, 2, 1, False)), plain, 16e6)
    assert two.time_us == pytest.approx(1.9 + 2e6 / 370e3)
    assert simulate(_one((1, 0, 1, False), (2, 0, 1, False)), plain, 16e6).time_us == pytest.approx(two.time_us)
    assert simulate(_one((0, 1, 1, False), (1, 0, 1, False)), plain, 16e6).time_us == pytest.approx(1.9 + 1e6 / 370e3)
    mixed = simulate(_one((0, 1, 1, False), (0, 8, 1, False)), plain, 16e6)
    assert mixed.time_us == pytest.approx(4.0 + 1e6 / 48e3)  # the NIC works beside the NVLink port


def test_ranks_that_share_a_nic_share_its_rate():
    plain = replace(H100, nics_per_node=4, gamma_us_per_byte=0.0)
    neighbours = simulate(_one((0, 8, 1, False), (1, 9, 1, False)), plain, 16e6)
    apart = simulate(_one((0, 8, 1, False), (2, 10, 1, False)), plain, 16e6)
    incoming = simulate(_one((0, 8, 1, False), (2, 9, 1, False)), plain, 16e6)
    assert neighbours.time_us == incoming.time_us == pytest.approx(4.0 + 2e6 / 48e3)
    assert apart.time_us == pytest.approx(4.0 + 1e6 / 48e3)
    assert (neighbours.busiest.name, incoming.busiest.name) == ("node 0 NIC 0 out", "node 1 NIC 0 in")
    assert neighbours.busiest.bytes == pytest.approx(2e6)


def test_additions_of_a_rank_follow_each_other_and_do_not_hold_the_sender():
    rows = (1, 0, 1, True), (2, 0, 1, True)
    arrived = 1.9 + 2e6 / 370e3
    assert simulate(_one(*rows), H100, 16e6).time_us == pytest.approx(arrived + 2e6 * 1.7e-6)
    then = Block((step(1, 3),))  # the sender goes on at once
    schedule = _one(*rows)
    after = replace(schedule, blocks=(*schedule.blocks, then))
    assert simulate(after, H100, 16e6).time_us == pytest.approx(arrived + max(2e6 * 1.7e-6, 1.9 + 1e6 / 370e3))


def test_a_step_of_a_rank_ends_with_its_last_message():
    hop, both = 1.9 + 1e6 / 370e3, 1.9 + 2e6 / 370e3
    for late in (1, 5):  # two messages of rank 0, one of them to a rank that is three messages late
        before = tuple(Block((step(late, 7),)) for _ in range(3))
        two = _one((0, 1, 1, False), (0, 5, 1, False))
        schedule = replace(two, blocks=(*before, *two.blocks, Block((step(0, 2),))))
        assert simulate(schedule, TOGETHER, 16e6).time_us == pytest.approx(3 * hop + both + hop)
        # Rank 0 adds what it gets from the other one meanwhile, and keeps what the late one sends.
        two = _one((late, 0, 1, False), (6 - late, 0, 1, True))
        schedule = replace(two, blocks=(*before, *two.blocks))
        assert simulate(schedule, TOGETHER, 16e6).time_us == pytest.approx(3 * hop + both)
    assert 1e6 * 1.7e-6 < 3 * hop


def test_a_message_waits_for_both_sides():
    plain = replace(H100, gamma_us_per_byte=0.0)
    hop = 1.9 + 1e6 / 370e3
    chain = Schedule("broadcast", "x", 8, 16, tuple(Block((step(r, r + 1),)) for r in range(3)))
    assert simulate(chain, plain, 16e6).time_us == pytest.approx(3 * hop)
    apart = Schedule("broadcast", "x", 8, 16, tuple(Block((step(2 * r, 2 * r + 1),)) for r in range(3)))
    assert simulate(apart, plain, 16e6).time_us == pytest.approx(hop)


def test_a_switch_that_reduces_has_to_be_there():
    schedule = build("all_reduce", "nvls", 8)
    with pytest.raises(UsageError, match="needs a switch that reduces among 8 ranks; a100-8x200g has none"):
        simulate(schedule, load_fabric("a100-8x200g"), SIZE)
    with pytest.raises(UsageError, match="among 16 ranks; h100-8x400g has one for 8 ranks"):
        simulate(build("all_reduce", "nvls", 16), H100, SIZE)


def test_nothing_to_send_takes_the_latencies():
    assert simulate(build("all_reduce", "ring", 8), H100, 0).time_us == pytest.approx(14 * 1.9)


@pytest.mark.parametrize(
    "op, name, per_node", [("all_reduce", "ring", 1), ("all_gather", "bruck", 1), ("all_reduce", "hierarchical", 8)]
)
def test_a_hundred_thousand_ranks(op, name, per_node):
    result = simulate(build(op, name, 131_072, per_node), H100, 2**30)
    moved = 2**30 * (131_071 / 131_072) * (2 if op == "all_reduce" else 1)
    assert result.rank_bytes == pytest.approx(moved, rel=1e-9)


@pytest.mark.full
@pytest.mark.full
def test_pairwise_all_to_all_of_a_hundred_thousand_ranks():
    result = simulate(build("all_to_all", "pairwise", 131_072), H100, 2**30)
    # All but 7 of the 131,071 steps go between nodes for some rank, and each takes one hop and one block.
    block_us = 2**30 / 131_072 / 48e3
    assert result.time_us == pytest.approx(131_071 * (4.0 + block_us), rel=1e-4)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    return ended.value.code, *capsys.readouterr()


def test_the_verb_prints_a_table_and_marks_the_fastest(capsys, tmp_path):
    file = tmp_path / "x.json"
    code, out, _ = run(
        capsys, "all_reduce", "--algorithm", "ring,own:tree,hierarchical", "--ranks", "8..64", "--size", "1M,1G",
        "--json", str(file),
    )  # fmt: skip
    assert code == 0 and "simulated, not measured, on h100-8x400g" in out
    assert (
        out.count("fastest") == 9
    )  # one in each of 8 groups, and at 1G on one node ring and hierarchical are the same
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 4 * 2 * 3
    assert {row["ranks"] for row in rows} == {8, 16, 32, 64}
    for row in rows:
        group = [r["time_us"] for r in rows if (r["ranks"], r["size_bytes"]) == (row["ranks"], row["size_bytes"])]
        assert row["fastest"] == (row["time_us"] == pytest.approx(min(group), rel=1e-9))
    ring = next(row for row in rows if row["ranks"] == 64 and row["size_bytes"] == 2**30)
    assert ring["busbw_GBps"] == pytest.approx(2 * 63 / 64 * 2**30 / ring["time_us"] / 1e3)
    assert ring["link_bytes"]["inter"] == pytest.approx(8 * 2 * 63 / 64 * 2**30)
    assert json.loads(file.read_text())["fabric"]["intra"]["bandwidth_source"]


def test_the_verb_says_what_is_not_simulated_and_why(capsys):
    code, out, _ = run(capsys, "all_reduce", "--ranks", "20", "--fabric", "a100-8x200g")
    assert code == 0
    assert "skip: 20 ranks are no whole nodes of 8" in out and "skip: the switch of a100-8x200g does not reduce" in out
    code, out, _ = run(capsys, "broadcast", "--algorithm", "chain", "--ranks", "131072")
    assert code == 0 and "skip: 131072 steps that all differ would take long" in out and "fastest" not in out
    assert "n/a" in run(capsys, "all_reduce", "--algorithm", "ring", "--ranks", "1")[1]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["gather"], "no schedules of 'gather'; there are some of all_reduce"),
        (["all_reduce", "--algorithm", "rings"], "no schedule 'rings' of all_reduce; there are ring, rail_ring, tree"),
        (["all_reduce", "--fabric", "h100"], "no fabric or fabric file 'h100'; fabrics: a100-8x200g"),
        (["all_reduce", "--ranks", "200000"], "1 to 131072 ranks"),
        (["all_reduce", "--ranks", "8..1M"], "1 to 131072 ranks"),
        (["all_reduce", "--ranks", "64..8"], "--ranks 64..8: to (8) is smaller than from (64)"),
        (["all_reduce", "--ranks", ","], "write one or more numbers above 0"),
        (["all_reduce", "--size", "many"], "size 'many' is not understood"),
        (["all_reduce", "--size", "1..x"], "size 'x' is not understood"),
        (["all_reduce", "--json", "/nowhere/x.json"], "/nowhere/x.json cannot be written"),
    ],
)
def test_bad_usage_is_one_sentence(capsys, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and said in err and not out and len(err.splitlines()) == 1
