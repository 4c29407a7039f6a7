"""p2p_bibw: two ranks send a window of messages to each other at the same time; a sample is one message each way."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((1 - rank,), 0, call.count, 0)]


def _prepare(group, call, send, recv):
    peer = 1 - group.rank
    return group.exchange([(peer, send)] * call.window, [(peer, recv)] * call.window)


OP = Op(
    name="p2p_bibw",
    kind="p2p",
    bus_factor=lambda n: 2.0,  # both directions added, as osu_bibw prints it; algbw is one direction
    expected=_expected,
    prepare=_prepare,
    synchronising=False,
    group_size=2,
    messages=lambda call: call.window,
    windowed=True,
)
