"""What NCCL says of itself under NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING.

Rank 0 of a communicator prints a line for each collective it plans, in one of two forms (NVIDIA/nccl src/enqueue.cc):
    AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}      (since 2.24)
    AllReduce: 1024 Bytes -> Algo 1 proto 0 time 12.345000                  (2.23; before it without the operation)
The bytes are count x element size, which is per rank for AllGather and ReduceScatter; 2.23 gives their total.
Send, receive and alltoall print none.
"""

import re

_TUNING = re.compile(
    r"\b([A-Za-z]+): +(\d+) Bytes -> Algo (\w+) proto (\w+)(?: (?:channel\S*?=\{(\d+)\.\.(\d+)\}|time [\d.]+))?"
)
_OPS = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast", "Reduce": "reduce",
}  # fmt: skip
# The numbers are positions in ncclAlgoStr and ncclProtoStr (NVIDIA/nccl src/include/nccl_common.h, src/init.cc).
_ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")


def _name(text: str, names: tuple[str, ...]) -> str:
    if not text.isdigit():
        return text.lower().replace("_", "")  # NVLS_TREE in this line, NVLSTree elsewhere
    return names[int(text)] if int(text) < len(names) else f"number {text}"


def tuning(text: str, world_size: int) -> dict[str, list[str]]:
    """{"all_reduce 1024": ["ring", "ll"]}: operation and nccl-tests size to algorithm and protocol.

    A size that was planned in two ways (two groups, two runs) reads "ring, tree".
    """
    seen: dict[str, list[set]] = {}
    for function, size, algorithm, protocol, _, _ in _TUNING.findall(text):
        op = _OPS.get(function)
        if op is None:
            continue
        per_rank = op in ("all_gather", "reduce_scatter") and not algorithm.isdigit()
        total = int(size) * (world_size if per_rank else 1)
        pair = seen.setdefault(f"{op} {total}", [set(), set()])
        pair[0].add(_name(algorithm, _ALGORITHMS))
        pair[1].add(_name(protocol, _PROTOCOLS))
    return {key: [", ".join(sorted(names)) for names in pair] for key, pair in seen.items()}


def library_facts(text: str) -> dict:
    """Transports, plugin, GPUDirect and channels, as far as the log tells."""
    facts = {}
    transports = set(re.findall(r"\bvia ((?:P2P|SHM|NET|NVLS|COLLNET)(?:/\w+)*)", text))
    if transports:
        facts["transports"] = sorted(transports)
    network = re.search(r"Using network (.*\S)", text)  # a name may have a blank: AWS Libfabric
    if network:
        facts["network"] = network[1]
    plugin = re.search(r"NET/Plugin: Loaded net plugin (.+) \(v\d+\)", text)
    if plugin:
        facts["plugin"] = plugin[1]
    if "GDRDMA" in text or re.search(r"GPU Direct RDMA Enabled", text):
        facts["gpudirect"] = True
    elif "GPU Direct RDMA Disabled" in text or "NET/Socket" in text:
        facts["gpudirect"] = False
    channels = re.search(
        r"\b(\d+) coll channels, (?:(\d+) collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels", text
    )
    if channels:
        facts["channels"] = {
            "collective": int(channels[1]), "collnet": int(channels[2] or 0),
            "nvls": int(channels[3] or 0), "p2p": int(channels[4]),
        }  # fmt: skip
    version = re.search(r"NCCL version (\S+)", text)
    if version:
        facts["version"] = version[1]
    return facts
