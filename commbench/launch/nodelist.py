"""Slurm's compressed node lists, expanded without scontrol (containers often lack it)."""

import re

from commbench.errors import UsageError

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MOST = 1_000_000  # nodes; no cluster has as many


def expand_nodelist(text: str) -> list[str]:
    """The host names of a list such as "a,node[001-003,7]-ib,b[1-2]c[0-1]", in Slurm's order, zero padding kept.

    Raises UsageError when the list is malformed: a node list that is misread makes a world of the wrong nodes.
    """
    if not text.strip():
        raise _malformed(text, "it is empty")
    names = [name for part in _split_outside_brackets(text.strip(), text) for name in _expand_part(part, text)]
    return names


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(
        f"node list {text!r} is malformed: {why}; set MASTER_ADDR to the first host, or correct SLURM_JOB_NODELIST"
    )


def _split_outside_brackets(text: str, whole: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise _malformed(whole, "its brackets do not match")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    if depth:
        raise _malformed(whole, "its brackets do not match")
    return [*parts, text[start:]]


def _expand_part(part: str, whole: str) -> list[str]:
    """The product of the literal pieces and the bracketed sets of one part."""
    names = [""]
    for piece in re.split(r"(\[[^\]]*\])", part.strip()):
        if piece.startswith("["):
            numbers = [n for item in piece[1:-1].split(",") for n in _numbers(item.strip(), whole)]
            if len(names) * len(numbers) > _MOST:
                raise _malformed(whole, f"{part.strip()} has more nodes than any cluster")
            names = [name + number for name in names for number in numbers]
        elif piece and not _PLAIN.fullmatch(piece):
            raise _malformed(whole, f"{piece!r} is no part of a host name")
        else:
            names = [name + piece for name in names]
    if names == [""]:
        raise _malformed(whole, "it has an empty name")
    return names


def _numbers(item: str, whole: str) -> list[str]:
    match = _RANGE.fullmatch(item)
    if match is None:
        raise _malformed(whole, f"{item!r} is neither a number nor a range like 01-16")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise _malformed(whole, f"the range {item} runs backwards")
    if int(last) - int(first) >= _MOST:
        raise _malformed(whole, f"the range {item} has more nodes than any cluster")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
