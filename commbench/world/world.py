"""What a world of ranks offers, whatever library moves the bytes.

Two kinds of talk go through a world. *Groups* carry what is timed: their methods prepare a call and return a function
without arguments. *Control* carries decisions and results between timed regions: share, gather, reduce, align.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

_HEAD = 4096  # bytes of the first message of share(); most decisions fit in it


class World(ABC):
    """A formed world: `rank` of `size`, every rank reachable. Subclasses supply the transport.

    align(): no rank goes on before all have come (on a GPU it is enqueued on the stream, and the host does not wait).
    It is an attribute, so that it can be the library's own function: between the alignment and the first clock reading
    there is no Python frame to leave.
    """

    rank: int
    size: int
    backend: str
    clock: str  # "host" or "cuda_event"
    align: Callable[[], None]

    def share(self, value=None):
        """Rank 0's `value` (anything JSON can hold) on every rank."""
        head = np.zeros(_HEAD, dtype=np.uint8)
        text = b""
        if self.rank == 0:
            text = json.dumps(value).encode()
            head[:8] = np.frombuffer(len(text).to_bytes(8, "little"), dtype=np.uint8)
            part = text[: _HEAD - 8]
            head[8 : 8 + len(part)] = np.frombuffer(part, dtype=np.uint8)
        self._broadcast(head)
        length = int.from_bytes(head[:8].tobytes(), "little")
        if length <= _HEAD - 8:
            return json.loads(head[8 : 8 + length].tobytes())
        body = np.frombuffer(text, dtype=np.uint8).copy() if self.rank == 0 else np.zeros(length, dtype=np.uint8)
        self._broadcast(body)
        return json.loads(body.tobytes())

    def gather(self, value) -> list | None:
        """Every rank's `value` in rank order on rank 0, None elsewhere. Values need not be equally long."""
        text = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
        longest = int(self.reduce(np.array([text.size], dtype=np.float64), "max")[0])
        padded = np.full(longest, ord(" "), dtype=np.uint8)
        padded[: text.size] = text
        rows = self._gather(padded)
        return None if rows is None else [json.loads(row.tobytes()) for row in rows]

    def finish(self) -> None:  # noqa: B027
        """The host waits for what is enqueued on the device; on a CPU nothing ever is."""

    @abstractmethod
    def reduce(self, array: np.ndarray, how: str) -> np.ndarray:
        """Element-wise "max" or "sum" of a float64 array over all ranks, the same on every rank."""

    @abstractmethod
    def _broadcast(self, array: np.ndarray) -> None:
        """Overwrite the uint8 `array` with rank 0's."""

    @abstractmethod
    def _gather(self, array: np.ndarray) -> list[np.ndarray] | None:
        """The uint8 arrays (equally long) of all ranks on rank 0."""

    @abstractmethod
    def split(self, groups: list[list[int]]):
        """The group of `groups` that holds this rank, or None. Called by all ranks with the same lists."""

    @abstractmethod
    def buffer(self, size_bytes: int):
        """Memory to send from or to receive into."""

    @abstractmethod
    def view(self, buffer, dtype_name: str, first: int, count: int):
        """`count` elements of `buffer` from element `first` on, as the library wants them; slices like an array."""

    @abstractmethod
    def close(self) -> None:
        """Leave the world. Every rank calls it."""
