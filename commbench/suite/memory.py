"""Is there room for the buffers of all ranks of a node? Asked before the first rank starts."""

import subprocess
from pathlib import Path

from commbench.errors import UsageError
from commbench.ops import OPS
from commbench.ops.algorithms import OWN
from commbench.ops.op import call_of
from commbench.results.plan import Plan, world_of
from commbench.units import format_bytes, format_size
from commbench.world.inventory import node_inventory

_RANK_OVERHEAD = 64 * 2**20  # what a rank that has started touches beyond the pages it shares with its parent


def needed_bytes(plan: Plan, ranks_per_node: dict[int, int]) -> tuple[int, object]:
    """(bytes that the ranks of one node need at most, the point that needs most).

    `ranks_per_node`: how many ranks of a world of that size share a node. Each rank keeps its largest send and its
    largest receive buffer; Gloo and MPI may hold one more copy of the larger one inside, and a schedule of commbench's
    own works in at most two.
    """
    heaviest, needed = None, 0
    for world in plan.worlds():
        points = [p for step in plan.steps if world_of(step) == world for p in step]
        send, recv = (max(_held(p)[side] for p in points) for side in (0, 1))
        own = [max(p.send_bytes, p.recv_bytes) for p in points if p.algorithm.startswith(OWN)]
        copy = max(max(send, recv) if world.backend != "nccl" else 0, 2 * max(own, default=0))
        sharing = ranks_per_node[world.ranks] if world.backend != "nccl" else 1  # each NCCL rank has a GPU of its own
        total = sharing * (send + recv + copy + _RANK_OVERHEAD)
        if total > needed:
            needed, heaviest = total, max(points, key=lambda p: sum(_held(p)))
    return needed, heaviest


def gpu_available_bytes() -> int | None:
    """Free bytes of the fullest visible GPU as nvidia-smi tells, without waking CUDA; None when it does not."""
    try:
        command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return min(int(line) for line in told.stdout.split()) * 2**20 if told.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _held(point) -> tuple[int, int]:
    """Bytes of the send and of the receive buffer of one rank; in place, the inner one lies in the outer one."""
    if point.kind == "layer":
        from commbench.layers import load
        from commbench.layers.layer import Place

        return (load(point.op).memory_bytes(point.params, Place(0, point.ranks)), 0) if point.status == "ok" else (0, 0)
    place = OPS[point.op].in_place
    if point.in_place and place is not None:
        outer, _ = place(call_of(point), 0)
        return (point.send_bytes, 0) if outer == "send" else (0, point.recv_bytes)
    return point.send_bytes, point.recv_bytes


def available_bytes(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> int | None:
    """Bytes of host memory that can be had: what the kernel has, or less if a cgroup allows less; None if unknown."""
    node = node_inventory(sysfs, procfs)
    known = [node[key] for key in ("memory_available_bytes", "memory_left_bytes") if node[key] is not None]
    return min(known, default=None)


def check_memory(plan: Plan, ranks_per_node: dict[int, int], available: int | None) -> None:
    """Raise UsageError "needs X, have Y" when the plan's buffers do not fit into `available` bytes."""
    needed, point = needed_bytes(plan, ranks_per_node)
    if available is not None and needed > available:
        raise UsageError(
            f"{point.op} of {format_size(point.params.get('requested_bytes', point.size_bytes))} needs "
            f"{format_bytes(needed)} for the buffers of {_place(point, ranks_per_node)}, "
            f"have {format_bytes(max(available, 0))}; use smaller sizes or fewer ranks per node"
        )


def _place(point, ranks_per_node) -> str:
    return "one GPU" if point.backend == "nccl" else f"{ranks_per_node[point.world_size]} ranks on one node"
