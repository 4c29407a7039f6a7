"""Traffic matrices for all_to_all_v: element (i, j) is what rank i sends to rank j."""

import csv
from pathlib import Path

from commbench.errors import UsageError


def equal(n: int) -> list[list[float]]:
    """The same to everyone: all_to_all_v as all_to_all."""
    return [[1.0] * n for _ in range(n)]


def ramp(n: int) -> list[list[float]]:
    """Rank j is sent j shares by everyone: nothing for rank 0, twice the mean for the last."""
    return [[float(j) for j in range(n)] if n > 1 else [1.0] for _ in range(n)]


PRESETS = {"equal": equal, "ramp": ramp}


def read_csv(path: Path) -> list[list[float]]:
    """A square matrix of numbers of at least 0, one row a line. Raises UsageError naming file and line."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(
            f"matrix {str(path)!r} is neither equal nor ramp, and as a file cannot be read: {error}"
        ) from None
    matrix = []
    for number, row in enumerate(rows, 1):
        try:
            matrix.append([float(cell) for cell in row])
        except ValueError:
            raise UsageError(f"matrix file {path}, row {number}: {','.join(row)!r} are not all numbers") from None
    return matrix


def check(matrix, n: int, name: str) -> None:
    """Raise UsageError unless `matrix` is n x n, finite, without negative entries, and not all zero."""
    if len(matrix) != n or any(len(row) != n for row in matrix):
        shape = f"{len(matrix)} x {'/'.join(sorted({str(len(row)) for row in matrix})) or 0}"
        raise UsageError(f"{name} is {shape}, but the group has {n} ranks: it must be {n} x {n}")
    cells = [cell for row in matrix for cell in row]
    if any(not 0 <= cell < float("inf") for cell in cells):
        raise UsageError(f"{name} has an entry that is negative or no finite number; shares are 0 or more")
    if not any(cells):
        raise UsageError(f"{name} is all zero: nothing would be sent")


def scaled(weights, elements: int) -> tuple[tuple[int, ...], ...]:
    """`weights` as whole elements, so that the most one rank sends or receives is at most `elements`."""
    # In whole numbers, which lose nothing: three shares of 0.1 are thirds. A float's denominator is a power of 2.
    ratios = [[cell.as_integer_ratio() for cell in row] for row in weights]
    unit = max(denominator for row in ratios for _, denominator in row)
    shares = [[numerator * (unit // denominator) for numerator, denominator in row] for row in ratios]
    heaviest = max(*(sum(row) for row in shares), *(sum(column) for column in zip(*shares)))
    return tuple(tuple(cell * elements // heaviest for cell in row) for row in shares)
