"""gather: the root ends with the blocks of all, in rank order. Size is the gathered total."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((peer,), 0, call.count, peer * call.count) for peer in call.everyone] if rank == call.root else []


OP = Op(
    name="gather",
    # The root owns 1/n of the result; the other (n-1)/n have to enter it.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements // n,
    size=lambda call: call.count * call.world_size,
    recv=lambda call, rank: call.count * call.world_size if rank == call.root else 0,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.gather(send, recv, call.root),
    rooted=True,
    synchronising=False,
)
