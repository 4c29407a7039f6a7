"""Do all ranks hold the same split table? A rank that waits for more than is sent to it would wait for ever."""

import numpy as np


def disagreement(world, group, members, sends, receives) -> str | None:
    """Where two ranks of a group disagree about what one sends to the other, in a sentence; None where none do.

    `group` is this rank's, of the world ranks `members` (None for a rank in none of them); `sends[j]` and `receives[j]`
    are the elements that this rank means to send to and to receive from rank j of it. Every rank of the world calls
    this, and all get the same answer.
    """
    found = None
    if group is not None:
        told = _exchanged(world, group, sends)
        wrong = [peer for peer in range(group.size) if told[peer] != receives[peer]]
        if wrong:
            found = [members[wrong[0]], world.rank, int(told[wrong[0]]), int(receives[wrong[0]])]
    everything = world.gather(found)
    first = world.share(next(filter(None, everything), None) if world.rank == 0 else None)
    if first is None:
        return None
    sender, receiver, sent, expected = first
    return (
        f"the split tables of ranks {sender} and {receiver} disagree: rank {sender} would send {sent} elements, "
        f"rank {receiver} expects {expected}; the call would hang, so it was not made"
    )


def _exchanged(world, group, sends) -> np.ndarray:
    """What each rank of the group means to send to this one."""
    out, back = world.buffer(8 * group.size), world.buffer(8 * group.size)
    out.write(0, np.asarray(sends, np.int64))
    group.all_to_all(*(world.view(buffer, "int64", 0, group.size) for buffer in (out, back)))()
    world.finish()
    return back.read(0, 8 * group.size).view(np.int64)
