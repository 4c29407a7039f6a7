"""Lines of aligned columns for a terminal, a pipe and a log alike."""


def aligned(rows: list[list[str]], indent: str = "  ") -> list[str]:
    """The rows as lines: columns as wide as their widest cell, the first one left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def figure(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits, without an exponent where a person would write none; "-" for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"
