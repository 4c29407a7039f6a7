"""Gloo and NCCL through torch.distributed.

Calls go to the ProcessGroup itself. The functions of torch.distributed add some microseconds of argument checks to
each call and have changed their names between versions; the methods below have not since torch 1.8.
"""

import os
from datetime import timedelta
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from commbench.world.buffers import CudaBuffer, HostBuffer
from commbench.world.forced import own_choice
from commbench.world.torch_start import TorchStart
from commbench.world.world import World

_REDOPS = {
    "sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}  # fmt: skip

_ARITHMETIC = {
    "sum": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum, "avg": torch.add,
}  # fmt: skip

_MOST_KEPT = 4  # lists of NCCL groups at a time: a layer sends over several, rounds of pairs over one each

_NCCL_REDOPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}  # ncclRedOp_t


class TorchGroup:
    """A process group whose methods return ready calls; tensors are flat. `rank` and roots count within the group."""

    def __init__(self, pg, rank: int, size: int, device: str):
        self.pg, self.rank, self.size, self.device = pg, rank, size, device
        self.piece_bytes = 1 << 20 if device == "cpu" else 0  # of a message that is added on arrival; 0: whole
        self._direct = None  # NCCL communicator of our own, made when first needed

    def start(self):
        """The calls of layers, which start and wait apart."""
        return TorchStart(self.pg, self.device)

    def scratch(self, count: int):
        return torch.zeros(count, dtype=torch.uint8, device=self.device)

    def all_reduce(self, send, recv, redop):
        if self.device == "cuda" and send.data_ptr() != recv.data_ptr():
            return self._all_reduce_out_of_place(send, recv, redop)
        options = c10d.AllreduceOptions()
        options.reduceOp = _REDOPS[redop]
        call, tensors = self.pg.allreduce, [recv]
        return _copy_first(send, recv, lambda: call(tensors, options).wait())

    def _all_reduce_out_of_place(self, send, recv, redop):
        """ncclAllReduce from one buffer to another, which a ProcessGroup does not offer, through torch.cuda.nccl.

        Unverified until a GPU has run it.
        """
        nccl = torch.cuda.nccl
        if self._direct is None:
            identity = nccl.unique_id() if self.rank == 0 else bytes(128)
            shared = torch.frombuffer(bytearray(identity), dtype=torch.uint8).to("cuda")
            self.broadcast(shared, shared, 0)()
            self._direct = nccl.init_rank(self.size, shared.cpu().numpy().tobytes(), self.rank)
        op, comms = _NCCL_REDOPS[redop], [self._direct]
        call, inputs, outputs, streams = nccl.all_reduce, [send], [recv], [torch.cuda.current_stream()]
        return lambda: call(inputs, outputs, op, streams, comms)

    def broadcast(self, send, recv, root):
        options = c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        call, tensors = self.pg.broadcast, [recv]
        run = lambda: call(tensors, options).wait()  # noqa: E731
        return _copy_first(send, recv, run) if self.rank == root else run

    def reduce(self, send, recv, redop, root):
        options = c10d.ReduceOptions()
        options.reduceOp, options.rootRank, options.rootTensor = _REDOPS[redop], root, 0
        call, tensors = self.pg.reduce, [recv]
        return _copy_first(send, recv, lambda: call(tensors, options).wait())

    def all_gather(self, send, recv):
        options = c10d.AllgatherOptions()
        call = self.pg._allgather_base
        return lambda: call(recv, send, options).wait()

    def reduce_scatter(self, send, recv, redop):
        options = c10d.ReduceScatterOptions()
        options.reduceOp = _REDOPS[redop]
        call = self.pg._reduce_scatter_base
        return lambda: call(recv, send, options).wait()

    def gather(self, send, recv, root):
        options = c10d.GatherOptions()
        options.rootRank = root
        outputs = [list(recv.chunk(self.size)) if recv.numel() else [recv] * self.size] if self.rank == root else []
        call, inputs = self.pg.gather, [send]
        return lambda: call(outputs, inputs, options).wait()

    def scatter(self, send, recv, root):
        options = c10d.ScatterOptions()
        options.rootRank = root
        inputs = [list(send.chunk(self.size)) if send.numel() else [send] * self.size] if self.rank == root else []
        call, outputs = self.pg.scatter, [recv]
        return lambda: call(outputs, inputs, options).wait()

    def all_to_all(self, send, recv):
        options = c10d.AllToAllOptions()
        call = self.pg.alltoall_base
        return lambda: call(recv, send, [], [], options).wait()

    def all_to_all_v(self, send, recv, matrix):
        options = c10d.AllToAllOptions()
        call = self.pg.alltoall_base
        out_splits, in_splits = [row[self.rank] for row in matrix], list(matrix[self.rank])
        return lambda: call(recv, send, out_splits, in_splits, options).wait()

    def exchange(self, sends, recvs, then=None):
        """All of `sends` and `recvs`, lists of (peer, tensor), at once. Receives are posted first.

        then[i] is called when recvs[i] is there, while the later ones may still be on their way.
        """
        if self.device != "cpu":
            return self._coalesced(sends, recvs, then or ())
        post, push = self.pg.recv, self.pg.send
        ins, outs = [([tensor], peer) for peer, tensor in recvs], [([tensor], peer) for peer, tensor in sends]
        if len(ins) + len(outs) == 1 and not then:  # a ping-pong needs no lists of work
            one, (tensors, peer) = (post, ins[0]) if ins else (push, outs[0])
            return lambda: one(tensors, peer, 0).wait()
        then = then or [_nothing] * len(ins)

        def run():
            incoming = [post(tensors, peer, 0) for tensors, peer in ins]
            outgoing = [push(tensors, peer, 0) for tensors, peer in outs]
            for work, after in zip(incoming, then):
                work.wait()
                after()
            for work in outgoing:
                work.wait()

        return run

    def _coalesced(self, sends, recvs, then):
        # One NCCL group call: sends and receives that wait for each other must be launched together.
        operations = [dist.P2POp(dist.irecv, tensor, group=self.pg, group_peer=peer) for peer, tensor in recvs]
        operations += [dist.P2POp(dist.isend, tensor, group=self.pg, group_peer=peer) for peer, tensor in sends]

        def run():
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            for after in then:
                after()

        return run

    def like(self, array, count):
        return torch.empty(count, dtype=array.dtype, device=array.device)

    def copy(self, to, source):
        return partial(to.copy_, source)

    def accumulate(self, into, part, redop):
        """into = into redop part; an average is a sum until divide()."""
        return partial(_ARITHMETIC[redop], into, part, out=into)

    def divide(self, array, by):
        return partial(array.div_, by)

    def barrier(self):
        options = c10d.BarrierOptions()
        if self.device != "cpu":
            options.device_ids = [torch.cuda.current_device()]
        call = self.pg.barrier
        return lambda: call(options).wait()


