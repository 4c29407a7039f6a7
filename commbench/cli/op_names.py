"""The names of the operations, for help texts: importing this costs nothing."""

OP_NAMES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all",
    "all_to_all_v", "all_to_all_padded", "count_exchange", "sendrecv", "p2p_latency", "p2p_bw", "p2p_bibw", "barrier",
)  # fmt: skip
