"""p2p_bw: rank 0 sends a window of messages, rank 1 acknowledges the last; a sample is one message of the window.

Messages of a window share their buffers, as in osu_bw.
"""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((0,), 0, call.count, 0)] if rank == 1 else []


def _prepare(group, call, send, recv):
    ack = group.scratch(1)
    if group.rank == 0:
        push = group.exchange([(1, send)] * call.window, [])
        wait = group.exchange([], [(1, ack)])
    else:
        push = group.exchange([], [(0, recv)] * call.window)
        wait = group.exchange([(0, ack)], [])

    def run():
        push()
        wait()

    return run


OP = Op(
    name="p2p_bw",
    kind="p2p",
    bus_factor=lambda n: 1.0,
    send=lambda call, rank: call.count if rank == 0 else 0,
    recv=lambda call, rank: call.count if rank == 1 else 0,
    expected=_expected,
    prepare=_prepare,
    synchronising=False,
    group_size=2,
    clock_ranks=(0,),  # the sender's clock runs until the acknowledgement is there
    messages=lambda call: call.window,
    windowed=True,
)
