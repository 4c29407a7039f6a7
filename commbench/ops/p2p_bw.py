"""p2p_bw: the root sends a window of messages, the other rank acknowledges the last; a sample is one message of it.

Messages of a window share their buffers, as in osu_bw.
"""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((call.root,), 0, call.count, 0)] if rank != call.root else []


def _prepare(group, call, send, recv):
    ack, other = group.scratch(1), 1 - group.rank
    if group.rank == call.root:
        push = group.exchange([(other, send)] * call.window, [])
        wait = group.exchange([], [(other, ack)])
    else:
        push = group.exchange([], [(other, recv)] * call.window)
        wait = group.exchange([(other, ack)], [])

    def run():
        push()
        wait()

    return run


OP = Op(
    name="p2p_bw",
    kind="p2p",
    bus_factor=lambda n: 1.0,
    rooted=True,
    send=lambda call, rank: call.count if rank == call.root else 0,
    recv=lambda call, rank: call.count if rank != call.root else 0,
    expected=_expected,
    prepare=_prepare,
    synchronising=False,
    group_size=2,
    clock_ranks=lambda call: (call.root,),  # the sender's clock runs until the acknowledgement is there
    messages=lambda call: call.window,
    windowed=True,
)
