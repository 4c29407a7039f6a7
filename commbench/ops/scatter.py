"""scatter: rank r ends with block r of the root's buffer. Size is the root's total."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def _expected(call, rank):
    return [Segment((call.root,), rank * call.count, call.count, 0)]


OP = Op(
    name="scatter",
    # The root keeps 1/n of its buffer; the other (n-1)/n have to leave it.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements // n,
    size=lambda call: call.count * call.world_size,
    send=lambda call, rank: call.count * call.world_size if rank == call.root else 0,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.scatter(send, recv, call.root),
    rooted=True,
    synchronising=False,
)
