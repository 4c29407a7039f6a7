"""Messages that repeat for one piece of the data after another: trees and chains work on all pieces at once."""

import numpy as np

from commbench.schedules.schedule import Block, Step, one_by_one, step


def pipelined(src, dst, start, first, pieces: int, n_chunks: int, period: int, reduce: bool) -> tuple[Block, ...]:
    """Edge i sends chunk first[i] + p from src[i] to dst[i] in step start[i] + p * period, for p < pieces.

    The steps in which every edge is at work repeat, so they are one block.
    """
    last = int(start.max()) + (pieces - 1) * period

    def at(t: int):
        piece, rest = np.divmod(t - start, period)
        now = (rest == 0) & (piece >= 0) & (piece < pieces)
        return step(src[now], dst[now], (first + piece)[now], reduce=reduce)

    begin = max(int(start.max()) - period + 1, 0)  # from here on, one period sees every edge once
    times = max((int(start.min()) + (pieces - 1) * period - begin + 1) // period, 0)
    ramp_up = [at(t) for t in range(begin if times else last + 1)]
    steady = [at(begin + t) for t in range(period)]
    ramp_down = [at(t) for t in range(begin + times * period, last + 1)] if times else []
    middle = (Block(_busy(steady), times, shift=1, modulus=n_chunks),) if times else ()
    return one_by_one(_busy(ramp_up)) + middle + one_by_one(_busy(ramp_down))


def best_pieces(depth: int, size_bytes: float, latency_us: float, us_per_byte: float) -> int:
    """How many pieces make a pipeline of `depth` hops fastest: (depth + p) (latency + size / p per byte) is least at
    p = sqrt(depth * size * us_per_byte / latency)."""
    return max(1, round((depth * size_bytes * us_per_byte / latency_us) ** 0.5))


def _busy(steps: list[Step]) -> tuple[Step, ...]:
    """Without those in which nobody sends."""
    return tuple(one for one in steps if one.src.size)
