"""CUDA events and CUDA graphs. Written from the documentation; unverified until a GPU has run it.

The alignment is enqueued on the stream, and the host does not wait between it and the start event: a host wait there
would put the launch latency of every rank into the sample.
"""

import numpy as np
import torch


def isolated(call, align, samples: int, mark) -> np.ndarray:
    """As stopwatch.isolated, between two events per sample; microseconds."""
    return streaming(call, align, samples, 1, mark)


def streaming(call, align, samples: int, batch: int, mark) -> np.ndarray:
    """As stopwatch.streaming, between two events per batch; microseconds."""
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(samples)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(samples)]
    for i in range(samples):
        mark(i)
        align()
        begins[i].record()
        for _ in range(batch):
            call()
        ends[i].record()
    torch.cuda.synchronize()
    return np.array([b.elapsed_time(e) for b, e in zip(begins, ends, strict=True)]) * 1e3 / batch


def captured(call, batch: int):
    """`batch` calls captured in a CUDA graph; returns the function that replays them."""
    call()  # first use sets up connections, which cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # thread_local: the watchdog thread of torch's NCCL backend asks for events while we capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(batch):
            call()
    return graph.replay
