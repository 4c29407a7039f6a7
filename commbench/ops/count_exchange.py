"""count_exchange: each rank tells each other one int64, then reads what it was told on the host.

It comes before an all_to_all_v whose receivers do not know what they will get: the step of expert parallelism that
waits for the device (torchtitan, token_dispatcher.py: _sync_token_count_exchange).
"""

from commbench.ops import all_to_all
from commbench.ops.op import Op


def _prepare(group, call, send, recv):
    exchange = group.all_to_all(send, recv)

    def run():
        exchange()
        recv.tolist()  # from a GPU this waits for the stream

    return run


OP = Op(
    name="count_exchange",
    bus_factor=lambda n: 0,
    count=lambda elements, n: 1,
    size=lambda call: 0,
    send=lambda call, rank: call.world_size,
    recv=lambda call, rank: call.world_size,
    expected=all_to_all.OP.expected,
    prepare=_prepare,
    sized=False,
    fixed_dtype="int64",
)
