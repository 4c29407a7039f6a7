"""The journal: one JSON object a line, on the disk before the next point begins."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


class Journal:
    """Appends records to a file. A kill at any moment loses at most the step being written."""

    def __init__(self, path: Path):
        cut = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        self._file = open(path, "ab", buffering=0)
        if cut:
            self._file.write(b"\n")  # the cut line stays behind as one unreadable line

    def write(self, *records: dict) -> None:
        """The lines of one step: thousands of pairs that ran at the same time are one wait for the disk."""
        # allow_nan=False: NaN and inf are no JSON, and no measured value is either.
        data = b"".join(json.dumps(record, allow_nan=False).encode() + b"\n" for record in records)
        while data:  # a disk that fills up takes a part, and raises the next time
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _no_number(text: str):
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read_lines(path: Path, start: int = 0) -> tuple[list[dict], int, int]:
    """(records of the complete lines from byte `start` on, where the next read starts, how many lines were no JSON)."""
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read()
    complete = data.rfind(b"\n") + 1
    found = list(_parsed(data[:complete].splitlines()))
    records = [record for record in found if record is not None]
    return records, start + complete, len(found) - len(records)


def each_record(path: Path) -> Iterator[dict | None]:
    """The records of the complete lines, None for a line that is none; one after the other, for there may be many."""
    with open(path, "rb") as file:
        yield from _parsed(line for line in file if line.endswith(b"\n"))


def _parsed(lines: Iterable[bytes]) -> Iterator[dict | None]:
    for line in lines:
        if line.strip():
            try:
                record = _DECODER.decode(line.decode())
            except (ValueError, RecursionError):  # RecursionError: thousands of brackets
                record = None
            yield record if isinstance(record, dict) else None
