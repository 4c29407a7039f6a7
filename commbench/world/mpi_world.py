"""MPI through mpi4py's buffer calls (upper case: no pickle, no copy)."""

import numpy as np
from mpi4py import MPI

from commbench.world.buffers import HostBuffer
from commbench.world.dtypes import DTYPES
from commbench.world.world import World

_REDOPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}


class MpiGroup:
    """A communicator whose methods return ready calls; arrays are flat numpy arrays."""

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def scratch(self, count: int):
        return np.zeros(count, dtype=np.uint8)

    def all_reduce(self, send, recv, redop):
        call, op, source = self.comm.Allreduce, _REDOPS[redop], _source(send, recv)
        return lambda: call(source, recv, op)

    def broadcast(self, send, recv, root):
        call = self.comm.Bcast
        if self.rank == root and not _same(send, recv):

            def copied():  # MPI_Bcast has one buffer
                recv[:] = send
                call(recv, root)

            return copied
        return lambda: call(recv, root)

    def reduce(self, send, recv, redop, root):
        call, op = self.comm.Reduce, _REDOPS[redop]
        if self.rank != root:
            return lambda: call(send, None, op, root)
        source = _source(send, recv)
        return lambda: call(source, recv, op, root)

    def all_gather(self, send, recv):
        call = self.comm.Allgather
        source = MPI.IN_PLACE if _inside(send, recv) else send
        return lambda: call(source, recv)

    def reduce_scatter(self, send, recv, redop):
        call, op = self.comm.Reduce_scatter_block, _REDOPS[redop]
        if _inside(recv, send):
            return lambda: call(MPI.IN_PLACE, send, op)
        return lambda: call(send, recv, op)

    def gather(self, send, recv, root):
        call, target = self.comm.Gather, recv if self.rank == root else None
        return lambda: call(send, target, root)

    def scatter(self, send, recv, root):
        call, source = self.comm.Scatter, send if self.rank == root else None
        return lambda: call(source, recv, root)

    def all_to_all(self, send, recv):
        call, source = self.comm.Alltoall, _source(send, recv)
        return lambda: call(source, recv)

    def all_to_all_v(self, send, recv, matrix):
        call = self.comm.Alltoallv
        outgoing, incoming = (send, list(matrix[self.rank])), (recv, [row[self.rank] for row in matrix])
        return lambda: call(outgoing, incoming)

    def exchange(self, sends, recvs):
        """All of `sends` and `recvs`, lists of (peer, array), at once. Receives are posted first."""
        if len(sends) + len(recvs) == 1:
            (peer, array), one = (recvs[0], self.comm.Recv) if recvs else (sends[0], self.comm.Send)
            return lambda: one(array, peer)
        post, push, wait = self.comm.Irecv, self.comm.Isend, MPI.Request.Waitall

        def run():
            pending = [post(array, peer) for peer, array in recvs]
            pending += [push(array, peer) for peer, array in sends]
            wait(pending)

        return run

    def barrier(self):
        return self.comm.Barrier


def _same(a, b) -> bool:
    return a.ctypes.data == b.ctypes.data


def _source(send, recv):
    return MPI.IN_PLACE if _same(send, recv) else send


def _inside(part, whole) -> bool:
    first, last = whole.ctypes.data, whole.ctypes.data + whole.nbytes
    return first <= part.ctypes.data < last


class MpiWorld(World):
    """MPI_COMM_WORLD of this process, which the import of this module has initialised."""

    backend = "mpi"
    clock = "host"

    def __init__(self):
        comm = MPI.COMM_WORLD
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._control = comm.Dup()  # so that control never meets what is timed
        self._world_group = MpiGroup(comm)
        self._made = None

    def align(self):
        self._control.Barrier()

    def reduce(self, array, how):
        result = np.ascontiguousarray(array, dtype=np.float64).copy()
        self._control.Allreduce(MPI.IN_PLACE, result, _REDOPS[how])
        return result

    def _broadcast(self, array):
        self._control.Bcast(array, 0)

    def _gather(self, array):
        rows = np.empty((self.size, array.size), dtype=np.uint8) if self.rank == 0 else None
        self._control.Gather(array, rows, 0)
        return None if rows is None else list(rows)

    def split(self, groups):
        if groups == [list(range(self.size))]:
            return self._world_group
        colour = next((i for i, members in enumerate(groups) if self.rank in members), None)
        if self._made is None or self._made[0] != groups:
            if self._made is not None and self._made[1] != MPI.COMM_NULL:
                self._made[1].Free()
            key = 0 if colour is None else groups[colour].index(self.rank)
            self._made = (groups, self._control.Split(MPI.UNDEFINED if colour is None else colour, key))
        return None if colour is None else MpiGroup(self._made[1])

    def buffer(self, size_bytes):
        return HostBuffer(size_bytes)

    def view(self, buffer, dtype_name, first, count):
        dtype = DTYPES[dtype_name]
        # MPI knows no 16-bit floats; such data only moves, so any type of that width will do.
        storage = "uint16" if dtype.name == "float16" else dtype.storage
        return buffer.bytes[first * dtype.itemsize : (first + count) * dtype.itemsize].view(storage)

    def binding_us(self, calls: int = 2000) -> float:
        """Microseconds of one Allreduce of 8 bytes on COMM_SELF: what the Python binding itself costs per call."""
        import time

        group = MpiGroup(MPI.COMM_SELF)
        send, recv = np.zeros(2, np.float32), np.zeros(2, np.float32)
        call = group.all_reduce(send, recv, "sum")
        samples = []
        for _ in range(calls):
            begin = time.perf_counter_ns()
            call()
            samples.append(time.perf_counter_ns() - begin)
        return float(np.median(samples)) / 1e3

    def library(self) -> str:
        return MPI.Get_library_version().split(",")[0].strip()

    def close(self):
        MPI.Finalize()
