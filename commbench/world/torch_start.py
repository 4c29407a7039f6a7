"""Calls on torch tensors that are started and waited for apart, through a ProcessGroup: what layers send by.

Each function returns something with wait(). Gloo works in threads of its own meanwhile, NCCL in its own stream.
"""

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d


class TorchStart:
    """`pg`'s collectives; tensors are contiguous, ranks count within the group."""

    def __init__(self, pg, device: str):
        self._pg, self._device = pg, device

    @property
    def process_group(self):
        return self._pg

    def all_reduce(self, tensor):
        return self._pg.allreduce([tensor], c10d.AllreduceOptions())

    def all_gather(self, out, tensor):
        return self._pg._allgather_base(out, tensor, c10d.AllgatherOptions())

    def reduce_scatter(self, out, tensor):
        return self._pg._reduce_scatter_base(out, tensor, c10d.ReduceScatterOptions())

    def all_to_all(self, out, tensor, out_splits, in_splits):
        """Rows of the first dimension."""
        return self._pg.alltoall_base(out, tensor, list(out_splits), list(in_splits), c10d.AllToAllOptions())

    def exchange(self, tensors, recvs, sends):
        """tensors: those received, then those sent. recvs, sends: the peer of each. Receives are posted first."""
        incoming, outgoing = tensors[: len(recvs)], tensors[len(recvs) :]
        if self._device != "cpu":  # one NCCL group call
            posts = [dist.P2POp(dist.irecv, t, group=self._pg, group_peer=p) for p, t in zip(recvs, incoming)]
            posts += [dist.P2POp(dist.isend, t, group=self._pg, group_peer=p) for p, t in zip(sends, outgoing)]
            return Several(dist.batch_isend_irecv(posts))
        works = [self._pg.recv([tensor], peer, 0) for peer, tensor in zip(recvs, incoming)]
        return Several(works + [self._pg.send([tensor], peer, 0) for peer, tensor in zip(sends, outgoing)])


class Several:
    """Works that are waited for together."""

    def __init__(self, works):
        self._works = works

    def wait(self):
        for work in self._works:
            work.wait()
