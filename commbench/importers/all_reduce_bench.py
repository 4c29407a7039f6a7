"""all_reduce_bench.py of stas00/ml-engineering: a Markdown table of payload, busbw and algbw (GBps of 10^9 bytes).

It prints means of rates, not times, so an imported row has figures and no time. Columns stand in either order. Older
versions print a sentence for one payload, and its two rates below it; the oldest a throughput that is twice the algbw.
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, sized
from commbench.importers.found import Given, Test, believed
from commbench.importers.nccl_infer import ranks_of_factors, rounded
from commbench.importers.samples import nodes_of, sample
from commbench.importers.text import Lines

_RANKS = re.compile(r"bandwidth of all_reduce over (\d{1,7}) ranks")
_SENTENCE = re.compile(
    r"average bandwidth of all_reduce with a ([\d.]{1,12} ?[KMGT]i?B) payload \(\d{1,9} trials, (\d{1,7}) ranks\)"
)
_ALONE = re.compile(r"(algbw|busbw): *([\d.]{1,20} ?[GM]Bps|[\d.]{1,20} ?Gbps)")
_OLDEST = re.compile(r"^\d{1,7} data size: (\d{1,6}(?:\.\d{1,6})?) GB$")
_MEANS = re.compile(r"^tput_avg \(Gbps\): (\d{1,9}\.\d{1,20}) busbw_avg \(Gbps\): (\d{1,9}\.\d{1,20})")
_SOFTWARE = re.compile(r"software: torch=([^,\s]{1,40}), cuda=([^,\s]{1,40}), nccl=(\([\d, ]{1,40}\)|\S{1,40})")
_WITH_UNIT = re.compile(r"([\d.]{1,20}) ?(GBps|GB/s|Gbps|Gb/s|MBps|MB/s)")
_SCALE = {"GBps": 1.0, "GB/s": 1.0, "Gbps": 0.125, "Gb/s": 0.125, "MBps": 1e-3, "MB/s": 1e-3}
WORDS = ("busbw", "bandwidth of all_reduce", "data size: ")


def starts(text: str) -> bool:
    if "|" in text and "busbw" in text and "algbw" in text:
        return True
    if "data size: " in text:
        return _OLDEST.match(text.strip()) is not None
    return "all_reduce" in text and (_RANKS.search(text) is not None or _SENTENCE.search(text) is not None)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, columns, rows, ranks, alone = None, [], [], given.ranks, None
    for line in lines.section("all_reduce_bench"):
        text = line.text.strip()
        if found := _RANKS.search(text):
            if rows:
                yield _finished(test, rows, ranks, given)
            test, rows, columns = Test("all_reduce_bench", line.number), [], []
            ranks = believed(found[1])
        elif found := _SENTENCE.search(text):
            if rows and believed(found[2]) != ranks:
                yield _finished(test, rows, ranks, given)
                test, rows = None, []
            test, ranks = test or Test("all_reduce_bench", line.number), believed(found[2])
            alone = {"size": f"{sized(found[1], 1000)}B"}  # its GB are 10^9, those of the table 2^30
        elif found := _OLDEST.match(text):
            if rows:
                yield _finished(test, rows, ranks, given)
                test, rows = None, []
            test, ranks = test or Test("all_reduce_bench", line.number), given.ranks
            alone = {"size": f"{sized(found[1] + ' GB', 1000)}B"}
        elif alone and (found := _MEANS.search(text)):  # its throughput counts the data twice
            means = {"algbw": f"{float(found[1]) / 2:.6g} Gbps", "busbw": f"{float(found[2]):.6g} Gbps"}
            rows += [parsed] if (parsed := _row(alone | means)) else []
            alone = None
        elif alone and (found := _ALONE.search(text)):
            alone[found[1]] = found[2]
            if parsed := _row(alone):
                rows.append(parsed)
                alone = None
        elif starts(text):
            if rows:
                yield _finished(test, rows, ranks, given)
                test, rows, ranks = None, [], given.ranks
            test = test or Test("all_reduce_bench", line.number)
            columns = _cells(text)
        elif columns and "|" in text:
            if set(text) <= set("|-: "):
                continue
            row = dict(zip(columns, _cells(text))) if len(_cells(text)) == len(columns) else {}
            parsed = _row(row)
            rows += [parsed] if parsed else []
            if not parsed:
                lines.drop(line, "a row that is not complete")
        elif test and (found := _SOFTWARE.search(text)):
            test.versions = {"torch": found[1], "cuda": found[2], "nccl": found[3]}
        elif text.strip("`-="):
            lines.drop(line)
    if test:
        yield _finished(test, rows, ranks, given)


def _cells(text: str) -> list[str]:
    return [cell.strip(" *`") for cell in text.strip().strip("|").split("|")]


def _rate(cell: str) -> tuple[float, tuple[float, float]] | None:
    found = _WITH_UNIT.fullmatch(cell)
    if not found or not number(found[1]):
        return None
    scale = _SCALE[found[2]]
    low, high = rounded(found[1])
    return number(found[1]) * scale, (low * scale, high * scale)


def _row(row: dict) -> tuple | None:
    size = sized(row.get("payload", row.get("size", "")))
    busbw, algbw = _rate(row.get("busbw", "")), _rate(row.get("algbw", ""))
    return (size, busbw, algbw) if size and busbw and algbw else None


def _finished(test: Test, rows: list[tuple], ranks: int, given: Given) -> Test:
    if not rows:
        test.fault = (test.line, "the header of all_reduce_bench without a row")
        return test
    if not ranks:
        ranges = [(busbw[1][0] / algbw[1][1], busbw[1][1] / algbw[1][0]) for _, busbw, algbw in rows if algbw[1][0] > 0]
        least, most = ranks_of_factors("all_reduce", ranges)
        ranks = least if least == most else 0
        if not ranks:
            test.notes.append(
                f"the number of ranks is not in the file (busbw / algbw allows {least} to {most}); give --ranks"
            )
    nodes, note = nodes_of(ranks, 0, given, gpus=True)
    test.notes += [said for said in (note, "no result was checked for wrong data") if said]
    for size, busbw, algbw in rows:
        test.add(
            sample("all_reduce", "nccl", ranks=ranks, nodes=nodes, size_bytes=size, count=size // 4, dtype="float32",
                   redop="sum", in_place=True, over_ranks="mean", clock="cuda events",
                   reported={"algbw_GBps": algbw[0], "busbw_GBps": busbw[0]})
        )  # fmt: skip
    test.rows = len(rows)
    return test
