"""The memory that is sent and received: page-aligned on the host, plain allocations on a GPU."""

import mmap

import numpy as np


class HostBuffer:
    """`size_bytes` of page-aligned host memory; `bytes` is a uint8 array over it."""

    aligned = True

    def __init__(self, size_bytes: int):
        # An anonymous map starts on a page; numpy's own allocations are aligned to 64 bytes only.
        self._map = mmap.mmap(-1, max(size_bytes, 1))
        self.bytes = np.frombuffer(self._map, dtype=np.uint8)[:size_bytes]

    def write(self, offset: int, data: np.ndarray) -> None:
        raw = data.view(np.uint8)
        self.bytes[offset : offset + raw.size] = raw

    def read(self, offset: int, size_bytes: int) -> np.ndarray:
        return self.bytes[offset : offset + size_bytes]

    def poison(self) -> None:
        """0xFF everywhere: NaN in every float type, -1 or 255 in the integers; no pattern holds it."""
        self.bytes.fill(0xFF)


class CudaBuffer:
    """`size_bytes` of memory on the current GPU; reads and writes go through the host."""

    aligned = True  # the caching allocator hands out multiples of 512 bytes

    def __init__(self, size_bytes: int):
        import torch

        self.tensor = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")

    def write(self, offset: int, data: np.ndarray) -> None:
        import torch

        raw = torch.from_numpy(data.view(np.uint8))
        self.tensor[offset : offset + raw.numel()].copy_(raw)

    def read(self, offset: int, size_bytes: int) -> np.ndarray:
        return self.tensor[offset : offset + size_bytes].cpu().numpy()

    def poison(self) -> None:
        self.tensor.fill_(0xFF)
