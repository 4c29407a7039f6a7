"""rccl-tests' -Z csv: the records of its JSON as lines of cells, found by the names in the header."""

import csv
from collections.abc import Iterator

from commbench.importers import nccl_json
from commbench.importers.found import MOST_SAMPLES, Given, Test
from commbench.importers.text import Lines

_NAMES = {
    "#wrong": "#wrong", "wrong": "#wrong", "algbw": "algBw", "busbw": "busBw", "gpus": "gpus", "numgpus": "gpus",
    "ranks": "gpus", "inplace": "inPlace", "name": "name", "collective": "name", "redop": "redop", "size": "size",
    "time": "time", "type": "type",
}  # fmt: skip
WORDS = ("busBw",)


def starts(text: str) -> bool:
    return "," in text and "{" not in text and {"busbw", "algbw", "size", "type"} <= set(_cells(text.lower()))


def read(lines: Lines, given: Given) -> Iterator[Test]:
    columns, records = [], []
    for line in lines.section("rccl_csv"):
        if starts(line.text):
            columns = [_NAMES.get(cell.lower(), cell.lower()) for cell in _cells(line.text)]
            continue
        cells = _cells(line.text)
        if columns and len(cells) == len(columns) and len(records) < MOST_SAMPLES:
            records.append((line.number, dict(zip(columns, cells))))
        elif line.text.strip():
            lines.drop(line, "a row that is not complete")
    if records:
        yield nccl_json.from_lines(records, lines.told, given, "")


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([text[:10_000].replace("\x00", "")]), [])]
