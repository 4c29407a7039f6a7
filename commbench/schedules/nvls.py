"""all_reduce in the switch (NVLink SHARP): the switch adds what it reads from all ranks, and hands out what is written.

Rank r has the switch read slice r of everyone and gets the sum, then writes it to the switch, which sends it to all:
each rank sends S + S/N bytes and receives as many (NCCL src/sym_kernels.cc), against 2S(N-1)/N of a ring.
"""

import numpy as np

from commbench.schedules.schedule import Block, Schedule, Step, one_by_one, step

_STAGES = 4


def all_reduce(n: int, pieces: int = 1) -> Schedule:
    """Piece p is chunks p * N .. p * N + N - 1, and in its stage s in step p + s, so that links work both ways."""
    if n == 1:
        return Schedule("all_reduce", "nvls", 1, 1, ())
    rank, switch = np.arange(n), np.full(n, n)
    stages = [
        (rank, switch, 0, n, True),
        (switch, rank, rank, 1, False),
        (rank, switch, rank, 1, False),
        (switch, rank, 0, n, False),
    ]

    def at(t: int) -> Step:
        now = [
            step(a, b, first + (t - s) * n, count, added)
            for s, (a, b, first, count, added) in enumerate(stages)
            if 0 <= t - s < pieces
        ]
        return Step(
            *(
                np.concatenate([getattr(one, name) for one in now])
                for name in ("src", "dst", "first", "count", "reduce")
            )
        )

    ramp = _STAGES - 1
    if pieces < _STAGES:
        blocks = one_by_one(at(t) for t in range(pieces + ramp))
    else:
        steady = Block((at(ramp),), pieces - ramp, n, n * pieces)
        blocks = (
            *one_by_one(at(t) for t in range(ramp)),
            steady,
            *one_by_one(at(t) for t in range(pieces, pieces + ramp)),
        )
    return Schedule("all_reduce", "nvls", n, n * pieces, blocks, switch=True)
