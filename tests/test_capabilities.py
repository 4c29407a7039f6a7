"""The table of what a backend cannot do, against the backend itself: what it refuses must really fail."""

import os
import socket
from datetime import timedelta

import pytest

from commbench.ops import OPS
from commbench.ops.capabilities import refusal
from commbench.ops.prepared import Buffers, Prepared
from commbench.results.records import Point
from commbench.world.dtypes import DTYPES

REDOPS = ("sum", "prod", "min", "max", "avg")
EVERYTHING = [
    (op, dtype, redop) for op in OPS for dtype in DTYPES for redop in (REDOPS if OPS[op].reduces else ("none",))
]
REFUSED = [case for case in EVERYTHING if refusal("gloo", *case, False, 2)]
A_FEW = [
    next(c for c in REFUSED if c[0] == op and c[1] == dtype)
    for op, dtype in [("all_reduce", "float8_e4m3fn"), ("all_gather", "float8_e5m2"), ("reduce", "int32")]
]


def _gloo_call(op, dtype, redop) -> bool:
    """Whether two Gloo ranks survive one call."""
    import torch.distributed as dist

    from commbench.world.torch_world import TorchWorld

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        pids = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
                    serve = {"master_listen_fd": listener.fileno()} if rank == 0 else {}
                    address = listener.getsockname()
                    store = dist.TCPStore(
                        *address, 2, rank == 0, timedelta(seconds=20), wait_for_workers=False, **serve
                    )
                    world = TorchWorld("gloo", rank, 2, store, 10)
                    params = {"matrix": [[20, 12], [7, 25]]} if op == "all_to_all_v" else {}
                    count = OPS[op].count(64, 2)
                    point = Point(
                        op,
                        "gloo",
                        64,
                        params=params,
                        members=(0, 1),
                        ranks=2,
                        count=count,
                        dtype=dtype,
                        redop=redop,
                        root=0,
                    )
                    prepared = Prepared(world, world.split([[0, 1]]), point, Buffers(world))
                    prepared.refill()
                    prepared.run()
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        return all(os.waitpid(pid, 0)[1] == 0 for pid in pids)


@pytest.mark.parametrize("case", A_FEW, ids="-".join)
def test_gloo_really_refuses_a_few(case):
    assert not _gloo_call(*case)


def test_gloo_really_takes_what_the_table_allows():
    assert _gloo_call("all_reduce", "bfloat16", "avg") and _gloo_call("all_to_all_v", "float16", "none")


@pytest.mark.full
@pytest.mark.parametrize("case", [case for case in REFUSED if case not in A_FEW], ids="-".join)
def test_gloo_really_refuses_all_the_rest(case):
    assert not _gloo_call(*case)


def test_reasons_are_sentences_that_name_the_cause():
    assert "has no in-place form" in refusal("mpi", "gather", "float32", "none", True, 2)
    assert "no average" in refusal("mpi", "all_reduce", "float32", "avg", False, 2)
    assert "bfloat16" in refusal("mpi", "all_reduce", "bfloat16", "sum", False, 2)
    assert "needs 2 ranks" in refusal("gloo", "p2p_bw", "float32", "none", False, 1)
    assert "not exact" in refusal("gloo", "all_reduce", "bfloat16", "avg", False, 300)
    assert refusal("nccl", "all_gather", "float8_e5m2", "none", False, 8) is None
