"""reduce_scatter: rank r ends with block r of the reduction of all. Size is the total that each rank puts in."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment(call.everyone, rank * call.count, call.count, 0)]


OP = Op(
    name="reduce_scatter",
    # A rank keeps 1/n of what it put in; (n-1)/n have to go out to the ranks that reduce them.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements // n,
    size=lambda call: call.count * call.world_size,
    send=lambda call, rank: call.count * call.world_size,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.reduce_scatter(send, recv, call.redop),
    reduces=True,
    in_place=lambda call, rank: ("send", 0 if call.result_at_front else rank * call.count),
)
