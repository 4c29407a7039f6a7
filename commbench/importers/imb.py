"""Intel MPI Benchmarks: `#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]` under the name of a benchmark.

Sizes are those of a rank's block for Allgather, Gather, Scatter and of the block for each peer for Alltoall. Mbytes
are of 2^20 bytes in old versions and of 10^6 since 2018; size and time tell which. IMB-NBC prints t_ovrl, t_pure,
t_CPU and overlap of the process with the longest t_ovrl: the time of the operation is t_pure. With -multi, groups of
processes run at once: -multi 0 prints the slowest, -multi 1 each with a column Group.
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, positive, whole
from commbench.importers.found import Given, Test, believed
from commbench.importers.osu import BLOCKS, operation
from commbench.importers.samples import dtype, nodes_of, sample
from commbench.importers.text import Line, Lines

_TITLE = re.compile(r"^[#\s]*Benchmarking (?:Multi-)?(\w{2,40})")
_GROUPS = re.compile(r"\( ?(\d{1,6}) groups of (\d{1,6}) processes each running simultaneous")
_PROCESSES = re.compile(r"#processes = (\d{1,7})")
# A title in front of a table from which the lines of the program were taken out.
_NAMED = re.compile(
    r"\W*(PingPong|PingPing|Sendrecv|Exchange|Allreduce|Reduce|Reduce_scatter|Allgatherv?|Gatherv?|Scatterv?|Alltoallv?"
    r"|Bcast|Barrier)\W*"
)
_ABOUT = re.compile(r"#\s*(MPI_Datatype for reductions|MPI_Datatype|MPI_Op)\s*:\s*(MPI_\w{2,30})")
_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
_OPS = {
    "pingpong": "p2p_latency", "pingping": "p2p_latency", "sendrecv": "sendrecv", "exchange": "exchange",
    "uniband": "p2p_bw", "biband": "p2p_bibw",
}  # fmt: skip
_NONBLOCKING = re.compile(
    r"i(allreduce|allgatherv?|alltoallv?|bcast|reduce|reduce_scatter|gatherv?|scatterv?|barrier)(_pure)?"
)
_ERROR = re.compile(r"Error (\w{2,40}), ?size = (\d{1,20})")
_VARIANT = re.compile(r"(pingp[io]ng)(\w{1,30})")  # PingPongAnySource
_NEAR = 8  # lines
WORDS = ("Benchmarking ", "#repetitions")


def starts(text: str) -> bool:
    return _TITLE.match(text) is not None or ("#repetitions" in text and ("usec" in text or "Mbytes/sec" in text))


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each benchmark and number of processes."""
    test, name, ranks, columns, groups = None, "", given.ranks, [], 0
    about = dict(found.groups() for line in lines.stray if (found := _ABOUT.search(line.text)))
    for line in lines.stray:
        name = found[1] if (found := _NAMED.fullmatch(line.text)) else name
    for line in list(lines.stray)[-_NEAR:]:  # above a table without its title
        ranks, groups = _processes(line.text, ranks, groups)
    for line in lines.section("imb"):
        text = line.text.strip()
        if found := _TITLE.match(text) or _NAMED.fullmatch(text):
            if test:
                yield _finished(test, given)
            test, name, ranks, columns = Test("Intel MPI Benchmarks", line.number), found[1], given.ranks, []
            groups = 0
        elif _GROUPS.search(text) or _PROCESSES.search(text):
            if test and test.samples:  # the next table, without its title
                yield _finished(test, given)
                test, name, columns = None, "", []
            ranks, groups = _processes(text, ranks, groups)
        elif found := _ABOUT.search(text):
            about[found[1]] = found[2]
        elif starts(text):
            test = test or Test("Intel MPI Benchmarks", line.number)
            columns = [word.lstrip("#").lower() for word in text.split()]
        elif columns and text[:1].isdigit():
            words = text.split()
            cells = dict(zip(columns, words))
            remark = len(words) > len(columns) and number(words[len(columns)]) is None  # what a reader wrote behind it
            if not (len(words) == len(columns) or remark) or not _row(
                line, cells, test, name, ranks, groups, about, given
            ):
                lines.drop(line, "a row that is not complete, or holds no time or rate above 0")
        elif test and (found := _ERROR.search(text)):
            test.notes.append(f"line {line.number}: the program ended {found[1]} with wrong data at {found[2]} B")
            lines.drop(line)
        elif text and not text.startswith("#"):
            lines.drop(line)
    if test:
        yield _finished(test, given)


