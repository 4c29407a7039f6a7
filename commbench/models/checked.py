"""Values of a model file, each taken only as what it must be: ValueError for another type, or a number out of range."""

LARGEST = 1e18


def number(value, low: float = 0.0, high: float = LARGEST) -> float:
    """A finite number from low to high."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ValueError(f"{str(value)[:40]!r} is no number from {low:g} to {high:g}")
    return float(value)


def maybe(value, low: float = 0.0, high: float = LARGEST) -> float | None:
    """A number, or None where there is none."""
    return None if value is None else number(value, low, high)


def count(value, least: int = 0) -> int:
    """A whole number from `least` on."""
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{str(value)[:40]!r} is no whole number from {least} on")
    return value


def word(value) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is no text")
    return value


def each(take, values, *bounds) -> tuple:
    """A list of such values."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{str(values)[:40]!r} is no list")
    return tuple(take(value, *bounds) for value in values)


def named(take, values, *bounds) -> dict:
    """A dictionary from texts to such values."""
    if not isinstance(values, dict):
        raise ValueError(f"{str(values)[:40]!r} is no dictionary")
    return {word(key): take(value, *bounds) for key, value in values.items()}
