"""all_to_all: rank r ends with block r of every rank. Size is one rank's whole send buffer."""

from commbench.ops.op import Op, whole
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((peer,), rank * call.count, call.count, peer * call.count) for peer in call.everyone]


OP = Op(
    name="all_to_all",
    # The block that a rank sends to itself, 1/n of its buffer, needs no wire.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements // n,
    size=lambda call: call.count * call.world_size,
    send=lambda call, rank: call.count * call.world_size,
    recv=lambda call, rank: call.count * call.world_size,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.all_to_all(send, recv),
    in_place=whole,
    in_place_checkable=False,  # a block may be overwritten before it is sent, as in nccl-tests
)
