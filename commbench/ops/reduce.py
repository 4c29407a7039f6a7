"""reduce: the root ends with the reduction of all; what the others hold afterwards is not defined."""

from commbench.ops.op import Op, whole
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment(call.everyone, 0, call.count, 0)] if rank == call.root else []


OP = Op(
    name="reduce",
    # The whole buffer has to leave each rank but the root once.
    bus_factor=lambda n: 1.0,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.reduce(send, recv, call.redop, call.root),
    reduces=True,
    rooted=True,
    synchronising=False,
    in_place=whole,
)
