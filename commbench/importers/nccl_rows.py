"""The rows of nccl-tests' and rccl-tests' table, by the names in its header and by what a cell may hold.

A row may come in pieces (an NCCL log line was printed into it), may lack the cell of a column (old alltoall leaves
`redop` blank), and its header may be missing altogether; then its cells tell which columns there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from commbench.importers.cells import NOTHING, number, plain, whole
from commbench.importers.samples import itemsize
from commbench.importers.text import Line

REDOPS = ("sum", "prod", "min", "max", "avg", "mulsum", "none", "premulsum")
TIME_UNITS = {"(us)": 0, "(ms)": 3, "(s)": 6, "(ns)": -3}  # as powers of ten of a microsecond
_OPTIONAL = ("redop", "root")
_CHECKS = ("#wrong", "error", "errors")
_TIMES = ("time", "cputime")
_TEXTS = ("algo", "proto", "nchannels", "timestamp")
_OF_A_HALF = (*_TIMES, *_CHECKS, "algbw", "busbw", "hipevt")
_TYPES = ("float", "half", "double", "bfloat", "int", "uint")
_FIRST_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error"}  # until 2019
_IGNORED = ("-", ">", "#")


@dataclass(frozen=True)
class Half:
    """One placement of one size. `check`: the cell of #wrong or error; `is_error`: which of the two. The texts are kept
    because their decimals say how far the figures were rounded."""

    time: str
    algbw: str
    busbw: str
    check: str
    is_error: bool
    cpu_time: bool = False
    extra: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row. `blank_redop`: the column was there and empty, as old alltoall and sendrecv print it."""

    line: int
    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int | None
    halves: dict[bool, Half]  # in place or not
    blank_redop: bool
    texts: dict = field(default_factory=dict)


def header_columns(text: str) -> list[str] | None:
    """The names in the header of the table, the left one where two stand side by side; None for any other line."""
    if "type" not in text or not (("size" in text and "count" in text) or "bytes" in text):
        return None
    names = [name.lower() for name in row_tokens(text)]
    if names[:4] == ["bytes", "n", "type", "op"]:
        names = [_FIRST_NAMES.get(name, name) for name in names]
    names = names[: names.index("size", 1)] if names.count("size") == 2 and names[0] == "size" else names
    return names if {"size", "count", "type"} <= set(names) and set(names) & set(_TIMES) else None


def begins_row(tokens: list[str]) -> bool:
    """True where a line begins as a row does: size, count, element type."""
    return len(tokens) >= 3 and whole(tokens[0]) is not None and whole(tokens[1]) is not None and _is_type(tokens[2])


def may_begin(tokens: list[str]) -> bool:
    """True for a row that is cut after its size or its count, or within its element type."""
    if len(tokens) == 3 and tokens[2].isalpha() and any(name.startswith(tokens[2]) for name in _TYPES):
        tokens = tokens[:2]
    return 1 <= len(tokens) <= 2 and all(whole(token) is not None for token in tokens)


def _is_type(text: str) -> bool:
    return text[:1].isalpha() and itemsize(text) is not None


def row_tokens(text: str) -> list[str]:
    """The cells of a line, without a host's label in front and without what a web page put between them."""
    tokens = [plain(token) for token in text.replace("|", " ").split() if token not in _IGNORED]
    return tokens[1:] if tokens and tokens[0].endswith(":") else tokens


