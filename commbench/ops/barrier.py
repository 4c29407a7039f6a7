"""barrier: no rank leaves before the last one has come. It has no size and no bandwidth."""

from commbench.ops.op import Op

OP = Op(
    name="barrier",
    bus_factor=lambda n: 0.0,
    count=lambda elements, n: 0,
    expected=lambda call, rank: [],
    prepare=lambda group, call, send, recv: group.barrier(),
    sized=False,
)
