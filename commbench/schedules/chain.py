"""broadcast along a chain, in pieces: rank r sends one piece on while the next one comes in."""

import numpy as np

from commbench.schedules.pipeline import pipelined
from commbench.schedules.schedule import Schedule


def broadcast(n: int, pieces: int = 8) -> Schedule:
    """N - 2 + pieces steps."""
    rank = np.arange(n - 1)
    blocks = pipelined(rank, rank + 1, rank, np.zeros_like(rank), pieces, pieces, 1, reduce=False) if n > 1 else ()
    return Schedule("broadcast", "chain", n, pieces, blocks)
