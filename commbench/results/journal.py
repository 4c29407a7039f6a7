"""The journal: one JSON object a line, on the disk before the next point begins."""

import json
import os
from pathlib import Path


class Journal:
    """Appends records to a file. A kill at any moment loses at most the line being written."""

    def __init__(self, path: Path):
        cut = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        self._file = open(path, "ab", buffering=0)
        if cut:
            self._file.write(b"\n")  # the cut line stays behind as one unreadable line

    def write(self, record: dict) -> None:
        # allow_nan=False: NaN and inf are no JSON, and no measured value is either.
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _no_number(text: str):
    raise ValueError(f"{text} is no JSON")


def read_lines(path: Path, start: int = 0) -> tuple[list[dict], int, int]:
    """(records of the complete lines from byte `start` on, where the next read starts, how many lines were no JSON)."""
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read()
    complete = data.rfind(b"\n") + 1
    records, bad = [], 0
    for line in data[:complete].splitlines():
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):  # RecursionError: thousands of brackets
            bad += 1
            continue
        if isinstance(record, dict):
            records.append(record)
        else:
            bad += 1
    return records, start + complete, bad
