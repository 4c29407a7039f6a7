"""What the figures mean: for each operation its size, and busbw / algbw with the reason for it."""

# op: (what "size" is, busbw / algbw for n ranks, why), as the files in commbench/ops state them.
FACTORS = {
    "all_reduce": (
        "the buffer of a rank",
        "2(n-1)/n",
        "each element is reduced over the ranks, then handed to all of them: a reduce_scatter and an all_gather",
    ),
    "all_gather": ("the gathered total", "(n-1)/n", "a rank owns 1/n of the result; the rest has to come in"),
    "reduce_scatter": (
        "the total that a rank puts in",
        "(n-1)/n",
        "a rank keeps 1/n of what it put in; the rest has to go out",
    ),
    "broadcast": ("the buffer", "1", "the whole buffer has to enter each rank but the root"),
    "reduce": ("the buffer of a rank", "1", "the whole buffer has to leave each rank but the root"),
    "gather": ("the gathered total", "(n-1)/n", "the root owns 1/n of the result; the rest has to enter it"),
    "scatter": ("the root's total", "(n-1)/n", "the root keeps 1/n of its buffer; the rest has to leave it"),
    "all_to_all": ("one rank's whole send buffer", "(n-1)/n", "the block a rank sends to itself needs no wire"),
    "all_to_all_v": (
        "the most that one rank sends or receives",
        "(n-1)/n",
        "as all_to_all, so that equal splits give equal figures",
    ),
    "all_to_all_padded": (
        "the most that one rank sends or receives before padding",
        "(n-1)/n",
        "as all_to_all_v: the padding is no data",
    ),
    "count_exchange": ("none", "none", "8 bytes for each rank are read on the host: it has a time and no bandwidth"),
    "sendrecv": ("what a rank sends to the next one", "1", "one direction is counted"),
    "p2p_latency": ("one message", "1", "the time is half of a round trip"),
    "p2p_bw": ("one message of the window", "1", "one direction; the window is timed until it is acknowledged"),
    "p2p_bibw": ("one message each way", "2", "both directions added; algbw is one direction"),
    "barrier": ("none", "none", "it moves no data, so it has a time and no bandwidth"),
}