class Rows:
    """Puts rows together from the lines of one table. `in_place_first`: the header names the in-place half
    first; `in_place_alone`: only that one, which may be the end of a title whose beginning was not copied.
    `time_power`: the unit of time is 10^time_power microseconds."""

    def __init__(self):
        self.columns: list[str] | None = None
        self.in_place_first = False
        self.in_place_alone = False
        self.time_power = 0
        self._pending: list[str] = []
        self._pending_line: Line | None = None

    def feed(self, line: Line) -> Iterator[Row | tuple[Line, str]]:
        """The row that this line completes, or (line, why) for each line that is dropped."""
        tokens = row_tokens(line.text)
        if begins_row(tokens):
            yield from self.flush()
        elif self._pending:
            tokens = self._pending + tokens
        elif not may_begin(tokens):
            yield line, "the end of a row whose beginning is missing"
            return
        first, self._pending = self._pending_line if self._pending else line, []
        columns = self.columns or _guessed(tokens)
        cells = _aligned(columns, tokens) if columns and len(tokens) > 2 else None
        if isinstance(cells, str) and not may_begin(tokens):
            yield first, cells
        elif cells is None or isinstance(cells, str):
            self._pending, self._pending_line = tokens, first
        else:
            yield self._row(first.number, cells, line.text)

    def flush(self) -> Iterator[tuple[Line, str]]:
        """The beginning of a row that no line has completed, if there is one."""
        if self._pending:
            pending, self._pending = self._pending, []
            yield self._pending_line, f"the row ends after {pending[-1][:40]!r}"

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    def _row(self, number_: int, cells: list[tuple[str, str]], text: str):
        own, halves = {}, [{}]
        for name, cell in cells:
            if name not in _OF_A_HALF and not name.startswith("i_"):
                own[name] = cell
                continue
            if name in halves[-1]:  # every name of a half stands once; the second time is the other half
                halves.append({})
            halves[-1][name] = cell
        if not halves[0]:
            return Line(number_, text), "a row without a time"
        in_place = self.in_place_first or (self.in_place_alone and len(halves) == 1)
        placed = {in_place ^ bool(i): _half(half, self.time_power) for i, half in enumerate(halves[:2])}
        redop = own.get("redop", "")
        return Row(
            number_, whole(own["size"]), whole(own["count"]), own["type"], redop.lower() or "none",
            int(own["root"]) if own.get("root") else None, {place: half for place, half in placed.items() if half},
            self._blank(own, text), {name: own[name] for name in ("algo", "proto") if name in own},
        )  # fmt: skip

    def _blank(self, own: dict, text: str) -> bool:
        if self.columns:
            return "redop" in self.columns and "redop" not in own
        # Without a header: type and time are printed as "  %6s  %7s", with the blank column as "  %6s  %6s  %7s".
        after = text.partition(f" {own['type']} ")[2]
        gap = len(after) + 1 - len(after.lstrip(" "))
        return "redop" not in own and gap + len(after.split(maxsplit=1)[0]) >= 15 if after.strip() else False


def _half(cells: dict, time_power: int) -> Half | None:
    time = next((name for name in _TIMES if name in cells), "time")
    if any(cells.get(name, "N/A") in NOTHING for name in (time, "algbw", "busbw")):
        return None
    if time_power and number(cells[time]) is not None:
        cells = cells | {time: str(Decimal(cells[time]).scaleb(time_power))}  # keeps the digits that were printed
    check = next(((name, cells[name]) for name in _CHECKS if name in cells), ("#wrong", "N/A"))
    extra = {name: cells[name] for name in cells if name.startswith("i_")}
    return Half(cells[time], cells["algbw"], cells["busbw"], check[1], check[0] != "#wrong", time == "cputime", extra)


def _guessed(tokens: list[str]) -> list[str] | None:
    """The columns of a row without a header; None where the row is not complete."""
    rest = tokens[3:]
    names = ["size", "count", "type"]
    if rest and rest[0].lower() in REDOPS:
        names, rest = [*names, "redop"], rest[1:]
    if len(rest) in (5, 9):
        names, rest = [*names, "root"], rest[1:]
    if len(rest) not in (4, 8):
        return None if len(rest) < 9 else [*names, *_half_names(rest), *_half_names(rest)]
    return [*names, *_half_names(rest, "root" in names) * (len(rest) // 4)]


def _half_names(cells: list[str], root: bool = False) -> list[str]:
    exponent = any("e" in cell for cell in cells[3::4])
    return ["time", "algbw", "busbw", "error" if exponent or not root else "#wrong"]


def _aligned(columns: list[str], tokens: list[str]) -> list[tuple[str, str]] | str | None:
    """(column, cell) for a complete row; None for the beginning of one; a sentence for what is no row."""
    found, at = [], 0
    for name in columns:
        if at == len(tokens):
            if name in _TEXTS or (name in _OPTIONAL and not found):
                continue
            return None
        if name == "timestamp":
            found.append((name, " ".join(tokens[at : at + 2])))
            at = min(at + 2, len(tokens))
        elif _fits(name, tokens[at]):
            found.append((name, tokens[at]))
            at += 1
        elif name not in _OPTIONAL and name not in _TEXTS:
            return f"{tokens[at][:40]!r} stands where {name} should be"
    names = [name for name, _ in found]
    if not {"size", "count", "type"} <= set(names):
        return "size, count or type is missing"
    return found


def _fits(name: str, cell: str) -> bool:
    if name in ("size", "count"):
        return whole(cell) is not None
    if name == "type":
        return _is_type(cell)
    if name == "redop":
        return cell.lower() in REDOPS
    if name == "root":
        return whole(cell.removeprefix("-")) is not None and len(cell) < 9
    if name in ("algo", "proto"):
        return True
    return cell in NOTHING[:3] or number(cell.rstrip("*") if name in _CHECKS else cell) is not None
