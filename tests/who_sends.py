"""Under mpirun: how many messages each rank sends to each other one in one call, as Open MPI counts them itself.

`python who_sends.py OP COUNT`; rank 0 prints the matrix as JSON, row = sender. The counts are the performance variable
pml_monitoring_messages_count of MPI's tool interface.
"""

import ctypes
import json
import os
import sys

import numpy as np
from mpi4py import MPI

from commbench.ops import OPS
from commbench.ops.op import Call
from commbench.world.mpi_world import MpiGroup

_SIZE = 2  # MPI_T_PVAR_CLASS_SIZE in Open MPI's mpi.h

mpi = ctypes.CDLL(MPI.__file__)
mpi.MPI_T_init_thread(0, ctypes.byref(ctypes.c_int()))
session, handle, index, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
world = ctypes.c_void_p.from_address(MPI._addressof(MPI.COMM_WORLD))
assert mpi.MPI_T_pvar_session_create(ctypes.byref(session)) == 0
assert mpi.MPI_T_pvar_get_index(b"pml_monitoring_messages_count", _SIZE, ctypes.byref(index)) == 0
assert mpi.MPI_T_pvar_handle_alloc(session, index, ctypes.byref(world), ctypes.byref(handle), ctypes.byref(count)) == 0
assert mpi.MPI_T_pvar_start(session, handle) == 0


def sent() -> np.ndarray:
    values = (ctypes.c_uint64 * count.value)()
    assert mpi.MPI_T_pvar_read(session, handle, values) == 0
    return np.array(values[:], dtype=np.int64)


op, rank, ranks = OPS[sys.argv[1]], MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
call = Call(ranks, int(sys.argv[2]), redop="sum" if op.reduces else "none", result_at_front=True)
send, recv = np.ones(op.send(call, rank), np.float32), np.zeros(op.recv(call, rank), np.float32)
run = op.prepare(MpiGroup(MPI.COMM_WORLD), call, send, recv)
before = sent()
run()
row = sent() - before
rows = MPI.COMM_WORLD.gather(row.tolist())
if rank == 0:
    print(json.dumps(rows), flush=True)
MPI.COMM_WORLD.Barrier()
os._exit(0)  # the monitoring of 5.0.11 crashes in MPI_Finalize
