"""What a layer sends through: every call is counted, can be left out, and can be sent again without the computation.

A layer is written once, over a Wire for each of its groups. The tape that its wires share then gives three runs of it:
as it is (t_together), with the calls left out (t_compute), and the calls alone in their order (t_comm).
"""

from dataclasses import dataclass, field
from functools import partial

import torch


@dataclass
class Tape:
    """What the wires of one layer have in common. `on`: calls are made. `events`: what was called while recording."""

    on: bool = True
    events: list | None = None
    counts: dict[str, list[int]] = field(default_factory=dict)  # "tp.all_reduce": [calls, bytes]
    sent_to: dict[int, int] = field(default_factory=dict)  # rank of the layer: bytes of messages and all_to_alls

    def record(self, step) -> dict[str, list[int]]:
        """Run `step` once, counting; the calls that it made, with their bytes in nccl-tests' "size"."""
        self.events, self.counts, self.sent_to = [], {}, {}
        step()
        return self.counts

    def replay(self):
        """A function that makes the recorded calls again, on memory of its own, and waits where the layer waited."""
        script = _script(self.events)

        def run():
            pending = {}
            for number, call in script:
                if call is None:
                    pending.pop(number).wait()
                else:
                    pending[number] = call()
            for work in pending.values():
                work.wait()

        return run

    def stop(self) -> None:
        """No more recording; the layer's own tensors are let go."""
        self.events = None


def _script(events):
    """[(number, call or None for its wait)]. A buffer is used again once the call that had it has been waited for."""
    free, held, script = {}, {}, []
    for number, what in events:
        if what is None:
            for tensor in held.pop(number):
                free.setdefault((tensor.numel(), tensor.dtype), []).append(tensor)
            script.append((number, None))
            continue
        call, shapes = what
        tensors = []
        for shape, dtype, device in shapes:
            kept = free.get((shape.numel(), dtype))
            tensors.append((kept.pop() if kept else torch.zeros(shape, dtype=dtype, device=device)).view(shape))
        held[number] = tensors
        script.append((number, partial(call, tensors)))
    return script


class Wire:
    """One group of ranks as a layer sees it: `rank` of `size`. Every call returns something to wait() for.

    `members`: the layer's numbers of the ranks. Tensors are contiguous. A group of one copies and counts nothing.
    """

    def __init__(self, group, tape: Tape, name: str, members: list[int]):
        self.rank, self.size, self._members = group.rank, group.size, members
        self._start, self._tape, self._name = group.start(), tape, name

    @property
    def on(self) -> bool:
        """False while the computation is timed alone: calls are left out, and buffers hold what they held."""
        return self._tape.on

    @property
    def process_group(self):
        """torch's group, for a runtime that sends by itself, which is not counted. MPI has none."""
        return self._start.process_group

    @property
    def sent_to(self) -> dict[int, int]:
        """Bytes to each rank of the layer, of all wires together, in the step that was recorded."""
        return self._tape.sent_to

    def all_reduce(self, tensor):
        """The sum over ranks, in place."""
        return self._begin("all_reduce", [tensor], [tensor], lambda t: self._start.all_reduce(*t))

    def all_gather(self, out, tensor):
        """The ranks' tensors one after another."""
        if self.size == 1:
            out.view(-1).copy_(tensor.view(-1))
        return self._begin("all_gather", [out, tensor], [out], lambda t: self._start.all_gather(*t))

    def reduce_scatter(self, out, tensor):
        """This rank's part of the sum over ranks."""
        if self.size == 1:
            out.view(-1).copy_(tensor.view(-1))
        return self._begin("reduce_scatter", [out, tensor], [tensor], lambda t: self._start.reduce_scatter(*t))

    def all_to_all(self, out, tensor, out_splits, in_splits):
        """Rows of the first dimension: in_splits[j] of them go to rank j, out_splits[j] come from it."""
        if self.size == 1:
            out.copy_(tensor)
        row_bytes = tensor.nbytes // max(tensor.shape[0], 1)
        self._send(enumerate(rows * row_bytes for rows in in_splits))
        return self._begin(
            "all_to_all", [out, tensor], [tensor], lambda t: self._start.all_to_all(*t, out_splits, in_splits)
        )

    def exchange(self, recvs, sends):
        """Messages, lists of (peer, tensor), all at once. Counted as "send", a call for each message sent."""
        incoming, outgoing = [tensor for _, tensor in recvs], [tensor for _, tensor in sends]
        peers = [peer for peer, _ in recvs], [peer for peer, _ in sends]
        self._send((peer, tensor.nbytes) for peer, tensor in sends)
        return self._begin("send", incoming + outgoing, outgoing, lambda t: self._start.exchange(t, *peers))

    def _send(self, messages) -> None:
        if self._tape.events is not None:
            for peer, size_bytes in messages:
                to = self._members[peer]
                self._tape.sent_to[to] = self._tape.sent_to.get(to, 0) + size_bytes

    def _begin(self, op: str, tensors, counted, call):
        """Make the call on `tensors`. `counted`: those whose bytes are counted, a call for each."""
        tape = self._tape
        if self.size == 1 or not tape.on:
            return DONE
        if tape.events is None:
            return call(tensors)
        count = tape.counts.setdefault(f"{self._name}.{op}" if self._name else op, [0, 0])
        count[0] += len(counted)
        count[1] += sum(tensor.nbytes for tensor in counted)
        number = len(tape.events)
        tape.events.append((number, (call, [(t.shape, t.dtype, t.device) for t in tensors])))
        return _Recorded(call(tensors), tape.events, number)


class _Done:
    def wait(self):
        """Nothing was started."""


DONE = _Done()


@dataclass(frozen=True)
class _Recorded:
    work: object
    events: list
    number: int

    def wait(self):
        self.work.wait()
        self.events.append((self.number, None))


def wire_bytes(op: str, size_bytes: float, n: int) -> float:
    """Bytes that one rank of `n` sends for a call of nccl-tests' size by ring (2(n-1)/n for all_reduce, (n-1)/n for
    all_gather and reduce_scatter) or directly; an all_to_all's and a message's own bytes are known to the layer."""
    return size_bytes * {"all_reduce": 2 * (n - 1) / n, "send": 1.0}.get(op, (n - 1) / n)
