"""MPI through mpi4py's buffer calls (upper case: no pickle, no copy)."""

from functools import partial
from time import perf_counter

import numpy as np
from mpi4py import MPI

from commbench.timing.stopwatch import isolated
from commbench.world.buffers import HostBuffer
from commbench.world.dtypes import DTYPES
from commbench.world.world import World

_REDOPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}
_ARITHMETIC = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


_MOST_KEPT = 4  # communicators of splits at a time: a layer sends over several, rounds of pairs over one each

# Naming the datatype spares mpi4py the look at the array's format: 0.15 us of each call.
_TYPES = {
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE, "int8": MPI.INT8_T, "uint8": MPI.UINT8_T, "int32": MPI.INT32_T,
    "int64": MPI.INT64_T, "uint16": MPI.UINT16_T,
}  # fmt: skip


def _typed(array: np.ndarray, *counts) -> list:
    return [array, *counts, _TYPES[array.dtype.name]]


class MpiGroup:
    """A communicator whose methods return ready calls; arrays are flat numpy arrays.

    The calls are partials of mpi4py's own methods: no Python frame of ours is in the timed region.
    """

    piece_bytes = 1 << 20  # of a message that is added on arrival

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def start(self):
        """The calls of layers, which start and wait apart. torch is loaded for them alone."""
        from commbench.world.mpi_start import MpiStart

        return MpiStart(self.comm)

    def scratch(self, count: int):
        return np.zeros(count, dtype=np.uint8)

    def all_reduce(self, send, recv, redop):
        return partial(self.comm.Allreduce, _source(send, recv), _typed(recv), _REDOPS[redop])

    def broadcast(self, send, recv, root):
        call = partial(self.comm.Bcast, _typed(recv), root)
        if self.rank == root and not _same(send, recv):

            def copied():  # MPI_Bcast has one buffer
                recv[:] = send
                call()

            return copied
        return call

    def reduce(self, send, recv, redop, root):
        if self.rank != root:
            return partial(self.comm.Reduce, _typed(send), None, _REDOPS[redop], root)
        return partial(self.comm.Reduce, _source(send, recv), _typed(recv), _REDOPS[redop], root)

    def all_gather(self, send, recv):
        source = MPI.IN_PLACE if _inside(send, recv) else _typed(send)
        return partial(self.comm.Allgather, source, _typed(recv))

    def reduce_scatter(self, send, recv, redop):
        if _inside(recv, send):
            return partial(self.comm.Reduce_scatter_block, MPI.IN_PLACE, _typed(send), _REDOPS[redop])
        return partial(self.comm.Reduce_scatter_block, _typed(send), _typed(recv), _REDOPS[redop])

    def gather(self, send, recv, root):
        return partial(self.comm.Gather, _typed(send), _typed(recv) if self.rank == root else None, root)

    def scatter(self, send, recv, root):
        return partial(self.comm.Scatter, _typed(send) if self.rank == root else None, _typed(recv), root)

    def all_to_all(self, send, recv):
        return partial(self.comm.Alltoall, _source(send, recv), _typed(recv))

    def all_to_all_v(self, send, recv, matrix):
        outgoing = _typed(send, list(matrix[self.rank]))
        incoming = _typed(recv, [row[self.rank] for row in matrix])
        return partial(self.comm.Alltoallv, outgoing, incoming)

    def exchange(self, sends, recvs, then=None):
        """All of `sends` and `recvs`, lists of (peer, array), at once. Receives are posted first.

        then[i] is called when recvs[i] is there, while the later ones may still be on their way.
        """
        outs, ins = [(_typed(array), peer) for peer, array in sends], [(_typed(array), peer) for peer, array in recvs]
        if len(outs) + len(ins) == 1 and not then:
            return partial(self.comm.Recv, *ins[0]) if ins else partial(self.comm.Send, *outs[0])
        post, push, wait = self.comm.Irecv, self.comm.Isend, MPI.Request.Waitall

        def run():
            incoming = [post(array, peer) for array, peer in ins]
            outgoing = [push(array, peer) for array, peer in outs]
            if then:
                for request, after in zip(incoming, then):
                    request.Wait()
                    after()
            else:
                outgoing += incoming
            wait(outgoing)

        return run

    def like(self, array, count):
        return np.empty(count, dtype=array.dtype)

    def copy(self, to, source):
        return partial(np.copyto, to, source)

    def accumulate(self, into, part, redop):
        """into = into redop part."""
        return partial(_ARITHMETIC[redop], into, part, out=into)

    def barrier(self):
        return self.comm.Barrier


def _same(a, b) -> bool:
    return a.ctypes.data == b.ctypes.data


def _source(send, recv):
    return MPI.IN_PLACE if _same(send, recv) else _typed(send)


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
        self.align = self._control.Barrier
        self._world_group = MpiGroup(comm)
        self._made = {}  # list of groups: the communicator of this rank's

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
        key = tuple(map(tuple, groups))
        if key not in self._made:
            if len(self._made) == _MOST_KEPT:
                oldest = self._made.pop(next(iter(self._made)))
                if oldest != MPI.COMM_NULL:
                    oldest.Free()
            place = 0 if colour is None else groups[colour].index(self.rank)
            self._made[key] = self._control.Split(MPI.UNDEFINED if colour is None else colour, place)
        return None if colour is None else MpiGroup(self._made[key])

    def buffer(self, size_bytes):
        return HostBuffer(size_bytes)

    def view(self, buffer, dtype_name, first, count):
        dtype = DTYPES[dtype_name]
        # MPI knows no 16-bit floats; such data only moves, so any type of that width will do.
        storage = "uint16" if dtype.name == "float16" else dtype.storage
        return buffer.bytes[first * dtype.itemsize : (first + count) * dtype.itemsize].view(storage)

    def binding_us(self, calls: int = 2000, budget_s: float = 0.5) -> float:
        """Microseconds that the Python binding costs in an isolated sample: an Allreduce of 8 bytes on COMM_SELF.

        Taken as samples are, right after an alignment, where the interpreter is as cold as for them; fewer than
        `calls`, but 20, where alignments over a slow network would take longer than the budget. Every rank calls it.
        """
        send, recv = np.zeros(2, np.float32), np.zeros(2, np.float32)
        call = MpiGroup(MPI.COMM_SELF).all_reduce(send, recv, "sum")
        first = isolated(call, self.align, 20, lambda i: None)
        self.align()
        begin = perf_counter()
        self.align()
        once_s = float(self.reduce(np.array([perf_counter() - begin]), "max")[0])
        more = min(calls, int(budget_s / once_s)) - 20
        found = first if more <= 0 else isolated(call, self.align, more, lambda i: None)
        return float(np.median(found))

    def library(self) -> str:
        return MPI.Get_library_version().splitlines()[0].split(",")[0].strip()

    def close(self):
        MPI.Finalize()
