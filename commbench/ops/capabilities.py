"""What a backend cannot do, known before the sweep: after some refused calls a Gloo group is of no more use.

The rows for Gloo and MPI are held against the libraries by tests/test_capabilities.py, call by call.
The rows for NCCL are from its documentation and torch's source (ProcessGroupNCCL.cpp), unverified until a GPU ran them.
"""

from commbench.ops import OPS
from commbench.world.dtypes import DTYPES

_POINT_TO_POINT = {name for name, op in OPS.items() if op.kind == "p2p"}
_FP8 = {"float8_e4m3fn", "float8_e5m2"}
_MPI_ARITHMETIC = {"float32", "float64", "int8", "uint8", "int32", "int64"}


def refusal(backend: str, op: str, dtype: str, redop: str, in_place: bool, world_size: int) -> str | None:
    """Why `backend` cannot run this, in one sentence; None where it can."""
    record, reduces = OPS[op], redop != "none"
    if in_place and record.in_place is None:
        return f"{op} has no in-place form"
    if record.group_size and world_size < record.group_size:
        return f"{op} needs {record.group_size} ranks, the group has {world_size}"
    if redop == "avg" and DTYPES[dtype].exact_limit < world_size:
        return f"the average over {world_size} ranks is not exact in {dtype}, so it cannot be checked"
    if backend == "gloo" and op == "sendrecv" and world_size == 1:
        return "Gloo cannot send to the own rank; a ring shift needs 2 ranks"
    return {"gloo": _gloo, "mpi": _mpi, "nccl": _nccl}[backend](op, dtype, redop, reduces)


def _gloo(op, dtype, redop, reduces):
    if dtype in _FP8 and op not in _POINT_TO_POINT and op != "barrier":
        return (
            f"{dtype} is not supported by Gloo's collectives (torch: Invalid scalar type); uint8 moves the same bytes"
        )
    if redop == "avg" and not DTYPES[dtype].is_float:
        return f"Gloo cannot average {dtype}: torch divides into a float"
    return None


def _mpi(op, dtype, redop, reduces):
    if redop == "avg":
        return "MPI has no average; sum moves the same bytes"
    if reduces and dtype not in _MPI_ARITHMETIC:
        return f"MPI has no datatype for arithmetic on {dtype}; operations that only move data take it"
    return None


def _nccl(op, dtype, redop, reduces):
    if reduces and dtype in _FP8:
        return f"torch refuses reductions of {dtype} over NCCL; operations that only move data take it"
    return None
