"""all_gather: every rank ends with the blocks of all, in rank order. Size is the gathered total."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((peer,), 0, call.count, peer * call.count) for peer in call.everyone]


OP = Op(
    name="all_gather",
    # A rank owns 1/n of the result; the other (n-1)/n have to come in.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements // n,
    size=lambda call: call.count * call.world_size,
    recv=lambda call, rank: call.count * call.world_size,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.all_gather(send, recv),
    in_place=lambda call, rank: ("recv", rank * call.count),
)
