"""Cells of a table as numbers: nothing that is no finite number, and nothing negative, ever becomes one."""

import re

_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)
# How a locale writes 1048576 and 20.97: an English one groups by commas, others have commas for points.
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3}){1,8}(?:\.\d{0,30})?|\d{1,3}(?:\.\d{3}){2,8}", re.ASCII)
_COMMA = re.compile(r"(?:\d{1,30}|\d{1,3}(?:\.\d{3}){1,8}),(?!\d{3}(?:[eE]|$))\d{1,30}(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_SIZED = re.compile(r"([\d.]{1,30})\s*(bytes|[KMGT]?i?B?)", re.IGNORECASE | re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LARGEST = 1e15  # no tool counts anything beyond it
NOTHING = ("N/A", "NA", "n/a", "-", "None", "null")  # how tools write "not measured"


def plain(text: str) -> str:
    """A number as any locale writes it, as Python writes it; other text as it is."""
    if _GROUPED.fullmatch(text):
        return text.replace(",", "") if "," in text else text.replace(".", "")
    return text.replace(".", "").replace(",", ".") if _COMMA.fullmatch(text) else text


def number(text: str) -> float | None:
    """A believable number from 0 up; None for anything else (bandwidths below 0 were counter overflows)."""
    text = plain(text)
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if 0 <= value <= _LARGEST else None


def positive(text: str) -> float | None:
    """A finite number above 0; None for anything else: a time or rate of 0 is no measurement."""
    return number(text) or None


def whole(text: str) -> int | None:
    """A whole number from 0 up; None for anything else."""
    text = plain(text)
    return int(text) if _WHOLE.fullmatch(text) else None


def sized(text: str, base: int = 1024) -> int | None:
    """Bytes of "32KiB", "1.45 GB", "512B"; suffixes without an i are powers of `base`, those with one of 1024."""
    found = _SIZED.fullmatch(text.strip())
    value = number(found[1]) if found else None
    if value is None:
        return None
    unit = found[2].lower()
    if unit == "bytes":
        return round(value)
    bytes_ = value * (1024 if "i" in unit else base) ** _POWER[unit.rstrip("b").rstrip("i")]
    return round(bytes_) if bytes_ < 2**63 else None


def listed(data) -> float | None:
    """A finite number from 0 up out of JSON, where it may stand as a number or as text."""
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return None
    if isinstance(data, str):
        return number(data.strip())
    return float(data) if 0 <= data <= _LARGEST else None
