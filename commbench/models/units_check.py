"""Times that no machine has: the signs of a unit that is wrong, in a whole column or in a part of it."""

import numpy as np

from commbench.models.answer import busbw_GBps
from commbench.models.table import Table
from commbench.units import format_size

JUMP = 300.0  # units are a thousand apart, and the growth of a time between neighbours is not
NEIGHBOUR = 4.0  # sizes further apart than this factor say nothing of a jump
LEAST_US = 0.1  # one load from a neighbour's memory takes as long
MOST_GBps = 20e3  # ten times the rate of any link that is built


def unit_fault(table: Table, curves: list[tuple[int, int, Table]]) -> str:
    """Why times cannot all be microseconds, in one sentence, or "". `curves`: (ranks, nodes, medians by size)."""
    faults = [_impossible(table.label["op"], ranks, curve) or _jump(ranks, curve) for ranks, _, curve in curves]
    return next(filter(None, [*faults, _between_worlds(curves)]), "")


def _impossible(op: str, ranks: int, curve: Table) -> str:
    if ranks < 2:
        return ""
    at = int(np.argmin(curve.time_us))
    if curve.time_us[at] < LEAST_US:
        return (
            f"a unit is wrong: a size of {_size(curve, at)} on {ranks} ranks takes {curve.time_us[at]:.3g} us, and no "
            f"two ranks talk in under {LEAST_US} us; times are microseconds"
        )
    rates = [busbw_GBps(op, ranks, *pair) or pair[0] / pair[1] / 1e3 for pair in zip(curve.size_bytes, curve.time_us)]
    at = int(np.argmax(rates))
    if rates[at] > MOST_GBps:
        return (
            f"a unit is wrong: a size of {_size(curve, at)} on {ranks} ranks in {curve.time_us[at]:.3g} us are "
            f"{rates[at]:.0f} GB/s, which no link carries; sizes are bytes and times microseconds"
        )
    return ""


def _jump(ranks: int, curve: Table) -> str:
    """Neighbouring sizes whose times are a factor of a thousand or so apart."""
    larger = curve.size_bytes[1:] / curve.size_bytes[:-1]
    longer = curve.time_us[1:] / curve.time_us[:-1]
    odd = (larger <= NEIGHBOUR) & ((longer >= JUMP * larger) | (longer <= 1 / JUMP))
    if not odd.any():
        return ""
    at = int(np.argmax(odd))
    return (
        f"a unit is wrong: on {ranks} ranks the time goes from {curve.time_us[at]:.3g} us at {_size(curve, at)} to "
        f"{curve.time_us[at + 1]:.3g} us at {_size(curve, at + 1)}; times are microseconds throughout"
    )


def _between_worlds(curves) -> str:
    """World sizes of one kind (one node, or several) whose times at the same sizes are a thousandfold apart."""
    for kind in (True, False):
        mine = [(ranks, curve) for ranks, nodes, curve in curves if (nodes == 1) == kind and ranks > 1]
        for (few, first), (many, second) in zip(mine, mine[1:]):
            _, i, j = np.intersect1d(first.size_bytes, second.size_bytes, return_indices=True)
            longer = float(np.median(second.time_us[j] / first.time_us[i])) if len(i) else 1.0
            if longer >= JUMP * many / few or longer <= 1 / JUMP:
                return (
                    f"a unit is wrong: {many} ranks take {longer:.3g} times as long as {few} at the same sizes; times "
                    "are microseconds throughout"
                )
    return ""


def _size(curve: Table, at: int) -> str:
    return format_size(int(curve.size_bytes[at]))
