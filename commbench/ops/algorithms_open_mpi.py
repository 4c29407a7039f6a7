"""The algorithms of Open MPI's `tuned` component, how one is forced, and when it silently runs another one.

Names and numbers: `ompi_info --all --level 9` of Open MPI 5.0.11 (5.0 and newer; 4.1 has most of them under the same
numbers). What runs instead: open-mpi/ompi ompi/mca/coll/base/coll_base_*.c at v5.0.10, where the message
"switching to ..." is compiled out of release builds, so that nothing but the source tells it.
"""

from commbench.ops.op import Call

SEGMENT_BYTES = {"segmented_ring": 1 << 20, "pipeline": 1 << 17}  # what Open MPI itself took for them; forced, it is 0

_BROADCAST = (
    "basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial",
    "scatter_allgather", "scatter_allgather_ring",
)  # fmt: skip
_REDUCE = ("linear", "chain", "pipeline", "binary", "binomial", "in_order_binary", "rabenseifner")
# Operation to (collective in the parameter's name, algorithms by rising number from 1).
TUNED = {
    "all_reduce": (
        "allreduce",
        ("basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring", "rabenseifner"),
    ),
    "all_gather": (
        "allgather",
        ("linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc", "sparbit"),
    ),
    "reduce_scatter": (
        "reduce_scatter_block",
        ("basic_linear", "recursive_doubling", "recursive_halving", "butterfly"),
    ),
    "broadcast": ("bcast", _BROADCAST),
    "reduce": ("reduce", _REDUCE),
    "gather": ("gather", ("basic_linear", "binomial", "linear_sync")),
    "scatter": ("scatter", ("basic_linear", "binomial", "linear_nb")),
    "all_to_all": ("alltoall", ("linear", "pairwise", "modified_bruck", "linear_sync", "two_proc")),
    "all_to_all_v": ("alltoallv", ("basic_linear", "pairwise")),
    "barrier": ("barrier", ("linear", "double_ring", "recursive_doubling", "bruck", "two_proc", "tree")),
}


def number(op: str, algorithm: str) -> int:
    """The number by which `coll_tuned_<collective>_algorithm` takes an algorithm."""
    return TUNED[op][1].index(algorithm) + 1


def environment(op: str, algorithm: str) -> dict[str, str]:
    """The variables that force `algorithm` for `op` in processes that have not called MPI_Init yet.

    Without the list of components `han` may take the call across nodes, and it does not heed these parameters.
    """
    parameter = f"OMPI_MCA_coll_tuned_{TUNED[op][0]}_algorithm"
    forced = {
        "OMPI_MCA_coll": "basic,libnbc,self,inter,tuned",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        parameter: str(number(op, algorithm)),
    }
    if algorithm in SEGMENT_BYTES:
        forced[f"{parameter}_segmentsize"] = str(SEGMENT_BYTES[algorithm])
    return forced


def refusal(op: str, algorithm: str, protocol: str, call: Call, itemsize: int, world_size: int) -> str | None:
    """Why Open MPI would not run `algorithm` for this call, in one sentence; None where it does."""
    if op not in TUNED:
        return f"Open MPI has no algorithms to choose from for {op}"
    names = TUNED[op][1]
    if algorithm not in names:
        return f"Open MPI has no {algorithm} for {op}; it has {', '.join(names)}"
    if protocol != "default":
        return f"Open MPI has no protocol {protocol} to choose; leave out /{protocol}"
    if call.world_size < 2:
        return "a group of one rank sends nothing, so no algorithm runs"
    if algorithm == "two_proc" and world_size != 2:
        return f"two_proc is for a world of 2 ranks, this one has {world_size}"
    other = _instead(op, algorithm, call, itemsize)
    return None if other is None else f"Open MPI runs {other[0]} in place of {algorithm} {other[1]}"


def _instead(op: str, algorithm: str, call: Call, itemsize: int) -> tuple[str, str] | None:
    """(what Open MPI runs when `algorithm` is forced, when it does so)."""
    n, count = call.world_size, call.count
    below = 1 << (n.bit_length() - 1)  # the largest power of two that is not above n
    match op, algorithm:
        case ("all_reduce", "ring") if count < n:
            return "recursive_doubling", f"below one element a rank ({count} for {n} ranks)"
        case ("all_reduce", "segmented_ring") if count * itemsize < n * SEGMENT_BYTES[algorithm]:
            return "ring", f"below one segment of 1 MiB a rank ({n} MiB for {n} ranks)"
        case ("all_reduce", "rabenseifner") if count < below:
            return "basic_linear", f"below {below} elements for {n} ranks"
        case ("reduce", "rabenseifner") if count < below:
            return "linear", f"below {below} elements for {n} ranks"
        case ("all_gather", "recursive_doubling") if n != below:
            return "bruck", f"where the ranks are no power of two ({n})"
        case ("all_gather", "neighbor") if n % 2:
            return "ring", f"for an odd number of ranks ({n})"
        case ("reduce_scatter", "recursive_doubling") if n * count >= 2**31:
            return "basic_linear", "from 2^31 elements on"
        case ("broadcast", "scatter_allgather" | "scatter_allgather_ring") if count < n:
            return "basic_linear", f"below one element a rank ({count} for {n} ranks)"
        case ("broadcast", "split_binary_tree") if count < 2:
            return "chain", "below 2 elements"
        case ("all_to_all" | "all_to_all_v", _) if call.in_place:
            return "its only in-place exchange", "in place"
    if op != "barrier" and not count:
        return "nothing", "without data"
    return None
