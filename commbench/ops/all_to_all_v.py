"""all_to_all_v: rank i sends matrix[i][j] elements to rank j. Size is the most that one rank sends or receives."""

from commbench.ops.op import Op
from commbench.ops.pattern import Segment


def sent_by(call, rank):
    return sum(call.matrix[rank])


def received_by(call, rank):
    return sum(row[rank] for row in call.matrix)


def _expected(call, rank):
    segments, at = [], 0
    for peer in call.everyone:
        length = call.matrix[peer][rank]
        segments.append(Segment((peer,), sum(call.matrix[peer][:rank]), length, at))
        at += length
    return segments


def _size(call):
    return max(max(sent_by(call, rank), received_by(call, rank)) for rank in call.everyone)


OP = Op(
    name="all_to_all_v",
    # As all_to_all, so that equal splits give equal figures.
    bus_factor=lambda n: (n - 1) / n,
    count=lambda elements, n: elements,
    size=_size,
    send=sent_by,
    recv=received_by,
    expected=_expected,
    prepare=lambda group, call, send, recv: group.all_to_all_v(send, recv, call.matrix),
    synchronising=False,  # ranks that exchange nothing do not wait for each other
    by_matrix=True,
)
