"""What the ranks of a pipeline schedule send one another, and in which order each of them starts it.

All messages stand in one order, that of the end of the cells that make them in a run with F, B and W of one length.
Every rank starts its own messages, sends and receives, in this order: a receive before the first cell that would still
run when the message is sent. So a receive is posted before its message is sent wherever that is possible; the messages
of a pair of ranks are received in the order in which they are sent, which is all that sends without tags need; and no
rank ever waits in a circle, even where calls run strictly one after another (a stream of NCCL): whatever a message
waits for stands before it in the one order.
"""

from typing import NamedTuple

from commbench.schedules.stages import FORWARD, WEIGHT, StageSchedule, result, sources
from commbench.schedules.stages_simulate import Costs, Timeline, simulate


class Message(NamedTuple):
    """The output of stage `stage` ("F"), or the gradient of its input ("B"), from rank src to rank dst."""

    kind: str
    micro_batch: int
    stage: int
    src: int
    dst: int


def messages_in(schedule: StageSchedule, rank: int, k: int) -> list[Message]:
    """What the k-th cell of `rank` needs of other ranks."""
    found = []
    for action in schedule.rows[rank][k]:
        for source in sources(schedule, action):
            if (src := schedule.rank_of[source.stage]) != rank:
                found.append(Message(*source, src, rank))
    return found


def messages_out(schedule: StageSchedule, rank: int, k: int) -> list[Message]:
    """What the k-th cell of `rank` makes for other ranks."""
    found = []
    for action in schedule.rows[rank][k]:
        kind, micro_batch, stage = result(action)
        ends = schedule.is_last(stage) if kind == FORWARD else schedule.is_first(stage)
        if kind == WEIGHT or ends:
            continue
        dst = schedule.rank_of[stage + 1 if kind == FORWARD else stage - 1]
        if dst != rank:
            found.append(Message(kind, micro_batch, stage, rank, dst))
    return found


def posts(schedule: StageSchedule) -> list[list[list[Message]]]:
    """posts[rank][k]: what the rank starts before its k-th cell, in order; a last entry for what follows the last.

    A message whose src is the rank is a send of what the cell before made, any other a receive. Raises Deadlock where
    the cells wait for one another.
    """
    timeline = simulate(schedule, Costs())
    sent = []  # (end, message, the sender's boundary)
    for rank, row in enumerate(schedule.rows):
        for k in range(len(row)):
            sent += [(timeline.ends[rank][k], message, k + 1) for message in messages_out(schedule, rank, k)]
    table = [[[] for _ in range(len(row) + 1)] for row in schedule.rows]
    for end, message, boundary in sorted(sent):
        table[message.src][boundary].append(message)
        table[message.dst][_first_running(timeline, message.dst, end)].append(message)
    return table


def _first_running(timeline: Timeline, rank: int, time: float) -> int:
    """The first cell of `rank` that ends after `time`."""
    return int(timeline.ends[rank].searchsorted(time, side="right"))
