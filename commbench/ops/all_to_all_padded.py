"""all_to_all_padded: the exchange of all_to_all_v in blocks that are all as large as the largest (a fixed capacity).

Size is that of the same all_to_all_v, the most that one rank sends or receives before padding, so that the two compare.
"""

from commbench.ops import all_to_all_v
from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def block(call) -> int:
    """The elements of each block: the largest that any rank has for any other."""
    return max(max(row) for row in call.matrix)


def _buffer(call, rank):
    return block(call) * call.world_size


def _expected(call, rank):
    length = block(call)
    return [Segment((peer,), rank * length, length, peer * length) for peer in call.everyone]


OP = Op(
    name="all_to_all_padded",
    # As all_to_all_v: the padding is no data.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements,
    size=all_to_all_v.OP.size,
    send=_buffer,
    recv=_buffer,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.all_to_all(send, recv),
    by_matrix=True,
)
