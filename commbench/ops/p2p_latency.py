"""p2p_latency: ping-pong between two ranks; a sample is one message, half of the round trip."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((1 - rank,), 0, call.count, 0)]


def _prepare(group, call, send, recv):
    there = group.exchange([(1 - group.rank, send)], [])
    back = group.exchange([], [(1 - group.rank, recv)])
    first, second = (there, back) if group.rank == 0 else (back, there)

    def run():
        first()
        second()

    return run


OP = Op(
    name="p2p_latency",
    kind="p2p",
    bus_factor=lambda n: 1.0,
    expected=_expected,
    prepare=_prepare,
    synchronising=False,
    group_size=2,
    clock_ranks=lambda call: (0,),  # only rank 0 sees a whole round trip
    messages=lambda call: 2,
)
