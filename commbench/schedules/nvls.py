"""all_reduce in the switch (NVLink SHARP): the switch adds what it reads from all ranks, and hands out what is written.

Rank r has the switch read slice r of everyone and gets the sum, then writes it to the switch, which sends it to all:
each rank sends S + S/N bytes and receives as many (NCCL src/sym_kernels.cc), against 2S(N-1)/N of a ring.
"""

import numpy as np

from commbench.schedules.schedule import Schedule, one_by_one, step


def all_reduce(n: int) -> Schedule:
    rank, switch = np.arange(n), n
    if n == 1:
        return Schedule("all_reduce", "nvls", 1, 1, ())
    steps = [
        step(rank, switch, count=n, reduce=True),
        step(switch, rank, first=rank),
        step(rank, switch, first=rank),
        step(switch, rank, count=n),
    ]
    return Schedule("all_reduce", "nvls", n, n, one_by_one(steps), switch=True)
