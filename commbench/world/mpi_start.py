"""Calls on torch tensors that are started and waited for apart, through an MPI communicator: what layers send by.

Each function returns something with wait(). Most MPI libraries make progress only inside their own calls, so what is
started early does not hide; that is a property of the library, and a layer's overlap shows it.
"""

import torch
from mpi4py import MPI

# What a tensor of each type is for MPI, and the type as which numpy sees it where numpy knows none of that name. MPI
# knows no floats below 32 bits: they move as integers of that width.
_TYPES = {
    torch.float32: (MPI.FLOAT, None),
    torch.float64: (MPI.DOUBLE, None),
    torch.int8: (MPI.INT8_T, None),
    torch.uint8: (MPI.UINT8_T, None),
    torch.int32: (MPI.INT32_T, None),
    torch.int64: (MPI.INT64_T, None),
    torch.bfloat16: (MPI.UINT16_T, torch.int16),
    torch.float16: (MPI.UINT16_T, torch.int16),
    torch.float8_e4m3fn: (MPI.UINT8_T, torch.uint8),
    torch.float8_e5m2: (MPI.UINT8_T, torch.uint8),
}


class MpiStart:
    """`comm`'s non-blocking collectives; tensors are contiguous and on the host, ranks count within the group."""

    def __init__(self, comm):
        self._comm = comm

    def all_reduce(self, tensor):
        return _Request(self._comm.Iallreduce(MPI.IN_PLACE, _typed(tensor), MPI.SUM), tensor)

    def all_gather(self, out, tensor):
        return _Request(self._comm.Iallgather(_typed(tensor), _typed(out)))

    def reduce_scatter(self, out, tensor):
        return _Request(self._comm.Ireduce_scatter_block(_typed(tensor), _typed(out), MPI.SUM), tensor, out)

    def all_to_all(self, out, tensor, out_splits, in_splits):
        """Rows of the first dimension."""
        row = tensor[0].numel() if tensor.shape[0] else out[0].numel() if out.shape[0] else 1
        outgoing = _typed(tensor, [rows * row for rows in in_splits])
        incoming = _typed(out, [rows * row for rows in out_splits])
        return _Request(self._comm.Ialltoallv(outgoing, incoming))

    def exchange(self, tensors, recvs, sends):
        """tensors: those received, then those sent. recvs, sends: the peer of each. Receives are posted first."""
        arrays = [_typed(tensor) for tensor in tensors]
        requests = [self._comm.Irecv(array, peer) for peer, array in zip(recvs, arrays)]
        requests += [self._comm.Isend(array, peer) for peer, array in zip(sends, arrays[len(recvs) :])]
        return _Requests(requests)


class _Request:
    """`kept`: tensors that must live on until then. mpi4py 4.1 keeps those of its other calls, but of no reduction."""

    def __init__(self, request, *kept):
        self._request, self._kept = request, kept

    def wait(self):
        self._request.Wait()


class _Requests:
    def __init__(self, requests):
        self._requests = requests

    def wait(self):
        MPI.Request.Waitall(self._requests)


def _typed(tensor, *counts) -> list:
    """A flat host tensor with its type, whose naming spares mpi4py the look at the array's format."""
    datatype, seen_as = _TYPES[tensor.dtype]
    flat = tensor.view(-1)
    return [(flat if seen_as is None else flat.view(seen_as)).numpy(), *counts, datatype]
