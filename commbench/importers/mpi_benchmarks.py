"""MPIBenchmarks.jl: CSV with times in seconds, under a line that names the benchmark and its ranks."""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, whole
from commbench.importers.found import Given, Test, believed
from commbench.importers.osu import BLOCKS, operation
from commbench.importers.samples import dtype, nodes_of, sample
from commbench.importers.text import Line, Lines

_TITLE = re.compile(
    r"Running benchmark (?:OSU|IMB) ([\w -]{1,60}) with type (\w{1,20}) on (\d{1,7}) MPI ranks"
    r"(?: with window synchronization: (\w{1,20}))?"
)
_PAIRS = {"pingpong": "Latency", "pingping": "Latency"}
_UNITS = {"seconds": 1e6, "microseconds": 1.0, "us": 1.0, "s": 1e6, "ms": 1e3}
_NAME = re.compile(r"(\w{1,40}) ?\(([\w/]{1,20})\)")
_BELIEVED = 2000.0  # GB/s
_LONGEST = 24.0  # hours that one benchmark may have run
WORDS = ("Running benchmark", "size (bytes)")


def starts(text: str) -> bool:
    return _TITLE.search(text) is not None or (
        text.startswith("size (bytes),") and ("time" in text or "bandwidth" in text)
    )


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, title, columns = None, None, None
    for line in lines.section("mpi_benchmarks"):
        text = line.text.strip()
        if found := _TITLE.search(text):
            if test:
                yield _finished(test, title, given)
            test, title, columns = Test("MPIBenchmarks.jl", line.number), found, None
        elif starts(text):
            test = test or Test("MPIBenchmarks.jl", line.number)
            columns = [name.strip() for name in text.split(",")]
        elif columns and "," in text:
            cells = [cell.strip() for cell in text.split(",")]
            if len(cells) != len(columns) or not _row(line, dict(zip(columns, cells)), test, title, given):
                lines.drop(line, "a row that is not complete, or holds no time above 0")
        elif text:
            lines.drop(line)
    if test:
        yield _finished(test, title, given)


def _row(line: Line, row: dict, test: Test, title, given: Given) -> bool:
    size, found = whole(row.get("size (bytes)", "")), {}
    for name, cell in row.items():
        named, value = _NAME.fullmatch(name), number(cell)
        if named and named[1] in ("time", "latency") and value is not None:  # of pairs there is one time
            found["avg"] = value * _UNITS.get(named[2], 0.0)
        elif named and named[1].endswith("_time") and value is not None:
            found[named[1].removesuffix("_time")] = value * _UNITS.get(named[2], 0.0)
        elif named and named[1] == "bandwidth" and named[2] == "MB/s" and value:
            found["bandwidth"] = value / 1e3
        elif name.startswith("iter") and value is not None:
            found["iterations"] = int(value)
    if size is None or not (found.get("avg") or found.get("bandwidth")):
        return False
    op, params = operation(_PAIRS.get(title[1].strip().lower(), title[1])) if title else (given.op or "unknown", {})
    ranks = believed(title[3]) if title else given.ranks
    params = params | ({"synchronization": title[4]} if title and title[4] else {})
    blocks = op in BLOCKS
    test.add(
        sample(
            op, "mpi", time_us=found.get("avg"), ranks=ranks, nodes=nodes_of(ranks, 0, given)[0],
            size_bytes=size * ranks if blocks else size, dtype=dtype(title[2]) if title else "unknown",
            params=params | ({"block_bytes": size} if blocks else {}), over_ranks="mean",
            reported={"time_us": found.get("avg"), "bandwidth_GBps": found.get("bandwidth"), "min_us": found.get("min"),
                      "max_us": found.get("max"), "iterations": found.get("iterations")},
        )
    )  # fmt: skip
    return True


def _finished(test: Test, title, given: Given) -> Test:
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "MPIBenchmarks.jl without a row of its table")
        return test
    highest = max(s.reported.get("bandwidth_GBps", 0.0) for s in test.samples)
    if highest > _BELIEVED:
        test.notes.append(
            f"a bandwidth of {highest:g} GB/s is more than any link moves: the unit in the header is wrong"
        )
    hours = sum(s.reported.get("iterations", 0) * s.reported.get("time_us", 0.0) for s in test.samples) / 3.6e9
    if hours > _LONGEST:
        test.notes.append(
            f"with its iterations this benchmark ran for {hours:.0f} hours: the unit in the header is likely wrong "
            "(its one-sided tests print microseconds under 'seconds')"
        )
    if title:
        test.notes += [note] if (note := nodes_of(believed(title[3]), 0, given)[1]) else []
    else:
        test.notes.append("no title names the benchmark; name it with --op and --ranks")
    return test
