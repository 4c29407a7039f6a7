"""A schedule from the point of view of one rank: which memory goes where, step by step. No data is touched here.

Memory is named: "send" and "recv" are the operation's own, "work" holds a reduce_scatter in progress, "transit" blocks
that are only passed on, "stage" messages whose chunks do not lie side by side. A message goes from where its chunks lie
to where they belong without a copy wherever both are in one piece; what is to be added is received straight into the
result as long as the own contribution still lies in the input.
"""

from dataclasses import dataclass

import numpy as np

from commbench.schedules.counting import bounds
from commbench.schedules.schedule import Schedule, Step


@dataclass(frozen=True)
class Run:
    """Elements begin .. end - 1 of one buffer."""

    buffer: str
    begin: int
    end: int


@dataclass(frozen=True)
class Copy:
    to: Run
    source: Run


@dataclass(frozen=True)
class Add:
    into: Run
    part: Run


@dataclass(frozen=True)
class Message:
    """`run` to or from `peer`. reduce: the receiver adds it. then: what the receiver does when it is there."""

    peer: int
    run: Run
    reduce: bool
    then: tuple[Copy | Add, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """The messages of one step, all at once."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


def plan(schedule: Schedule, rank: int, count: int, in_place: bool) -> list[Copy | Exchange]:
    """What `rank` does, in order. `count`: elements of the vector (all_reduce, broadcast), else of a block."""
    places = _Places(schedule, rank, count, in_place)
    actions = places.fill()
    for one in schedule.steps():
        actions += _step(places, one, rank)
    return actions + places.finish()


def _step(places: "_Places", one: Step, rank: int) -> list[Copy | Exchange]:
    before, sends, receives, staged = [], [], [], 0
    outgoing, incoming = list(_messages(one, one.src, one.dst, rank)), list(_messages(one, one.dst, one.src, rank))
    for peer, chunks, reduce in outgoing:
        runs = places.runs(chunks, places.now)
        if len(runs) > 1:
            stage = _side_by_side("stage", staged, runs)
            staged = stage[-1].end
            before += [Copy(to, source) for to, source in zip(stage, runs)]
            runs = [_joined(stage)]
        sends += [Message(peer, run, reduce) for run in runs]
    for peer, chunks, reduce in incoming:
        own, left = places.runs(chunks, places.now), places.bring_home(chunks)
        home = places.arrive(chunks)
        if len(home) == 1 and not reduce:
            receives.append(Message(peer, home[0], reduce))
        elif len(home) == len(own) == 1 and own[0].buffer != home[0].buffer:
            receives.append(Message(peer, home[0], reduce, (Add(home[0], own[0]),)))
        elif home:
            stage = _side_by_side("stage", staged, home)
            staged = stage[-1].end
            then = left if reduce else []
            then += [(Add if reduce else Copy)(run, part) for run, part in zip(home, stage)]
            receives.append(Message(peer, _joined(stage), reduce, tuple(then)))
    places.leave(chunk for _, chunks, _ in outgoing for chunk in chunks)
    return before + ([Exchange(tuple(sends), tuple(receives))] if sends or receives else [])


def _messages(one: Step, ends, others, rank: int):
    """(the other rank, the chunks in order, whether they are added) of each message with `rank` at this end."""
    rows = np.flatnonzero(ends == rank)
    for other in dict.fromkeys(others[rows].tolist()):
        of = rows[others[rows] == other]
        chunks = [c for i in of for c in range(int(one.first[i]), int(one.first[i] + one.count[i]))]
        yield other, chunks, bool(one.reduce[of[0]])


def _side_by_side(buffer: str, begin: int, runs: list[Run]) -> list[Run]:
    ends = begin + np.cumsum([run.end - run.begin for run in runs])
    return [Run(buffer, int(end) - (run.end - run.begin), int(end)) for run, end in zip(runs, ends)]


def _joined(runs: list[Run]) -> Run:
    return Run(runs[0].buffer, runs[0].begin, runs[-1].end)


class _Places:
    """Where each chunk lies now, and where it belongs, as (buffer, element)."""

    def __init__(self, schedule: Schedule, rank: int, count: int, in_place: bool):
        self.op, self.rank, self.count, n = schedule.op, rank, count, schedule.n_ranks
        chunk = np.arange(schedule.n_chunks)
        at = bounds(schedule.n_chunks, count, whole_blocks=self.op not in ("all_reduce", "broadcast"))
        self.size = np.diff(at)
        self.free, self.in_transit = [], 0
        if self.op == "all_to_all":
            distance, origin = np.divmod(chunk, n)
            receiver = (origin + distance) % n
            self.home = {int(c): ("recv", int(origin[c]) * count) for c in chunk[receiver == rank]}
            self.now = {int(c): ("send", int(receiver[c]) * count) for c in chunk[origin == rank]}
        else:
            result = "work" if self.op == "reduce_scatter" else "recv"
            self.home = {int(c): (result, int(at[c])) for c in chunk}
            input_ = "send" if self.op == "reduce_scatter" or not in_place else "recv"
            moved_first = self.op in ("all_gather", "broadcast")
            self.now = dict(self.home) if moved_first else {c: (input_, at) for c, (_, at) in self.home.items()}

    def fill(self) -> list[Copy]:
        """What is copied from the input before the first step, where it does not lie there already."""
        own = Run("recv", self.rank * self.count, (self.rank + 1) * self.count)
        if self.op == "all_gather" and self.count:
            return [Copy(own, Run("send", 0, self.count))]
        if self.op == "broadcast" and self.rank == 0 and self.count:
            return [Copy(Run("recv", 0, self.count), Run("send", 0, self.count))]
        return self.bring_home([self.rank]) if self.op == "all_to_all" else []  # chunk `rank`: the block for itself

    def finish(self) -> list[Copy]:
        """What is left in another place than the result."""
        if self.op == "reduce_scatter" and self.count:
            buffer, begin = self.now[self.rank]
            return [Copy(Run("recv", 0, self.count), Run(buffer, begin, begin + self.count))]
        return self.bring_home(self.now) if self.op == "all_reduce" else []

    def bring_home(self, chunks) -> list[Copy]:
        """Copies of those of `chunks` that still lie in the input; they have the same offset there as in the result."""
        untouched = [c for c in chunks if c in self.home and self.now.get(c, self.home[c]) != self.home[c]]
        result = self.home[untouched[0]][0] if untouched else ""
        return [Copy(Run(result, run.begin, run.end), run) for run in self.runs(untouched, self.now)]

    def runs(self, chunks, places) -> list[Run]:
        """The memory of `chunks` in their order, neighbours joined; none for chunks without elements."""
        runs = []
        for c in chunks:
            if c not in places or not self.size[c]:
                continue
            buffer, begin = places[c]
            end = begin + int(self.size[c])
            if runs and runs[-1].buffer == buffer and runs[-1].end == begin:
                runs[-1] = Run(buffer, runs[-1].begin, end)
            else:
                runs.append(Run(buffer, begin, end))
        return runs

    def arrive(self, chunks) -> list[Run]:
        """`chunks` are at home from now on, or in transit where this rank only passes them on; their memory."""
        for c in chunks:
            if c not in self.home:
                block = self.free.pop() if self.free else self.in_transit
                self.in_transit = max(self.in_transit, block + 1)
                self.home[c] = ("transit", block * self.count)
            self.now[c] = self.home[c]
        return self.runs(chunks, self.now)

    def leave(self, chunks) -> None:
        """Blocks that were only passed on are gone, and their memory is free."""
        for c in chunks:
            if self.now.get(c, ("",))[0] == "transit":
                self.free.append(self.now.pop(c)[1] // max(self.count, 1))
                del self.home[c]
