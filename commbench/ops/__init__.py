"""The operations: a table of records, one file each."""

from commbench.ops import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_padded,
    all_to_all_v,
    barrier,
    broadcast,
    count_exchange,
    gather,
    p2p_bibw,
    p2p_bw,
    p2p_latency,
    reduce,
    reduce_scatter,
    scatter,
    sendrecv,
)

OPS = {
    module.OP.name: module.OP
    for module in (
        all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all, all_to_all_v,
        all_to_all_padded, count_exchange, sendrecv, p2p_latency, p2p_bw, p2p_bibw, barrier,
    )
}  # fmt: skip
