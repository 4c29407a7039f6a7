"""One rank's part in a point: buffers laid out, the call ready to run, the result ready to be checked."""

from dataclasses import dataclass

from commbench.ops import OPS
from commbench.ops.op import call_of
from commbench.ops.pattern import Pattern, count_wrong, fill
from commbench.results.records import Point
from commbench.schedules import catalogue, execute
from commbench.world.dtypes import DTYPES


class Buffers:
    """The send and receive memory of one rank; grows to the largest point so far."""

    def __init__(self, world):
        self._world, self._held = world, {}

    def get(self, name: str, size_bytes: int):
        held = self._held.get(name)
        if held is None or held[0] < size_bytes:
            self._held[name] = None  # let go of the old memory before asking for the new
            self._held[name] = (size_bytes, self._world.buffer(size_bytes))
        return self._held[name][1]


class Prepared:
    """One rank's part in a point: its buffers laid out, its call ready, its result checkable."""

    def __init__(self, world, group, point: Point, buffers: Buffers):
        self.op, self.point, self.rank = OPS[point.op], point, group.rank
        self.call = call_of(point)
        self.pattern = Pattern(len(point.members), DTYPES[point.dtype], point.redop)
        itemsize = self.pattern.dtype.itemsize
        counts = {"send": self.op.send(self.call, self.rank), "recv": self.op.recv(self.call, self.rank)}
        first = {"send": 0, "recv": 0}
        home = {"send": "send", "recv": "recv"}
        if point.in_place:
            outer, offset = self.op.in_place(self.call, self.rank)
            inner = "send" if outer == "recv" else "recv"
            home[inner], first[inner] = outer, offset
        self.counts, self.first = counts, first
        self.buffer = {side: buffers.get(home[side], counts[home[side]] * itemsize) for side in counts}
        self.aligned = all(buffer.aligned for buffer in self.buffer.values())
        send, recv = (world.view(self.buffer[s], point.dtype, first[s], counts[s]) for s in ("send", "recv"))
        self.run = _prepare(group, self.op, point, self.call, send, recv)

    def refill(self) -> None:
        """Poison what will be received, then write what will be sent."""
        self.buffer["recv"].poison()
        itemsize = self.pattern.dtype.itemsize
        shifted = _Shifted(self.buffer["send"], self.first["send"] * itemsize)
        fill(shifted, self.pattern, self.rank, self.counts["send"])

    def wrong(self) -> tuple[int, float]:
        shifted = _Shifted(self.buffer["recv"], self.first["recv"] * self.pattern.dtype.itemsize)
        return count_wrong(shifted, self.pattern, self.op.expected(self.call, self.rank))

    @property
    def checkable(self) -> bool:
        by_design = not self.point.in_place or self.op.in_place_checkable or self.point.backend == "mpi"
        return by_design and (self.op.sized or bool(self.op.fixed_dtype))


def _prepare(group, op, point: Point, call, send, recv):
    """The library's call, or commbench's own schedule for it, ready to run."""
    family, _, name = point.algorithm.partition(":")
    if family != "own":
        return op.prepare(group, call, send, recv)
    params = point.params
    schedule = catalogue.build(point.op, name, group.size, params.get("per_node", 1), params.get("pieces", 1))
    return execute.prepare(group, schedule, call, send, recv)


@dataclass(frozen=True)
class _Shifted:
    """A buffer seen from byte `offset` on."""

    buffer: object
    offset: int

    def write(self, at, data):
        self.buffer.write(self.offset + at, data)

    def read(self, at, size_bytes):
        return self.buffer.read(self.offset + at, size_bytes)
