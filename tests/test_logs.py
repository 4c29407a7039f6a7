"""What the libraries print of themselves is read as they print it, and nothing is read into what they do not say."""

import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import CommbenchError
from commbench.launch import mpi_log, nccl_log
from commbench.launch.mpirun import find_mpirun, is_open_mpi, mpirun_command

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=200)


# NCCL: the lines are formats of NVIDIA/nccl src/enqueue.cc, with numbers from published logs.


def test_the_tuning_line_since_2_24():
    text = (
        "node-01:631871:631871 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}\n"
        "node-01:631871:631871 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n"
        "node-01:631871:631871 [0] NCCL INFO Broadcast:    32768 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}\n"
        "node-01:631871:631871 [0] NCCL INFO Reduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    )
    assert nccl_log.tuning(text, 16) == {
        "all_reduce 33554432": ["ring", "simple"],
        "all_reduce 1024": ["tree", "ll"],
        "broadcast 32768": ["ring", "ll128"],
        "reduce 8": ["ring", "ll"],
    }


def test_bytes_of_gathering_operations_are_per_rank_since_2_24():
    text = (
        "AllGather: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
        "ReduceScatter: 1024 Bytes -> Algo PAT proto SIMPLE channel{Lo..Hi}={0..1}\n"
    )
    assert nccl_log.tuning(text, 8) == {"all_gather 8192": ["ring", "ll"], "reduce_scatter 8192": ["pat", "simple"]}


def test_bytes_of_gathering_operations_are_the_total_in_2_23():
    # A published log of four ranks: 2359808 float32 per rank are 9439232 bytes, and four times as many are printed.
    text = (
        "2: node-0:309:309 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008\n"
        "1: node-3:278:278 [0] NCCL INFO AllGather: opCount 1606 sendbuff 0x93fd44a00 recvbuff 0x96d44e200 count 2359808 datatype 7 "
        "op 0 root 0 comm 0x555e2c6387e0 [nranks=4] stream 0x555e2b3a4370\n"
    )
    assert nccl_log.tuning(text, 4) == {"all_gather 37756928": ["ring", "simple"]}


@pytest.mark.parametrize(
    "number, name",
    [
        (0, "tree"),
        (1, "ring"),
        (2, "collnetdirect"),
        (3, "collnetchain"),
        (4, "nvls"),
        (5, "nvlstree"),
        (6, "pat"),
        (7, "number 7"),
    ],
)
def test_numbers_of_2_23_are_names(number, name):
    text = f"node1:123:456 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo {number} proto 1 time 12.345000"
    assert nccl_log.tuning(text, 8) == {"all_reduce 1024": [name, "ll128"]}


def test_the_names_of_both_forms_are_the_same():
    for new, number in (
        ("TREE", 0),
        ("COLLNET_DIRECT", 2),
        ("COLLNET_CHAIN", 3),
        ("NVLS", 4),
        ("NVLS_TREE", 5),
        ("PAT", 6),
    ):
        named = nccl_log.tuning(f"AllReduce: 8 Bytes -> Algo {new} proto LL channel{{Lo..Hi}}={{0..1}}", 2)
        assert named == nccl_log.tuning(f"AllReduce: 8 Bytes -> Algo {number} proto 0 time 1.0", 2)


def test_a_size_that_was_planned_in_two_ways_shows_both():
    text = (
        "AllReduce: 64 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n"
        "AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n" * 2
    )
    assert nccl_log.tuning(text, 4) == {"all_reduce 64": ["ring, tree", "ll"]}


PREFIXES = [
    "",
    "node1:123:456 [0] NCCL INFO ",
    "[1,0]<stdout>:node1:1:2 [3] NCCL INFO ",
    "0: ",
    "2026-01-01T00:00:00Z stderr F ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_launchers_put_something_before_a_line(prefix, end):
    text = f"{prefix}AllReduce: 1024 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}{end}"
    assert nccl_log.tuning(text, 8) == {"all_reduce 1024": ["ring", "ll"]}


@pytest.mark.parametrize(
    "line",
    [
        "node1:1:2 [0] NCCL INFO 1024 Bytes -> Algo 1 proto 0 time 12.3",  # up to 2.22 the operation is not told
        "SendRecv: 1024 Bytes -> Algo RING proto LL", "AlltoAll: 1024 Bytes -> Algo RING proto LL",
        "MyAllReduce: 8 Bytes -> Algo RING proto LL",
        "AllReduce: many Bytes -> Algo RING proto LL", "AllReduce: -5 Bytes -> Algo RING proto LL",
        "AllReduce: 8 Bytes", "AllReduce: 8 Bytes -> Algo",
        "AllReduce: opCount 2 sendbuff 0x7f recvbuff 0x7f count 256 datatype 7 op 0 root 0 comm 0x5 [nranks=2] stream 0x5",
        "",
    ],
)  # fmt: skip
def test_lines_that_tell_no_algorithm_tell_none(line):
    assert nccl_log.tuning(line, 8) == {}


def test_lines_of_a_real_job_that_only_set_up():
    text = (
        "node01:69:107 [6] NCCL INFO Init timings - ncclCommInitRank: rank 6 nranks 16 total 1.67 (kernels 1.04, alloc 0.29)\n"
        "node02:80:117 [5] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so libnccl-net.so. Using internal tuner plugin.\n"
        "node02:79:121 [4] NCCL INFO ncclCommInitRank comm 0x5633ec6f8180 rank 12 nranks 16 cudaDev 4 - Init COMPLETE\n"
    )
    assert nccl_log.tuning(text, 16) == {}
    assert nccl_log.library_facts(text) == {}


def test_what_a_log_tells_of_the_library():
    text = (
        "node1:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.\n"
        "node1:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v9)\n"
        "node1:1:1 [0] NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v9)\n"
        "node1:1:1 [0] NCCL INFO Using network AWS Libfabric\n"
        "NCCL version 2.26.2+cuda12.8\n"
        "node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
        "node1:1:1 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "node1:1:1 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA\n"
        "node1:1:1 [0] NCCL INFO Channel 01/0 : 7[7] -> 8[0] [receive] via NET/IB/3(6)/GDRDMA/Shared\n"
        "node1:1:1 [0] NCCL INFO 16 coll channels, 8 collnet channels, 4 nvls channels, 32 p2p channels, 2 p2p channels per peer\n"
    )
    facts = nccl_log.library_facts(text)
    assert facts["plugin"] == facts["network"] == "AWS Libfabric"
    assert facts["version"] == "2.26.2+cuda12.8"
    assert facts["gpudirect"] is True
    assert facts["channels"] == {"collective": 16, "collnet": 8, "nvls": 4, "p2p": 32}
    assert {"P2P/CUMEM/read", "SHM/direct/direct", "NET/IB/3"} <= set(facts["transports"])


@pytest.mark.parametrize(
    "line",
    [
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "NET/Plugin: Using internal network plugin.",
        "NET/Plugin : No plugin found, using internal implementation", "NET/Plugin: No plugin found (libnccl-net.so)",
        "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.", "NET/Plugin: Plugin name set by env to aws-ofi",
        "NET/Plugin: Closing net plugin 'IB'",
        "NET/Plugin: libnccl-net.so: cannot open shared object file", "NET/Plugin: Loaded collnet plugin SHARP (v9)",
    ],
)  # fmt: skip
def test_a_line_about_no_plugin_names_none(line):
    assert "plugin" not in nccl_log.library_facts(f"node1:1:1 [0] NCCL INFO {line}\n")


def test_gpudirect_is_told_only_where_the_log_tells():
    told = {
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'": True,
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'": False,
        "NET/Socket : Using [0]eth0:10.0.0.1<0>": False,
        "Using network IB": None,
    }
    for line, value in told.items():
        assert nccl_log.library_facts(line).get("gpudirect") is value


def test_channels_of_versions_without_collnet():
    facts = nccl_log.library_facts("24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer")
    assert facts["channels"] == {"collective": 24, "collnet": 0, "nvls": 16, "p2p": 32}
    assert "channels" not in nccl_log.library_facts("coll channels, p2p channels")


@fixed
@given(
    st.lists(
        st.sampled_from(
            [
                *PREFIXES,
                "AllReduce: ",
                "1024",
                " Bytes -> Algo ",
                "RING",
                "9",
                " proto ",
                "LL",
                " time ",
                "\n",
                "via NET/",
                "é",
            ]
        ),
        max_size=25,
    )
)
def test_any_text_is_read_without_an_error(pieces):
    text = "".join(pieces)
    for key, pair in nccl_log.tuning(text, 4).items():
        op, size = key.split()
        assert op == "all_reduce" and int(size) >= 0 and len(pair) == 2 and all(pair)
    assert isinstance(nccl_log.library_facts(text), dict)
    assert mpi_log.components(text) == {}


@pytest.mark.parametrize(
    "noise",
    [
        "a" * 3_000_000,
        "1" * 3_000_000,
        "AllReduce: " * 200_000,
        "via NET/" * 300_000,
        "x: 1 Bytes -> Algo a proto b " * 60_000,
    ],
)
def test_huge_logs_are_read_within_seconds(noise):
    text = noise + "\nAllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
    begin = time.perf_counter()
    assert nccl_log.tuning(text, 8) == {"all_reduce 1024": ["ring", "ll"]}
    nccl_log.library_facts(text)
    assert time.perf_counter() - begin < 3


# Open MPI: lines of mpirun --mca coll_base_verbose 20 (5.0), two ranks.

WORLD = """\
[node1:13315] coll:base:comm_select: new communicator: MPI_COMM_WORLD (cid 0)
[node1:13314] coll:base:comm_select: new communicator: MPI_COMM_WORLD (cid 0)
[node1:13315] coll:base:comm_select: Checking all available modules
[node1:13315] coll:base:comm_select: component available: adapt, priority: 0
[node1:13315] coll:base:comm_select: component available: tuned, priority: 30
[node1:13315] coll:base:comm_select: component disqualified: han (priority -1 < 0)
[node1:13315] coll:base:comm_select: selecting       adapt, priority   0, Disabled
[node1:13315] coll:base:comm_select: selecting          sm, priority   0, Disabled
[node1:13315] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node1:13315] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node1:13315] coll:base:comm_select: selecting       tuned, priority  30, Enabled
"""
SELF = """\
[node1:13315] coll:base:comm_select: new communicator: MPI_COMM_SELF (cid 1)
[node1:13315] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node1:13315] coll:base:comm_select: selecting        self, priority  75, Enabled
"""
TUNED = {
    "all_reduce", "all_gather", "broadcast", "reduce", "gather", "scatter", "barrier", "reduce_scatter",
    "all_to_all", "all_to_all_v",
}  # fmt: skip


def selecting(*components):
    lines = [
        f"[node1:13315] coll:base:comm_select: selecting {name:>11}, priority {priority:3}, Enabled"
        for name, priority in components
    ]
    return "[node1:13315] coll:base:comm_select: new communicator: MPI_COMM_WORLD (cid 0)\n" + "\n".join(lines)


def test_tuned_runs_everything_on_one_node():
    assert mpi_log.components(WORLD + SELF) == {op: ["tuned (component)", "not observed"] for op in TUNED}


def test_only_the_world_counts():
    assert mpi_log.components(SELF) == {}
    assert mpi_log.components(SELF + WORLD) == mpi_log.components(WORLD)


def test_han_comes_before_tuned_where_it_has_the_function():
    seen = mpi_log.components(selecting(("basic", 10), ("libnbc", 10), ("tuned", 30), ("han", 35)))
    assert set(seen) == TUNED
    assert {op for op, (component, _) in seen.items() if component == "han (component)"} == TUNED - {
        "reduce_scatter", "all_to_all", "all_to_all_v"
    }  # fmt: skip
    assert seen["all_to_all"] == ["tuned (component)", "not observed"]


@pytest.mark.parametrize(
    "components",
    [
        [("basic", 10), ("libnbc", 10), ("tuned", 30), ("adapt", 50)],  # as printed with --mca coll_adapt_priority 50
        [("basic", 10), ("tuned", 30), ("hcoll", 90)], [("basic", 10), ("libnbc", 10)], [],
    ],
)  # fmt: skip
def test_a_component_of_unknown_functions_leaves_all_unobserved(components):
    assert mpi_log.components(selecting(*components)) == {}


def test_one_process_of_a_mixed_log_is_followed():
    other = selecting(("basic", 10), ("hcoll", 90)).replace("13315", "13316")
    assert set(mpi_log.components(WORLD + other)) == TUNED
    assert mpi_log.components(WORLD + other, "[node1:13316]") == {}
    assert mpi_log.components(WORLD + other, "[node1:99]") == {}


def test_a_log_that_is_none():
    for text in (
        "",
        "\n\n",
        "mpirun: command not found",
        "coll:base:comm_select",
        "coll:base:comm_select: selecting tuned, priority x, Enabled",
    ):
        assert mpi_log.components(text) == {}


def test_a_huge_log_is_read_within_seconds():
    begin = time.perf_counter()
    assert set(mpi_log.components(WORLD + SELF * 20_000 + "x" * 3_000_000)) == TUNED
    assert time.perf_counter() - begin < 3


def test_this_machines_open_mpi_prints_such_lines():
    try:
        mpirun = find_mpirun()
        command = mpirun_command(2, ["-c", "from mpi4py import MPI"], ["--mca", "coll_base_verbose", "20"])
    except CommbenchError as error:
        pytest.skip(f"no MPI here: {error}")
    if not is_open_mpi(mpirun):
        pytest.skip("the MPI of this machine is not Open MPI")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    seen = mpi_log.components(done.stderr + done.stdout)
    assert seen["all_reduce"][1] == "not observed" and seen["all_reduce"][0] in ("tuned (component)", "han (component)")
    assert set(seen) == TUNED
