"""PAT, parallel aggregated trees (Jeaugey, arXiv 2506.20252): Bruck with the far messages first and the small.

Every block spreads over a binomial tree of its own. The far dimensions come first, while a rank has few blocks; from
`aggregate` blocks on a message grows no more, and the near dimensions take more steps.
"""

from commbench.schedules.schedule import Block, Schedule, backwards, one_by_one, step


def _spread(n: int, aggregate: int) -> tuple[Block, ...]:
    """Messages (distance, offsets of the blocks): rank r sends block r - offset to r + distance."""
    hop = 1
    while hop * 2 < n:
        hop *= 2
    held, steps = [0], []
    while hop and len(held) * 2 <= aggregate:  # every rank doubles what it has
        sent = [offset for offset in held if offset + hop < n]
        steps.append((hop, sent))
        held += [offset + hop for offset in sent]
        hop //= 2
    if hop:
        steps += _near(held, hop, n)
    rows = [step(0, distance, first=[-offset % n for offset in offsets], every=1) for distance, offsets in steps]
    return one_by_one(rows)


def _near(held: list[int], hop: int, n: int) -> list[tuple[int, list[int]]]:
    """What goes on for the blocks at offsets `held` over the distances hop, hop / 2, ..., 1, a subtree at a time."""
    if not hop:
        return []
    sent = [offset for offset in held if offset + hop < n]
    arrived = [offset + hop for offset in sent]
    messages = [(hop, sent)] if sent else []
    return messages + (_near(arrived, hop // 2, n) if arrived else []) + _near(held, hop // 2, n)


def all_gather(n: int, aggregate: int = 1 << 30) -> Schedule:
    return Schedule("all_gather", "pat", n, n, _spread(n, aggregate) if n > 1 else ())


def reduce_scatter(n: int, aggregate: int = 1 << 30) -> Schedule:
    return Schedule("reduce_scatter", "pat", n, n, backwards(all_gather(n, aggregate).blocks, reduce=True))
