"""A file of whatever tool as the tests it holds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from commbench.errors import MeasureError
from commbench.importers import (
    all_reduce_bench,
    deepep,
    deepspeed,
    flash_attention,
    imb,
    json_files,
    mpi_benchmarks,
    nccl_tests,
    nccl_xml,
    nccom,
    nvbandwidth,
    osu,
    pairs,
    perftest,
    rccl_csv,
    topo,
    ucc,
)
from commbench.importers.found import MOST_SAMPLES, Given, Test
from commbench.importers.launchers import launched
from commbench.importers.names import ranks_named
from commbench.importers.text import Lines, open_lines

# The readers by name. `starts(text)` is true for a line that begins a tool's output, whatever stood before it; such a
# line holds one of WORDS. The first reader that wants a line gets it.
READERS = {
    "json": json_files,
    "rccl_csv": rccl_csv,
    "nccom": nccom,
    "nccl": nccl_tests,
    "osu": osu,
    "imb": imb,
    "perftest": perftest,
    "nvbandwidth": nvbandwidth,
    "deepep": deepep,
    "deepspeed": deepspeed,
    "all_reduce_bench": all_reduce_bench,
    "ucc": ucc,
    "topo": topo,
    "nccl_xml": nccl_xml,
    "pairs": pairs,
    "mpi_benchmarks": mpi_benchmarks,
    "flash_attention": flash_attention,
}


@dataclass(frozen=True)
class Imported:
    """The tests of one file that hold samples, the others with why they do not, and the lines that were dropped:
    reason to (how many, first line number, its text)."""

    path: Path
    tests: tuple[Test, ...]
    unusable: tuple[Test, ...]
    dropped: dict[str, tuple[int, int, str]]
    log_lines: int


_WORDS = [(word, name) for name, reader in READERS.items() for word in reader.WORDS]


def kind_of(text: str) -> str:
    """The name of the reader whose output a line begins, or ""."""
    text = text[:8192]
    for word, name in _WORDS:
        if word in text and READERS[name].starts(text):
            return name
    return ""


def read_file(path: Path, given: Given) -> Imported:
    """What the file holds. Raises MeasureError, naming the first odd line, when nothing in it can be used.

    Where its text tells no number of ranks, its name may.
    """
    given = replace(given, name=path.stem)
    file, named = read_lines(open_lines(path), given), ranks_named(path.stem)
    if given.ranks or not named or not any(_without_ranks(test) for test in file.tests):
        return file
    again = read_lines(open_lines(path), replace(given, ranks=named))
    tests = tuple(_told(first, second, named) for first, second in zip(file.tests, again.tests, strict=True))
    return replace(file, tests=tests)


def _without_ranks(test: Test) -> bool:
    return any(sample.point.ranks == 0 for sample in test.samples)


def _told(first: Test, second: Test, named: int) -> Test:
    """The test as it is with the ranks of the file's name, where it was without."""
    if not _without_ranks(first) or _without_ranks(second):
        return first
    second.notes.append(f"the file's name says {named} rank(s)")
    return second


def read_lines(lines: Lines, given: Given) -> Imported:
    """As read_file, from lines that are open."""
    lines.kind_of = kind_of
    found = _one_job(list(_tests(lines, given)))
    dropped = {why: (count, line.number, line.text[:200]) for why, (count, line) in lines.dropped.items()}
    usable = tuple(test for test in found if test.samples)
    unusable = tuple(test for test in found if not test.samples)
    if not usable:
        raise MeasureError(f"{lines.path} holds nothing that can be used: {_first_odd(unusable, dropped)}")
    return Imported(lines.path, usable, unusable, dropped, lines.told.lines)


def _tests(lines: Lines, given: Given) -> Iterator[Test]:
    results = 0
    for line in lines:
        kind = kind_of(line.text) or ("nccl" if nccl_tests.resembles(line.text[:8192]) else "")
        if kind:
            lines.give_back(line)
            for test in READERS[kind].read(lines, given):
                results += len(test.samples)
                if results > MOST_SAMPLES:
                    raise MeasureError(f"{lines.path}: more than {MOST_SAMPLES} results stand in one file; split it")
                yield test
            lines.stray.clear()
        elif line.text.strip(" #`-=*"):
            lines.stray.append(line)
            if not launched(line.text)[0]:  # a command line tells the next reader how many ranks there are
                lines.drop(line)


def _one_job(tests: list[Test]) -> list[Test]:
    """The tests, where several of the same operation had one rank each: they were to be one job, and are not."""
    alone = [test for test in tests if test.tool.split()[0].endswith("ccl-tests") and _alone(test)]
    for test in alone if len(alone) > 1 else ():
        test.samples = []
        test.fault = (
            test.line,
            f"not one job: {len(alone)} jobs of one rank each stand in this file, where no bus is used; start the "
            "ranks as one job (an nccl-tests built with MPI=1, one launcher)",
        )
    return tests


def _alone(test: Test) -> bool:
    return bool(test.samples) and all(s.point.ranks == 1 for s in test.samples)


def _first_odd(unusable: tuple[Test, ...], dropped: dict) -> str:
    """The first line that was to be something and is not."""
    rows = [(number, why, text) for why, (_, number, text) in dropped.items() if why != "not understood"]
    if unusable:
        number, why = unusable[0].fault
        first = min(rows, default=None)
        if first and "without" in why:
            return f"line {number}: {why}; line {first[0]} ({first[2].strip()[:60]!r}) is {first[1]}"
        return f"line {number}: {why}"
    if dropped:
        why, (_, number, text) = min(dropped.items(), key=lambda item: item[1][1])
        return f"line {number} ({text.strip()[:60]!r}) is {why}"
    return "it is empty"
