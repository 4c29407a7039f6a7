"""The algorithms and protocols of NCCL, for which collective each may be forced, and how.

Source: NVIDIA/nccl 5067397c (2.30), src/graph/tuning.cc: functions and algorithms lines 294 to 298, protocols 301 to
303 and 338 to 339, NVLSTree on one node line 502; names ncclAlgoStr, ncclProtoStr and ncclFuncStr in src/init.cc. What
the machine itself lacks (NVSwitch, SHARP, LL128 over this network) only NCCL knows: it then refuses the call.
Unverified until a GPU has run it.
"""

PROTOCOLS = ("ll", "ll128", "simple")
_TWO_SIDED = ("ring", "pat", "nvls", "collnetdirect")
# Operation to (the function's name in NCCL_ALGO, its algorithms).
FUNCTIONS = {
    "all_reduce": ("allreduce", ("ring", "tree", "nvls", "nvlstree", "collnetdirect", "collnetchain")),
    "all_gather": ("allgather", _TWO_SIDED),
    "reduce_scatter": ("reducescatter", _TWO_SIDED),
    "broadcast": ("broadcast", ("ring",)),
    "reduce": ("reduce", ("ring",)),
}
ALGORITHMS = ("ring", "tree", "nvls", "nvlstree", "collnetdirect", "collnetchain", "pat")
_SIMPLE_ONLY = ("nvls", "nvlstree", "collnetdirect", "collnetchain", "pat")
PER_FUNCTION = (2, 24)  # the first NCCL that takes "allreduce:ring": parseList() in tuning.cc

# How NCCL words that it has no such algorithm on this machine, or for this type (src/enqueue.cc, 2.24 and newer).
UNAVAILABLE = "no algorithm/protocol available for function"


def environment(algorithm: str, protocol: str) -> dict[str, str]:
    """The variables that force `algorithm` for every collective that has it, in communicators that are made afterwards.

    Function by function, since NCCL refuses a call that is left without any algorithm.
    """
    functions = [name for name, algorithms in FUNCTIONS.values() if algorithm in algorithms]
    forced = {"NCCL_ALGO": ";".join(f"{name}:{algorithm}" for name in functions)}
    if protocol != "default":
        forced["NCCL_PROTO"] = ";".join(f"{name}:{protocol}" for name in functions)
    return forced


def refusal(op: str, algorithm: str, protocol: str, ranks: int, nodes: int) -> str | None:
    """Why NCCL cannot be made to run `algorithm` for `op`, in one sentence; None where it may."""
    if op not in FUNCTIONS:
        return f"NCCL has no algorithms to choose from for {op}: it is made of sends and receives"
    names = FUNCTIONS[op][1]
    if algorithm not in names:
        return f"NCCL has no {algorithm} for {op}; it has {', '.join(names)}"
    if algorithm in _SIMPLE_ONLY and protocol not in ("default", "simple"):
        return f"NCCL runs {algorithm} by the protocol simple only, not by {protocol}"
    if ranks < 2:
        return "a group of one rank sends nothing, so no algorithm runs"
    if algorithm == "nvlstree" and nodes == 1:
        return "NCCL's nvlstree is for several nodes, these ranks are on one; there it is nvls"
    return None
