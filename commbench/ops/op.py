"""What an operation states about itself. Each file of this folder holds one such record."""

from collections.abc import Callable
from dataclasses import dataclass

from commbench.ops.pattern import Segment
from commbench.routing.recipe import matrix_of


@dataclass(frozen=True)
class Call:
    """One operation on one group, with everything its size rule, its data and its call depend on.

    `count` is nccl-tests' count column: elements per rank of the smaller side (elements per peer for all_to_all).
    """

    world_size: int
    count: int
    root: int = 0
    redop: str = "none"
    in_place: bool = False
    window: int = 1
    matrix: tuple[tuple[int, ...], ...] = ()  # operations by_matrix: elements that rank i sends to rank j
    result_at_front: bool = False  # MPI puts the in-place result of reduce_scatter at the start of the buffer

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.world_size))


def call_of(point) -> Call:
    """The call that a point (results/records.py) stands for: ranks within its group, elements in place of bytes."""
    return Call(
        world_size=len(point.members),
        count=point.count,
        root=max(point.root, 0),
        redop=point.redop,
        in_place=point.in_place,
        window=point.params.get("window", 1),
        matrix=matrix_of(point.params, len(point.members), point.count),
        result_at_front=point.backend == "mpi",
    )


def _same_as_count(call: Call, rank: int) -> int:
    return call.count


@dataclass(frozen=True)
class Op:
    """A collective or point-to-point operation.

    count(elements, n): the count for a size of `elements`; size(call): elements of nccl-tests' "size".
    send(call, rank), recv(call, rank): elements of each buffer. expected(call, rank): what recv must hold afterwards.
    prepare(group, call, send, recv): a function without arguments that runs the operation once, to its end on a CPU and
    to its place in the stream on a GPU. bus_factor(n): busbw / algbw.
    """

    name: str
    bus_factor: Callable[[int], float]
    prepare: Callable
    expected: Callable[[Call, int], list[Segment]]
    count: Callable[[int, int], int] = lambda elements, n: elements
    size: Callable[[Call], int] = lambda call: call.count
    send: Callable[[Call, int], int] = _same_as_count
    recv: Callable[[Call, int], int] = _same_as_count
    kind: str = "collective"
    reduces: bool = False
    rooted: bool = False
    sized: bool = True  # False for barrier: it moves no data
    synchronising: bool = True  # no rank can end before the last one began, so lateness shows as skew
    group_size: int | None = None  # 2 for pairs; None where any number of ranks takes part
    in_place: Callable[[Call, int], tuple[str, int]] | None = None  # (buffer that is shared, offset of the other in it)
    in_place_checkable: bool = True
    clock_ranks: Callable[[Call], tuple[int, ...]] | None = None  # ranks whose clock counts; None for all of them
    messages: Callable[[Call], int] = lambda call: 1  # times per sample: a ping-pong holds 2 one-way messages
    windowed: bool = False
    by_matrix: bool = False  # what each rank sends to each stands in a matrix
    fixed_dtype: str = ""  # of an operation without a size that moves data: the one type that it moves


def whole(call: Call, rank: int) -> tuple[str, int]:
    """Send and receive buffer are one and the same."""
    return "recv", 0
