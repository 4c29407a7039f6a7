"""A small, seeded form of tests/benchmarks/import_fuzz.py: damaged files through every reader."""

import random
import sys
import time
from pathlib import Path

import pytest

from commbench.importers.read import READERS

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
from import_fuzz import cases, damaged, faults  # noqa: E402


@pytest.mark.parametrize("seed", range(5))
def test_damaged_outputs_give_no_traceback_and_no_zeros(seed):
    originals, names, rng = cases(), list(READERS), random.Random(seed)
    for number in range(60):
        text = damaged(rng.choice(originals), originals, rng)
        assert faults(text) == ""
        assert faults(text, names[number % len(names)]) == ""


@pytest.mark.parametrize("name", READERS)
def test_every_reader_takes_every_case(name):
    for data in cases():
        assert faults(data.decode(errors="replace"), name) == ""


LONG = {
    "brackets": "(" * 20_000, "an array": "[" * 20_000, "numbers": "1 " * 20_000, "one word": "a" * 200_000,
    "ranks": "Rank " * 20_000, "quotes": '"' * 20_001, "escapes": "\\" * 5001, "a host": "node-" * 20_000 + " NCCL INFO",
    "a title": "OSU MPI " + "a " * 20_000, "an open string": "{" + '\\"' * 400_000, "blanks and a log line": " " * 4000 + "x NCCL INFO",
    "a heading": "### seqlen" + " " * 8000 + "=", "a wide table": "1.0 GB 1x1 1.0" + " " * 8000 + "x", "a number": "9" * 8000,
    "a key": "{test_info:\na: b" + " " * 100_000 + "!", "tags": "[0]<stdout>" * 9000, "a progress line": "1%\r" * 50_000,
}  # fmt: skip


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_lines_do_not_hang(text):
    began = time.process_time()
    assert faults(text) == "" and faults(f"{text}\n" * 3) == ""
    for name in READERS:
        assert faults(text, name) == ""
    assert time.process_time() - began < 10
