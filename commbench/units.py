"""Sizes as people type them (binary K, M, G, T) and as people read them."""

import re

from commbench.errors import UsageError

_SUFFIX = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*(?:([KMGT])(?:iB|B)?|B)?", re.IGNORECASE | re.ASCII)


def parse_size(text) -> int:
    """Bytes meant by `text`: "8", "64K", "1.5M", "16MiB"; suffixes are binary, as in nccl-tests.

    Raises UsageError when the text is no size or not a whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise UsageError(f"size {text} is negative; sizes are 0 or more bytes")
        if text >= 2**63:
            raise UsageError(f"size {text} is more than any machine has; sizes are below 8 EiB")
        return text
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        raise UsageError(
            f"size {text!r} is not understood; write bytes with an optional binary suffix, such as 8, 64K, 1M, 2G"
        )
    unit = _SUFFIX[(match[2] or "").upper()]
    size = float(match[1]) * unit if "." in match[1] else int(match[1]) * unit
    if size != int(size):
        raise UsageError(f"size {text!r} is {size} bytes, not a whole number")
    return int(size)


def format_size(size_bytes: int) -> str:
    """64K, 1M, 3G where the binary suffix is exact; plain bytes below 10K; otherwise rounded, such as ~1.5M."""
    for suffix in "TGMK":
        unit = _SUFFIX[suffix]
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    if size_bytes < 10 * 2**10:
        return str(size_bytes)
    suffix = next(suffix for suffix in "TGMK" if size_bytes >= 0.999 * _SUFFIX[suffix])
    value = size_bytes / _SUFFIX[suffix]
    return f"~{value:.0f}{suffix}" if value >= 100 else f"~{value:.3g}{suffix}"  # .3g of 1005 would be 1.01e+03


def format_bytes(size_bytes: float) -> str:
    """A quantity of memory for a sentence: 1.50 GiB, 12.0 MiB, 512 B."""
    for name, unit in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{int(size_bytes)} B"


def rank_spans(ranks, joint: str = " ") -> str:
    """Rising ranks as "0..7 16", so that thousands of them fit into a cell."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return joint.join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
