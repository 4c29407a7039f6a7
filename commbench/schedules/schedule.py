"""What a schedule is: steps of messages between ranks, each message some chunks of the data.

Chunks
  all_reduce, broadcast      chunk c is slice c of the vector, n_chunks slices as equal as can be
  all_gather, reduce_scatter chunk c is the block of rank c; n_chunks = n_ranks
  all_to_all                 chunk d * n_ranks + o is what rank o sends to rank o + d (modulo n_ranks)

All messages of a step carry what their senders held before the step. A message is all rows of a step that have the
same src and dst. Ranks are 0 .. n_ranks - 1; with in-switch reduction the switch is one more, n_ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Step:
    """Row i: src[i] sends the chunks first[i] .. first[i] + count[i] - 1 to dst[i], which adds them to its own where
    reduce[i] holds and otherwise keeps them.

    every = 0: these are all rows. every = s: there are as many again with s added to every rank and, within each
    n_ranks chunks, to every chunk (modulo n_ranks), as many with 2s, and so on round all ranks.
    """

    src: np.ndarray
    dst: np.ndarray
    first: np.ndarray
    count: np.ndarray
    reduce: np.ndarray
    every: int = 0

    def dense(self, n_ranks: int, unit: int | None = None) -> "Step":
        """All rows; with `unit`, a multiple of `every`, only so many that the others follow from them by `unit`."""
        if not self.every:
            return self
        shifts = np.arange(0, unit or n_ranks, self.every)
        by, row = np.repeat(shifts, self.src.size), np.tile(np.arange(self.src.size), shifts.size)
        moved = _moved(self.first[row], self.count[row], by, n_ranks)
        row, by = row[moved.row], by[moved.row]
        src, dst = (self.src[row] + by) % n_ranks, (self.dst[row] + by) % n_ranks
        return Step(src, dst, moved.first, moved.count, self.reduce[row])

    def moved(self, by: int, modulus: int) -> "Step":
        """The same messages with the chunks `by` further, within each group of `modulus` chunks."""
        if not by % modulus:
            return self
        moved = _moved(self.first, self.count, np.full(self.src.size, by), modulus)
        row = moved.row
        return replace(
            self, src=self.src[row], dst=self.dst[row], first=moved.first, count=moved.count, reduce=self.reduce[row]
        )


def step(src, dst, first=0, count=1, reduce=False, every: int = 0) -> Step:
    """A Step from arrays or numbers, which are broadcast against each other."""
    columns = np.broadcast_arrays(*(np.atleast_1d(column) for column in (src, dst, first, count, reduce)))
    *numbers, flags = (np.ascontiguousarray(column) for column in columns)
    return Step(*(column.astype(np.int64) for column in numbers), flags.astype(bool), every)


@dataclass(frozen=True)
class _Moved:
    """Rows after a rotation of their chunks; `row` is the row that each came from."""

    row: np.ndarray
    first: np.ndarray
    count: np.ndarray


def _moved(first, count, by, modulus: int) -> _Moved:
    """Chunk ranges rotated by `by` within their group of `modulus`; one that runs over the group's end becomes two."""
    group = first // modulus * modulus
    start = (first - group + by) % modulus
    over = np.maximum(start + count - modulus, 0)
    row, split = np.arange(first.size), np.flatnonzero(over)
    return _Moved(
        np.concatenate([row, split]),
        np.concatenate([group + start, group[split]]),
        np.concatenate([count - over, over[split]]),
    )


@dataclass(frozen=True)
class Block:
    """`steps` in order, `times` times; repetition t has all chunks t * shift further within groups of `modulus`."""

    steps: tuple[Step, ...]
    times: int = 1
    shift: int = 0
    modulus: int = 0

    def reversed(self) -> "Block":
        """The block backwards in time."""
        steps = tuple(s.moved((self.times - 1) * self.shift, self.modulus) if self.shift else s for s in self.steps)
        return replace(self, steps=steps[::-1], shift=-self.shift)


@dataclass(frozen=True)
class Schedule:
    """An algorithm for one operation on n_ranks ranks. `switch`: endpoint n_ranks is a switch that reduces."""

    op: str
    name: str
    n_ranks: int
    n_chunks: int
    blocks: tuple[Block, ...]
    switch: bool = False

    def steps(self) -> Iterator[Step]:
        """Every step with all its rows, in order."""
        for block in self.blocks:
            for t in range(block.times):
                for one in block.steps:
                    moved = one.moved(t * block.shift, block.modulus) if block.shift else one
                    yield moved.dense(self.n_ranks)

    @cached_property
    def n_steps(self) -> int:
        return sum(len(block.steps) * block.times for block in self.blocks)

    @property
    def symmetry(self) -> int:
        """s > 0: every step looks the same from rank r and from rank r + s. 0: no such s is known."""
        every = [one.every for block in self.blocks for one in block.steps]
        return int(np.lcm.reduce(every)) if every and all(every) else 0


def one_by_one(steps) -> tuple[Block, ...]:
    """Steps that do not repeat, as blocks."""
    return tuple(Block((one,)) for one in steps)


def backwards(blocks: tuple[Block, ...], reduce: bool) -> tuple[Block, ...]:
    """The same messages in reverse order and direction, adding or keeping what arrives.

    Turns an all_gather in which every rank gets every block once into a reduce_scatter, and a reduce into a broadcast.
    """

    def turned(one: Step) -> Step:
        return replace(one, src=one.dst, dst=one.src, reduce=np.full(one.src.size, reduce))

    return tuple(
        replace(block.reversed(), steps=tuple(turned(s) for s in block.reversed().steps)) for block in blocks[::-1]
    )
