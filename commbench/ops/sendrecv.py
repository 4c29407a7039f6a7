"""sendrecv: a ring shift; each rank sends to the next and receives from the one before. One direction is counted."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment(((rank - 1) % call.world_size,), 0, call.count, 0)]


def _prepare(group, call, send, recv):
    after, before = (group.rank + 1) % call.world_size, (group.rank - 1) % call.world_size
    return group.exchange([(after, send)], [(before, recv)])


OP = Op(
    name="sendrecv",
    kind="p2p",
    bus_factor=lambda n: 1.0,  # what leaves a rank is the size itself
    expected=_expected,
    prepare=_prepare,
    synchronising=False,  # a rank waits for its two neighbours only
)
