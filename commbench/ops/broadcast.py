"""broadcast: every rank ends with the root's buffer."""

from commbench.ops.op import Op, whole
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((call.root,), 0, call.count, 0)]


OP = Op(
    name="broadcast",
    # The whole buffer has to enter each rank but the root once.
    bus_factor=lambda n: 1.0,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.broadcast(send, recv, call.root),
    rooted=True,
    synchronising=False,
    in_place=whole,
)