def _processes(text: str, ranks: int, groups: int) -> tuple[int, int]:
    if found := _GROUPS.search(text):
        return believed(found[2]), believed(found[1])
    found = _PROCESSES.search(text)
    return (believed(found[1]), 0) if found else (ranks, groups)


def _row(line: Line, cells: dict, test: Test, name: str, ranks: int, groups: int, about: dict, given) -> bool:
    size = whole(cells.get("bytes", "0"))
    times = {column[:-6].strip("_"): positive(cell) for column, cell in cells.items() if column.endswith("[usec]")}
    time = times.get("t_avg") or times.get("t") or times.get("t_pure")
    rate, messages = positive(cells.get("mbytes/sec", "")), positive(cells.get("msg/sec", ""))
    if size is None or not (time or rate):
        return False
    params = {}
    if groups > 1:
        params |= {"groups": groups} | ({"group": int(cells["group"])} if cells.get("group", "").isdigit() else {})
    if variant := _VARIANT.fullmatch(name.lower()):
        params["variant"] = variant[2]
    if overlapped := _NONBLOCKING.fullmatch(name.lower()):
        name, params = overlapped[1], params | {"nonblocking": True}
    op = _OPS.get(variant[1] if variant else name.lower()) or (
        operation(f"{name} Latency")[0] if name else given.op or "unknown"
    )
    blocks, defects = op in BLOCKS, cells.get("defects")
    failed = defects is not None and bool(number(defects))
    more = {f"{column.removeprefix('t_')}_us": value for column, value in times.items() if column in ("t_min", "t_max")}
    if "t_pure" in times:
        more |= {"overlapped_us": times.get("t_ovrl") or None, "cpu_us": times.get("t_cpu") or None}
        more |= {"overlap_percent": number(cells.get("overlap[%]", ""))}
    longest = times.get("t_max") or times.get("t")
    if rate and size and (longest or messages):
        more["bandwidth_GBps"] = rate / 1e3
        test.facts.setdefault("messages", []).append(rate / size * (longest or 1e6 / messages))
    more |= {"messages_per_s": messages} if messages else {}
    params |= {"block_bytes": size} if blocks else {}
    reduces = op in _REDUCTIONS
    test.add(
        sample(
            op, "mpi", time_us=time or None, ranks=ranks, nodes=nodes_of(ranks, 0, given)[0],
            dtype=dtype(about.get("MPI_Datatype for reductions" if reduces else "MPI_Datatype", "unknown")),
            redop=about.get("MPI_Op", "none").lower().removeprefix("mpi_") if reduces else "none",
            size_bytes=size * ranks if blocks else size, params=params,
            over_ranks="max" if "t_pure" in times else "mean",
            reported={"time_us": time or None, "iterations": whole(cells.get("repetitions", "")), **more},
            status="wrong" if failed else "ok", reason=f"line {line.number}: defects {defects}" if failed else "",
            wrong=0 if defects is not None and not failed else None,
        )
    )  # fmt: skip
    return True


def _in_mbytes(test: Test) -> None:
    """Rates as printed are 1, 2 or 4 messages (pingpong, sendrecv, exchange) in the longest time, or the messages of a
    second, if a Mbyte is 10^6 bytes. Where 2^20 fits better, they are of an old version."""
    messages = test.facts.pop("messages", [])
    old = 2**20 / 1e6

    def misfit(mbyte: float) -> float:
        return sum(min(abs(sent * mbyte / n - 1) for n in (1, 2, 4)) for sent in messages)

    if misfit(old) < misfit(1.0):
        for s in test.samples:
            if "bandwidth_GBps" in s.reported:
                s.reported["bandwidth_GBps"] *= old


def _finished(test: Test, given: Given) -> Test:
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "Intel MPI Benchmarks without a row of its table")
        return test
    _in_mbytes(test)
    if not any(s.wrong is not None or s.status == "wrong" for s in test.samples):
        test.notes.append("no result was checked for wrong data")
    if groups := test.samples[0].point.params.get("groups"):
        test.notes.append(f"{groups} groups of {test.samples[0].point.ranks} processes ran at once")
    ranks = test.samples[0].point.ranks
    note = nodes_of(ranks, 0, given)[1] if ranks else "the number of ranks is not in the file; give it with --ranks"
    test.notes += [note] if note else []
    return test
