"""Sizes as people type them (binary K, M, G, T) and as people read them."""

import re

from commbench.errors import UsageError

_SUFFIX = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:iB|B)?", re.IGNORECASE)


def parse_size(text) -> int:
    """Bytes meant by `text`: "8", "64K", "1.5M", "16MiB"; suffixes are binary, as in nccl-tests.

    Raises UsageError when the text is no size or not a whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise UsageError(f"size {text} is negative; sizes are 0 or more bytes")
        return text
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        raise UsageError(f"size {text!r} is not understood; write bytes with an optional binary suffix, such as 8, 64K, 1M, 2G")
    size = float(match[1]) * _SUFFIX[match[2].upper()] if "." in match[1] else int(match[1]) * _SUFFIX[match[2].upper()]
    if size != int(size):
        raise UsageError(f"size {text!r} is {size} bytes, not a whole number")
    return int(size)


def format_size(size_bytes: int) -> str:
    """64K, 1M, 3G where the binary suffix is exact, and plain bytes (with a rounded suffix above 10K) otherwise."""
    for suffix in "TGMK":
        unit = _SUFFIX[suffix]
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    for suffix in "TGMK":
        unit = _SUFFIX[suffix]
        if size_bytes >= 10 * unit:
            return f"{size_bytes / unit:.1f}{suffix}"
    return str(size_bytes)


def format_bytes(size_bytes: float) -> str:
    """A quantity of memory for a sentence: 1.50 GiB, 12.0 MiB, 512 B."""
    for name, unit in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{int(size_bytes)} B"
