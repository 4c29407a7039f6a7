"""Which collective a table of nccl-tests is of, and over how many ranks, where its text does not say.

busbw / algbw is the bus factor of the operation, known as well as the figures' decimals tell; size / (count x element
size) is the number of ranks where the size is the total of all ranks (source: *GetCollByteCount and *GetBw in
NVIDIA/nccl-tests src/*.cu).
"""

import math
from collections.abc import Iterable

from commbench.importers.cells import number, plain
from commbench.importers.found import MOST_RANKS
from commbench.importers.nccl_rows import Half, Row
from commbench.importers.samples import itemsize
from commbench.ops import OPS

TOTALS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")  # their size is n x count
_MOST = MOST_RANKS
_SPREAD = 1e-6


def rounded(text: str) -> tuple[float, float]:
    """The lowest and highest value that prints as `text`."""
    text = plain(text)
    value = float(text)
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    step = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    return max(value - step, 0.0), value + step


def algbw_range(size_bytes: int, half: Half) -> tuple[float, float] | None:
    """What algbw can have been, from size and time and from the printed figure; None where the two contradict."""
    printed, time = rounded(half.algbw), rounded(half.time)
    if half.cpu_time or not time[0]:
        return printed
    computed = size_bytes / time[1] / 1e3, size_bytes / time[0] / 1e3
    low, high = max(printed[0], computed[0] * (1 - _SPREAD)), min(printed[1], computed[1] * (1 + _SPREAD))
    return (low, high) if low <= high else None


def factors(rows: Iterable[Row]) -> list[tuple[float, float]]:
    """The range of busbw / algbw that each half allows, where it tells anything."""
    found = []
    for row in rows:
        for half in row.halves.values():
            algbw = algbw_range(row.size_bytes, half) or rounded(half.algbw)
            busbw = rounded(half.busbw)
            if algbw[0] > 0 and busbw[1] / algbw[0] < 4:
                found.append((busbw[0] / algbw[1] * (1 - _SPREAD), busbw[1] / algbw[0] * (1 + _SPREAD)))
    return found


def ranks_of_sizes(rows: Iterable[Row]) -> int | None:
    """size / (count x element size), where all rows agree on a whole number."""
    found = set()
    for row in rows:
        width = itemsize(row.dtype)
        if row.size_bytes and row.count and width:
            ranks, rest = divmod(row.size_bytes, row.count * width)
            found.add(ranks if not rest else -1)
    return found.pop() if len(found) == 1 and 0 < min(found) <= _MOST else None


def ranks_of_factors(op: str, ranges: list[tuple[float, float]]) -> tuple[int, int]:
    """The least and most ranks that the bus factors of the rows allow, where at least four fifths of them agree."""
    if op not in OPS or not OPS[op].sized or OPS[op].bus_factor(4) == OPS[op].bus_factor(2):
        return 1, _MOST  # it does not depend on the ranks
    limit = OPS[op].bus_factor(2) * 2  # 2 for all_reduce, else 1: the factor is limit x (n-1)/n
    allowed = [(_ranks(low, limit, math.ceil), _ranks(high, limit, math.floor)) for low, high in ranges]
    allowed = [(least, most) for least, most in allowed if least <= most and least < _MOST]
    edges = sorted([(least, -1) for least, _ in allowed] + [(most, 1) for _, most in allowed])
    best, here, found = 0, 0, (1, _MOST)
    for at, (ranks, side) in enumerate(edges):
        here -= side
        if here > best:
            best, found = here, (ranks, edges[at + 1][0])
    return found if best >= 0.8 * len(ranges) and best else (1, _MOST)


def _ranks(factor: float, limit: float, whole) -> int:
    """n of factor = limit x (n-1)/n, as the whole number above (ceil) or below (floor)."""
    if factor >= limit:
        return _MOST
    tolerance = 1e-6 if whole is math.floor else -1e-6
    return min(_MOST, whole(limit / (limit - factor) * (1 + tolerance)))


def op_of(rows: list[Row]) -> tuple[str, ...]:
    """The operations that rows of this form can be of: one where it is certain."""
    total = (ranks_of_sizes(rows) or 0) > 1
    row = rows[0]
    rooted, reduced = row.root is not None and row.root >= 0, row.redop != "none"
    if total and reduced:
        return ("reduce_scatter",)
    if total and rooted:
        return "gather", "scatter"
    if total:
        return _exchange(rows)
    if reduced:
        return ("reduce",) if rooted else ("sendrecv",) if _checked_out_of_place(rows) else ("all_reduce",)
    return ("broadcast",) if rooted else ("sendrecv",)


def _checked_out_of_place(rows: list[Row]) -> bool:
    """True where only results out of place were checked: sendrecv, which prints a redop, cannot do more."""
    return all(
        {place: _checked(half) for place, half in row.halves.items()} == {False: True, True: False} for row in rows
    )


def _exchange(rows: list[Row]) -> tuple[str, ...]:
    """all_gather or all_to_all: only the latter cannot be checked in place, or has an empty redop column."""
    checks = {place: {_checked(row.halves[place]) for row in rows if place in row.halves} for place in (False, True)}
    if True in checks[True]:
        return ("all_gather",)
    if any(row.blank_redop for row in rows) or (checks[False] == {True} and checks[True] == {False}):
        return ("all_to_all",)
    old_without_redop = rows[0].root is None
    return ("all_gather",) if old_without_redop else ("all_gather", "all_to_all")


def _checked(half: Half) -> bool:
    return number(half.check.rstrip("*")) is not None


def holds_factor(row: Row, half: Half, ranks: int) -> bool:
    """True where the printed algbw is (n-1)/n of size / time, as all_gather and reduce_scatter of nccl-tests had it
    before 2020 (nccl-tests issue 45)."""
    if ranks < 2 or algbw_range(row.size_bytes, half) is not None:
        return False
    low, high = rounded(half.algbw)
    time_low, time_high = rounded(half.time)
    share = (ranks - 1) / ranks
    return bool(time_low) and (
        row.size_bytes * share / time_high / 1e3 <= high * (1 + _SPREAD)
        and row.size_bytes * share / time_low / 1e3 >= low * (1 - _SPREAD)
    )