def _nothing():
    """What follows a message that is received in its place."""


def _copy_first(send, recv, run):
    """A ProcessGroup reduces and broadcasts in place only: out of place is a copy from send to recv, then the call."""
    if send.data_ptr() == recv.data_ptr():
        return run
    copy = recv.copy_

    def copied():
        copy(send)
        run()

    return copied


class TorchWorld(World):
    """A world over Gloo (host memory) or NCCL (GPU memory).

    `store` is the rendezvous store; the device of an NCCL rank must be current before this is called.
    """

    def __init__(self, backend: str, rank: int, size: int, store, timeout_s: float):
        self.backend, self.rank, self.size = backend, rank, size
        self.device = "cuda" if backend == "nccl" else "cpu"
        self.clock = "cuda_event" if backend == "nccl" else "host"
        bound = {}
        if backend == "nccl":
            # NCCL groups are split off a world that is bound to a device, see split(). torch 2.6 would then poll its
            # communicators, which the timed calls are not to do.
            os.environ.setdefault("TORCH_NCCL_USE_COMM_NONBLOCKING", "0")
            bound = {"device_id": torch.device("cuda", torch.cuda.current_device())}
        limit = timedelta(seconds=timeout_s)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit, **bound)
        everyone = dist.group.WORLD
        self._world_group = TorchGroup(everyone, rank, size, self.device)
        self._made = {}  # list of groups: the one of this rank
        if self.device == "cpu":
            self._control, self.align = everyone, TorchGroup(everyone, rank, size, "cpu").barrier()
        else:
            # Decisions on NCCL travel on a communicator of their own, so that they never sit in the timed one, and no
            # forced algorithm is for it.
            with own_choice():
                self._control = dist.new_group()
                mark = torch.zeros(1, device="cuda")
                self.align = TorchGroup(self._control, rank, size, "cuda").all_reduce(mark, mark, "sum")
                self.align()
                torch.cuda.synchronize()

    def finish(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def reduce(self, array, how):
        tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64).copy()).to(self.device)
        TorchGroup(self._control, self.rank, self.size, self.device).all_reduce(tensor, tensor, how)()
        return tensor.cpu().numpy()

    def _broadcast(self, array):
        tensor = torch.from_numpy(array).to(self.device)
        TorchGroup(self._control, self.rank, self.size, self.device).broadcast(tensor, tensor, 0)()
        array[:] = tensor.cpu().numpy()

    def _gather(self, array):
        tensor = torch.from_numpy(array).to(self.device)
        rows = torch.empty(array.size * self.size if self.rank == 0 else 0, dtype=torch.uint8, device=self.device)
        TorchGroup(self._control, self.rank, self.size, self.device).gather(tensor, rows, 0)()
        return list(rows.cpu().numpy().reshape(self.size, -1)) if self.rank == 0 else None

    def split(self, groups):
        if groups == [list(range(self.size))]:
            return self._world_group
        members = next((members for members in groups if self.rank in members), None)
        key = tuple(map(tuple, groups))
        if key not in self._made:
            self._made[key] = self._nccl_group(groups, members) if self.device == "cuda" else self._gloo_group(members)
        return self._made[key] if members else None

    def _nccl_group(self, groups, members):
        """One communicator split for the whole list, in which every rank of the world takes part; the oldest is
        destroyed. A split meets through its parent, so nobody can read what a dead group of its name has left in the
        store. Unverified until a GPU has run it.
        """
        if len(self._made) == _MOST_KEPT:
            oldest = self._made.pop(next(iter(self._made)))
            if oldest is not None:
                dist.destroy_process_group(oldest.pg)
        pg = dist.split_group(split_ranks=[list(group) for group in groups])
        return TorchGroup(pg, members.index(self.rank), len(members), self.device) if members else None

    def _gloo_group(self, members):
        """Gloo has no split; with local synchronisation only the members of a group take part in making it.

        torch names it by its members and by how many groups this rank has, so each rank makes one for every new list of
        groups, whoever is in none of them one of its own. A group is kept: one that is destroyed and made again could
        get its old name, and would read its dead predecessor's addresses in the store.
        """
        own = members or [self.rank]
        pg = dist.new_group(own, use_local_synchronization=True)
        return TorchGroup(pg, own.index(self.rank), len(own), self.device)

    def buffer(self, size_bytes):
        return CudaBuffer(size_bytes) if self.device == "cuda" else HostBuffer(size_bytes)

    def view(self, buffer, dtype_name, first, count):
        whole = buffer.tensor if self.device == "cuda" else torch.from_numpy(buffer.bytes)
        dtype = getattr(torch, dtype_name)
        return whole[first * dtype.itemsize : (first + count) * dtype.itemsize].view(dtype)

    def close(self):
        dist.destroy_process_group()
