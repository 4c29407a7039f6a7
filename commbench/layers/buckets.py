"""Parameters in buckets: consecutive matrices that are sent as one, and the memory that such sending needs."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Bucket:
    """Matrices `first` to `last` (exclusive); `begins`: where each one lies in the bucket. `filled`: their elements;
    `elements`: with as many more as give the ranks that share it equal parts."""

    first: int
    last: int
    begins: tuple[int, ...]
    filled: int
    elements: int

    def view(self, flat: torch.Tensor, matrix: int, shape) -> torch.Tensor:
        """The matrix of this number within the bucket that lies in `flat`."""
        return flat.narrow(0, self.begins[matrix - self.first], shape[0] * shape[1]).view(shape)


def cut_into_buckets(sizes: list[int], at_least: int, parts: int) -> list[Bucket]:
    """Buckets of whole matrices with `sizes` elements: each is closed when it holds `at_least`, as torch's DDP does."""
    buckets, begins, filled, first = [], [], 0, 0
    for number, size in enumerate(sizes):
        begins.append(filled)
        filled += size
        if filled >= at_least or number == len(sizes) - 1:
            buckets.append(Bucket(first, number + 1, tuple(begins), filled, -(-filled // parts) * parts))
            begins, filled, first = [], 0, number + 1
    return buckets


class Pool:
    """Flat tensors that are lent and given back, so that sending allocates nothing after the first step."""

    def __init__(self, device: str):
        self.held_bytes = 0  # lent or not
        self._device, self._free = device, {}

    def take(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of old data."""
        free = self._free.setdefault((elements, dtype), [])
        if free:
            return free.pop()
        self.held_bytes += elements * dtype.itemsize
        return torch.zeros(elements, dtype=dtype, device=self._device)

    def give(self, tensor: torch.Tensor) -> None:
        self._free[tensor.numel(), tensor.dtype].append(tensor)


def held_bytes(tensors) -> int:
    """Bytes of the memory that lies under `tensors`, each piece once."""
    under = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(under.values())
