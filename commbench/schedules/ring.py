"""Ring: each rank passes on to the next what it got from the one before. N - 1 steps, every link equally used."""

from commbench.schedules.schedule import Block, Schedule, backwards, step


def _pass_on(n: int, direction: int) -> tuple[Block, ...]:
    """n - 1 steps: rank r sends its own block, then the one that it got in the step before, to r + direction."""
    if n == 1:
        return ()
    return (Block((step(0, direction % n, first=0, every=1),), times=n - 1, shift=-direction, modulus=n),)


def all_gather(n: int) -> Schedule:
    return Schedule("all_gather", "ring", n, n, _pass_on(n, 1))


def reduce_scatter(n: int) -> Schedule:
    return Schedule("reduce_scatter", "ring", n, n, backwards(_pass_on(n, -1), reduce=True))


def all_reduce(n: int) -> Schedule:
    """A reduce_scatter and an all_gather round the ring, both in the same direction (Patarasuk and Yuan, JPDC 2009)."""
    return Schedule("all_reduce", "ring", n, n, reduce_scatter(n).blocks + all_gather(n).blocks)
