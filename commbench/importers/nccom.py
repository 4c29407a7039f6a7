"""AWS nccom-test: `size(B)  count(elems)  type  time:avg(us)  algbw(GB/s)  busbw(GB/s)`."""

import re
from collections.abc import Iterator
from dataclasses import replace

from commbench.importers.cells import number, whole
from commbench.importers.found import Given, Test, believed
from commbench.importers.nccl_infer import ranks_of_factors, rounded
from commbench.importers.samples import dtype, nodes_of, sample
from commbench.importers.text import Line, Lines

_COMMAND = re.compile(r"\bnccom-test\b(.{0,400})")
_WORKERS = re.compile(r"\s(?:-r|--nworkers) +(\d{1,6})\b")
_NODES = re.compile(r"\s(?:-N|--nnodes|--num-nodes) +(\d{1,5})\b")
_OPS = {
    "allr": "all_reduce",
    "all_reduce": "all_reduce",
    "allg": "all_gather",
    "all_gather": "all_gather",
    "redsct": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "sendrecv",
}
_AVERAGE = re.compile(r"Avg bus bandwidth: *([\d.]{1,20}) *GB/s")
WORDS = ("nccom-test", "count(elems)")


def starts(text: str) -> bool:
    return "nccom-test" in text or ("size(B)" in text and "count(elems)" in text)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, columns, rows, op, ranks = None, None, [], given.op, given.ranks
    for line in lines.section("nccom"):
        text = line.text.strip()
        test = test or Test("nccom-test", line.number)
        if found := _COMMAND.search(text):
            if rows:
                yield _finished(test, rows, op, ranks, given)
                test, rows = Test("nccom-test", line.number), []
            op = next((_OPS[word] for word in found[1].split() if word in _OPS), given.op)
            ranks = believed(workers[1]) if (workers := _WORKERS.search(found[1])) else given.ranks
            if nodes := _NODES.search(found[1]):
                given = replace(given, nodes=believed(nodes[1]) or given.nodes)
        elif starts(text):
            if rows:
                yield _finished(test, rows, op, ranks, given)
                test, rows = Test("nccom-test", line.number), []
            columns = text.split()
        elif found := _AVERAGE.search(text):
            test.facts["average_busbw_GBps"] = number(found[1])
        elif columns and text[:1].isdigit():
            row = _row(line, dict(zip(columns, text.split())) if len(text.split()) == len(columns) else {})
            rows += [row] if row else []
            if not row:
                lines.drop(line, "a row that is not complete")
        elif text:
            lines.drop(line)
    if test:
        yield _finished(test, rows, op, ranks, given)


def _row(line: Line, cells: dict) -> tuple | None:
    size, count = whole(cells.get("size(B)", "")), whole(cells.get("count(elems)", ""))
    times = {name: number(cell) for name, cell in cells.items() if name.startswith("time") and name.endswith("(us)")}
    time = times.get("time:avg(us)") or times.get("time(us)") or next(iter(times.values()), None)
    figures = [number(cells.get(name, "")) for name in ("algbw(GB/s)", "busbw(GB/s)")]
    if None in (size, count, *figures) or not time or "type" not in cells:
        return None
    return line.number, size, count, cells, times, time, figures


def _finished(test: Test, rows: list, op: str, ranks: int, given: Given) -> Test:
    if not rows:
        test.fault = (test.line, "nccom-test without a row of its table")
        return test
    ranges = []
    for _, size, _, cells, _, time, _ in rows:
        algbw, busbw = rounded(cells["algbw(GB/s)"]), rounded(cells["busbw(GB/s)"])
        low, high = max(algbw[0], size / (time * 1.0001) / 1e3), min(algbw[1], size / (time * 0.9999) / 1e3)
        low, high = (low, high) if low <= high else algbw
        if low > 0:
            ranges.append((busbw[0] / high, busbw[1] / low))
    if not op:  # only all_reduce has a bus factor above 1
        sharp = [low for low, high in ranges if high < 1.2 * low]
        op = "all_reduce" if sharp and sum(low > 1.0 for low in sharp) > len(sharp) / 2 else ""
    if not op:
        test.fault = (rows[0][0], "no command names the collective; name it with --op")
        return test
    least, most = ranks_of_factors(op, ranges)
    if not ranks and least == most:
        ranks = least
    if not ranks:
        test.notes.append(
            f"the number of ranks is not in the file (busbw / algbw allows {least} to {most}); give --ranks"
        )
    nodes, note = nodes_of(ranks, 0, given)
    test.notes += [note] if note else []
    test.notes.append("no result was checked for wrong data")
    for _, size, count, cells, times, time, (algbw, busbw) in rows:
        more = {f"{name[5:-4]}_us": value for name, value in times.items() if ":" in name and value != time}
        test.add(
            sample(
                op, "neuron", time_us=time, ranks=ranks, nodes=nodes, size_bytes=size, count=count,
                dtype=dtype(cells["type"]), redop="sum" if op in ("all_reduce", "reduce_scatter") else "none",
                over_ranks="mean", timing="streaming", batch=0,
                reported={"time_us": time, "algbw_GBps": algbw, "busbw_GBps": busbw, **more},
            )
        )  # fmt: skip
    test.rows = len(rows)
    return test
