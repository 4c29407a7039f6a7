"""Is a pipeline schedule one that trains? Each part of it is looked at by itself, and what is wrong is said."""

from collections import Counter

from commbench.schedules.stages import BACKWARD, FORWARD, INPUT, WEIGHT, Action, StageSchedule
from commbench.schedules.stages_messages import messages_in, posts
from commbench.schedules.stages_simulate import Costs, simulate


def check(schedule: StageSchedule) -> None:
    """Raise ValueError unless each micro-batch passes each stage of its chain once, forward and backward, where the
    stage lies; nothing is needed before it is made (Deadlock); and each message is sent once, received once, in time,
    in the order of its pair of ranks."""
    _whole(schedule)
    simulate(schedule, Costs())
    _messages(schedule)


def _whole(schedule: StageSchedule) -> None:
    found = Counter()
    for rank, row in enumerate(schedule.rows):
        for cell in row:
            if len(cell) > 1 and [action.kind for action in cell] != [FORWARD, BACKWARD]:
                raise ValueError(f"rank {rank} runs {'&'.join(map(str, cell))} in one cell; that is for an F and a BW")
            for action in cell:
                if schedule.rank_of[action.stage] != rank:
                    raise ValueError(
                        f"{action} stands on rank {rank}; its stage is on rank {schedule.rank_of[action.stage]}"
                    )
                found[action] += 1
    for micro_batch in range(schedule.micro_batches):
        for stage in schedule.chain_of(micro_batch):
            forward, gradient, weight, both = (
                found.pop(Action(kind, micro_batch, stage), 0) for kind in (FORWARD, INPUT, WEIGHT, BACKWARD)
            )
            if forward != 1 or gradient != weight or gradient + both != 1:
                raise ValueError(
                    f"micro-batch {micro_batch} on stage {stage}: {forward} F, {gradient} B, {weight} W, {both} BW; "
                    "it must be one F, and one B with one W or one BW"
                )
    if found:
        raise ValueError(f"{next(iter(found))} is no part of the schedule")


def _messages(schedule: StageSchedule) -> None:
    table = posts(schedule)
    sent, received = {}, {}
    for rank, row in enumerate(schedule.rows):
        there = set()
        for k in range(len(row) + 1):
            for message in table[rank][k]:
                sent_or_received = sent if message.src == rank else received
                sent_or_received.setdefault((message.src, message.dst), []).append(message)
                there.add(message)
            if k < len(row) and (late := [m for m in messages_in(schedule, rank, k) if m not in there]):
                raise ValueError(f"rank {rank} needs {late[0]} in cell {k} and has not posted its receive")
    for pair in sent.keys() | received.keys():
        if sent.get(pair) != received.get(pair):
            raise ValueError(f"what rank {pair[0]} sends to rank {pair[1]} is not what that receives, in its order")
    counts = Counter(message for messages in sent.values() for message in messages)
    if counts and max(counts.values()) > 1:
        raise ValueError(f"{counts.most_common(1)[0][0]} is sent {max(counts.values())} times")
