"""Intel MPI Benchmarks: `#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]` under the name of a benchmark.

Sizes are those of a rank's block for Allgather, Gather, Scatter and of the block for each peer for Alltoall.
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, positive, whole
from commbench.importers.found import Given, Test, believed
from commbench.importers.osu import BLOCKS, operation
from commbench.importers.samples import nodes_of, sample
from commbench.importers.text import Line, Lines

_TITLE = re.compile(r"^[#\s]*Benchmarking (\w{2,40})")
_PROCESSES = re.compile(r"#processes = (\d{1,7})")
_OPS = {"pingpong": "p2p_latency", "pingping": "p2p_latency", "sendrecv": "sendrecv"}
WORDS = ("Benchmarking ", "#repetitions")


def starts(text: str) -> bool:
    return _TITLE.match(text) is not None or ("#repetitions" in text and "usec" in text)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each benchmark and number of processes."""
    test, name, ranks, columns = None, "", given.ranks, []
    for line in lines.section("imb"):
        text = line.text.strip()
        if found := _TITLE.match(text):
            if test:
                yield _finished(test, given)
            test, name, ranks, columns = Test("Intel MPI Benchmarks", line.number), found[1], given.ranks, []
        elif found := _PROCESSES.search(text):
            ranks = believed(found[1])
        elif starts(text):
            test = test or Test("Intel MPI Benchmarks", line.number)
            columns = [word.lstrip("#").lower() for word in text.split()]
        elif columns and text[:1].isdigit():
            cells = dict(zip(columns, text.split()))
            if len(text.split()) != len(columns) or not _row(line, cells, test, name, ranks, given):
                lines.drop(line, "a row that is not complete, or holds no time above 0")
        elif text and not text.startswith("#"):
            lines.drop(line)
    if test:
        yield _finished(test, given)


def _row(line: Line, cells: dict, test: Test, name: str, ranks: int, given: Given) -> bool:
    size = whole(cells.get("bytes", "0"))
    times = {column[:-6].strip("_"): positive(cell) for column, cell in cells.items() if column.endswith("[usec]")}
    time = times.get("t_avg") or times.get("t")
    if size is None or not time:
        return False
    op = _OPS.get(name.lower()) or (operation(f"{name} Latency")[0] if name else given.op or "unknown")
    blocks, defects = op in BLOCKS, cells.get("defects")
    failed = defects is not None and bool(number(defects))
    more = {f"{column.removeprefix('t_')}_us": value for column, value in times.items() if column in ("t_min", "t_max")}
    test.add(
        sample(
            op, "mpi", time_us=time, ranks=ranks, nodes=nodes_of(ranks, 0, given)[0], dtype="unknown",
            size_bytes=size * ranks if blocks else size, params={"block_bytes": size} if blocks else {},
            over_ranks="mean", reported={"time_us": time, "iterations": whole(cells.get("repetitions", "")), **more},
            status="wrong" if failed else "ok", reason=f"line {line.number}: defects {defects}" if failed else "",
            wrong=0 if defects is not None and not failed else None,
        )
    )  # fmt: skip
    return True


def _finished(test: Test, given: Given) -> Test:
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "Intel MPI Benchmarks without a row of its table")
        return test
    if not any(s.wrong is not None or s.status == "wrong" for s in test.samples):
        test.notes.append("no result was checked for wrong data")
    ranks = test.samples[0].point.ranks
    note = nodes_of(ranks, 0, given)[1] if ranks else "the number of ranks is not in the file; give it with --ranks"
    test.notes += [note] if note else []
    return test
