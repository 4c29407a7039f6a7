"""How much memory a call takes beyond what it gets and gives, and how much a device has left."""

import os

import torch

from commbench.world.inventory import node_inventory


def peak_bytes(call, device: str) -> int:
    """The most that `call` holds at any moment beyond its inputs and its result.

    On a CPU from torch's own allocator as the profiler sees it (temporaries inside an operator count too), on a GPU
    from the caching allocator. What a library takes past torch's allocator is not seen.
    """
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        torch.cuda.synchronize()
        return max(0, torch.cuda.max_memory_allocated() - before - _bytes(result))
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to the terminal otherwise
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        result = call()
    kind = torch._C._profiler._EventType.Allocation
    nodes = _all(seen.profiler.kineto_results.experimental_event_tree())
    events = sorted((node for node in nodes if node.tag == kind), key=lambda node: node.start_time_ns)
    held = most = 0
    for event in events:
        held += event.extra_fields.alloc_size  # negative where memory is given back
        most = max(most, held)
    return max(0, most - _bytes(result))


def free_bytes(device: str) -> int | None:
    """What is left of the device's memory; None where nothing tells."""
    if device != "cpu":
        return torch.cuda.mem_get_info()[0]
    node = node_inventory()
    known = [node[name] for name in ("memory_available_bytes", "memory_left_bytes") if node[name] is not None]
    return min(known, default=None)


def _bytes(result) -> int:
    tensors = [result] if torch.is_tensor(result) else result
    return sum(x.untyped_storage().nbytes() for x in tensors)


def _all(nodes):
    for node in nodes:
        yield node
        yield from _all(node.children)
