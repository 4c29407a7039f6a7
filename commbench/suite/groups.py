"""Splits of the world into groups that run at the same time, written as nccl-tests' NCCL_TESTS_SPLIT does."""

import re

from commbench.errors import UsageError

_COLOURS = {
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
}
_SYMBOLS = {"%": "MOD", "/": "DIV", "&": "AND", "|": "OR"}
_SPLIT = re.compile(r"(MOD|DIV|AND|OR|[%/&|])\s*(0x[0-9a-f]{1,16}|\d{1,18})", re.IGNORECASE)


def split_groups(split: str, ranks: int) -> list[tuple[str, tuple[int, ...]]]:
    """[(label, members)] of a split: "all", "MOD 8" (one rank a node in each group), "DIV 8" (a group a node),
    "AND 0x7", "OR 0x7", or members spelled out as "0,1;2,3". Members are in rising order, as torch orders a group.

    Raises UsageError when it is not understood, names a rank twice, or one that the world lacks.
    """
    text = split.strip()
    if text.lower() == "all":
        return [("all", tuple(range(ranks)))]
    match = _SPLIT.fullmatch(text)
    if match:
        word = _SYMBOLS.get(match[1], match[1].upper())
        value = int(match[2], 16 if match[2][:2].lower() == "0x" else 10)
        if word in ("MOD", "DIV") and value == 0:
            raise UsageError(f"split {split!r} divides by zero; a group has at least 1 rank")
        groups: dict[int, list[int]] = {}
        for rank in range(ranks):
            groups.setdefault(_COLOURS[word](rank, value), []).append(rank)
        return [(f"{word} {match[2]} #{i}", tuple(members)) for i, members in enumerate(groups.values())]
    return _spelled_out(text, ranks)


def _spelled_out(text: str, ranks: int) -> list[tuple[str, tuple[int, ...]]]:
    try:
        groups = [tuple(sorted(int(rank) for rank in part.split(","))) for part in text.split(";") if part.strip()]
    except ValueError:
        groups = []
    if not groups:
        raise UsageError(
            f'split {text!r} is not understood; write "all", "MOD 8", "DIV 8", "AND 0x7", "OR 0x7" or "0,1;2,3"'
        )
    named = [rank for members in groups for rank in members]
    outside = sorted({rank for rank in named if not 0 <= rank < ranks})
    if outside:
        raise UsageError(f"split {text!r} names rank {outside[0]}, but the world has ranks 0 to {ranks - 1}")
    if len(set(named)) < len(named):
        twice = next(rank for rank in named if named.count(rank) > 1)
        raise UsageError(f"split {text!r} names rank {twice} twice; a rank can be in one group only")
    return [(",".join(map(str, members)), members) for members in groups]
