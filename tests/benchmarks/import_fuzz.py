"""Damaged outputs through every reader of `commbench import`: no traceback, no hang, no table of zeros.

    python tests/benchmarks/import_fuzz.py [inputs, default 100000] [seed]

Each input is one of tests/data/cases with bytes flipped, lines dropped, doubled, swapped, cut or glued to another case.
It goes through the dispatcher, and through one reader that takes it for its own, whatever it is. The smaller form in
tests/test_import_damaged.py uses the same functions.
"""

import json
import random
import sys
import time
from pathlib import Path

from commbench.errors import CommbenchError
from commbench.importers.found import Given
from commbench.importers.read import READERS, read_lines
from commbench.importers.runs import plan_of, records, runs_of
from commbench.importers.text import lines_of
from commbench.results.records import Sample

CASES = Path(__file__).parent.parent / "data" / "cases"
SLOWEST_S = 5.0  # of one input


def cases() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CASES.glob("*.txt"))]


def damaged(data: bytes, others: list[bytes], rng: random.Random) -> str:
    """`data` after one to six accidents."""
    for _ in range(rng.randint(1, 6)):
        accident = rng.randrange(9)
        lines = data.splitlines(keepends=True) or [b""]
        at = rng.randrange(len(lines))
        if accident == 0:
            flipped = bytearray(data)
            for _ in range(rng.randint(1, 20) if flipped else 0):
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            data = bytes(flipped)
        elif accident == 1:
            data = b"".join(lines[:at] + lines[at + rng.randint(1, 5) :])
        elif accident == 2:
            data = b"".join(lines[:at] + [lines[at]] * rng.randint(2, 4) + lines[at + 1 :])
        elif accident == 3:
            data = data[: rng.randrange(len(data) + 1)]
        elif accident == 4:
            data = data[rng.randrange(len(data) + 1) :]
        elif accident == 5:
            rng.shuffle(lines)
            data = b"".join(lines)
        elif accident == 6:
            other = rng.choice(others).splitlines(keepends=True)
            data = b"".join(lines[:at] + other[rng.randrange(len(other)) :] + lines[at:])
        elif accident == 7:
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
            changed = bytearray(data)
            for i in rng.sample(digits, min(len(digits), rng.randint(1, 10))):
                changed[i : i + 1] = rng.choice([b"0", b"9", b"-", b".", b",", b"e", b" ", b"nan", b"inf", b"9" * 30])
            data = bytes(changed)
        else:
            data = data.replace(
                rng.choice([b" ", b"\n", b":", b"|", b"0", b"["]),
                rng.choice([b"", b"  ", b"\n", b"\t", b"0"]),
                rng.randint(1, 50),
            )
    return data.decode(errors="replace")


def faults(text: str, forced: str = "") -> str:
    """What is wrong with how `text` was taken ("" for nothing). `forced`: a reader that takes it for its own."""
    began = time.process_time()  # other programs on the machine do not count
    try:
        if forced:
            lines = lines_of(text)
            tests = [test for test in READERS[forced].read(lines, Given()) if test.samples]
        else:
            imported = read_lines(lines_of(text), Given())
            tests = list(imported.tests)
            for draft in runs_of([imported], repeats=False):
                plan = plan_of(draft, [], "2026-01-01T00:00:00+00:00")
                for file, test, launch in draft.tests:
                    json.dumps(list(records(plan, file, test, launch)), allow_nan=False)
    except CommbenchError:
        tests = []
    for test in tests:
        if said := _zeros([s for s in test.samples if s.status in ("ok", "wrong")]):
            return said
        for sample in test.samples:
            Sample.from_json(json.loads(json.dumps(sample.to_json(), allow_nan=False)))
    spent = time.process_time() - began
    return f"{spent:.1f} s for {len(text)} characters" if spent > SLOWEST_S else ""


def _zeros(samples: list[Sample]) -> str:
    """A measured row without a figure above 0 is a zero that looks like a result."""
    for sample in samples:
        told = [v for k, v in sample.reported.items() if k not in ("iterations", "calls")]
        if not sample.samples_us and not any(isinstance(v, str) or v > 0 for v in told):
            return f"{sample.point.op} {sample.point.size_bytes} B: nothing but zeros {sample.reported}"
        if any(not 0 < t < 1e300 for t in sample.samples_us):
            return f"a time of {sample.samples_us}"
    return ""


def main() -> None:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    originals, names, began = cases(), list(READERS), time.perf_counter()
    rng, used, slowest = random.Random(seed), 0, 0.0
    for number in range(total):
        text = damaged(rng.choice(originals), originals, rng)
        for forced in ("", names[number % len(names)]):
            start = time.process_time()
            try:
                said = faults(text, forced)
            except Exception:
                Path("fuzz-failure.txt").write_text(text, errors="replace")
                print(
                    f"input {number} (seed {seed}), reader {forced or 'all'}: written to fuzz-failure.txt",
                    file=sys.stderr,
                )
                raise
            slowest = max(slowest, time.process_time() - start)
            if said:
                Path("fuzz-failure.txt").write_text(text, errors="replace")
                sys.exit(f"input {number} (seed {seed}), reader {forced or 'all'}: {said}; written to fuzz-failure.txt")
            used += 1
        if (number + 1) % 10_000 == 0:
            print(
                f"{number + 1} inputs, slowest {1e3 * slowest:.0f} ms, {time.perf_counter() - began:.0f} s", flush=True
            )
    print(f"{total} inputs, {used} readings: no traceback, no hang (slowest {1e3 * slowest:.0f} ms), no table of zeros")


if __name__ == "__main__":
    main()
