"""all_reduce: every rank ends with the reduction of all."""

from commbench.ops.op import Op, whole
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment(call.everyone, 0, call.count, 0)]


OP = Op(
    name="all_reduce",
    # Each element must leave and enter every rank 2(n-1)/n times: a reduce_scatter, then an all_gather.
    bus_factor=lambda n: 2 * (n - 1) / n,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.all_reduce(send, recv, call.redop),
    reduces=True,
    in_place=whole,
)
