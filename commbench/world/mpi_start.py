"""Calls on torch tensors that are started and waited for apart, through an MPI communicator: what layers send by.

Each function returns something with wait(). Most MPI libraries make progress only inside their own calls, so what is
started early does not hide; that is a property of the library, and a layer's overlap shows it.
"""

import torch
from mpi4py import MPI

from commbench.world.mpi_world import _typed


class MpiStart:
    """`comm`'s non-blocking collectives; tensors are contiguous and on the host, ranks count within the group."""

    def __init__(self, comm):
        self._comm = comm

    def all_reduce(self, tensor):
        return _Request(self._comm.Iallreduce(MPI.IN_PLACE, _typed(_array(tensor)), MPI.SUM), tensor)

    def all_gather(self, out, tensor):
        return _Request(self._comm.Iallgather(_typed(_array(tensor)), _typed(_array(out))))

    def reduce_scatter(self, out, tensor):
        request = self._comm.Ireduce_scatter_block(_typed(_array(tensor)), _typed(_array(out)), MPI.SUM)
        return _Request(request, tensor, out)

    def all_to_all(self, out, tensor, out_splits, in_splits):
        """Rows of the first dimension."""
        row = tensor[0].numel() if tensor.shape[0] else out[0].numel() if out.shape[0] else 1
        outgoing = _typed(_array(tensor), [rows * row for rows in in_splits])
        incoming = _typed(_array(out), [rows * row for rows in out_splits])
        return _Request(self._comm.Ialltoallv(outgoing, incoming))

    def exchange(self, tensors, recvs, sends):
        """tensors: those received, then those sent. recvs, sends: the peer of each. Receives are posted first."""
        arrays = [_typed(_array(tensor)) for tensor in tensors]
        requests = [self._comm.Irecv(array, peer) for peer, array in zip(recvs, arrays)]
        requests += [self._comm.Isend(array, peer) for peer, array in zip(sends, arrays[len(recvs) :])]
        return _Request(requests)


class _Request:
    """`kept`: tensors that must live on until then. mpi4py 4.1 keeps those of its other calls, but of no reduction."""

    def __init__(self, request, *kept):
        self._request, self._kept = request, kept

    def wait(self):
        if isinstance(self._request, list):
            MPI.Request.Waitall(self._request)
        else:
            self._request.Wait()


def _array(tensor):
    """The flat numpy view of a host tensor. MPI knows no floats below 32 bits: they move as integers of that width."""
    flat = tensor.view(-1)
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return flat.view(torch.uint8).numpy()
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 2:
        return flat.view(torch.int16).numpy().view("uint16")
    return flat.numpy()
