"""Variables of the environment by which a library is made to use one algorithm: who sees them, and were they taken?"""

import ctypes
import os
from contextlib import contextmanager

_NCCL = ("NCCL_ALGO", "NCCL_PROTO")


@contextmanager
def own_choice():
    """NCCL communicators that are made inside choose freely: NCCL reads the variables while it makes one.

    For the communicator of control, whose double sums no in-switch reduction takes. Unverified until a GPU has run it.
    """
    held = {name: os.environ.pop(name) for name in _NCCL if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)


def open_mpi_parameter(name: str) -> int | None:
    """The value of a whole-number MCA parameter in this process after MPI_Init, by MPI's tool interface (MPI_T).

    None where this MPI has no such parameter.
    """
    from mpi4py import MPI

    mpi = ctypes.CDLL(MPI.__file__)  # finds the functions of the libmpi that mpi4py has loaded
    index, count, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle = ctypes.c_void_p()
    if not hasattr(mpi, "MPI_T_init_thread") or mpi.MPI_T_init_thread(0, ctypes.byref(ctypes.c_int())):
        return None
    try:
        if mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)):
            return None
        if mpi.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)):
            return None
        mpi.MPI_T_cvar_read(handle, ctypes.byref(value))
        mpi.MPI_T_cvar_handle_free(ctypes.byref(handle))
        return value.value
    finally:
        mpi.MPI_T_finalize()
