"""ucc_perftest. Format: openucx/ucc tools/perf/ucc_pt_benchmark.cc; the bandwidth is the bus bandwidth (get_bw).

The size is that of one rank's block for alltoall, allgather, gather and scatter. In older versions the bandwidth under
`min` belongs to the shortest time, so it is the largest: minimum and maximum are taken by value, not by name.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from commbench.importers.cells import NOTHING, number
from commbench.importers.found import Given, Test, believed
from commbench.importers.nccl_infer import ranks_of_factors
from commbench.importers.osu import operation
from commbench.importers.samples import dtype, nodes_of, sample
from commbench.importers.text import Line, Lines

_BLOCKS = ("all_to_all", "all_gather", "gather", "scatter")
_KEYS = ("collective", "memory type", "datatype", "data type", "reduction", "inplace", "persistent", "operation type")
_PROCESSES = re.compile(r"^\s*(?:Number of |#)(?:processes|ranks|procs) ?[:=] ?(\d{1,7})\s*$", re.IGNORECASE)
WORDS = ("Collective:",)


def starts(text: str) -> bool:
    return text.lstrip().startswith("Collective:")


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, facts, columns, rows, groups = None, {}, [], [], []
    said = next((believed(m[1]) for line in lines.stray if (m := _PROCESSES.match(line.text))), 0)
    given = given if given.ranks or not said else replace(given, ranks=said)
    for line in lines.section("ucc"):
        text = line.text.strip()
        if starts(text):
            if test:
                yield _finished(test, facts, rows, given)
            test, facts, columns, rows, groups = Test("ucc_perftest", line.number), {}, [], [], []
        key, colon, value = text.partition(":")
        if colon and key.strip().lower() in _KEYS:
            facts[key.strip().lower()] = value.strip()
        elif text.startswith("Count") and "Size" in text:
            groups = ["time"] * ("Time, us" in text) + ["bandwidth"] * ("GB/s" in text)
        elif groups and set(text.split()) <= {"avg", "min", "max"} and text:
            columns = ["count", "size", *_named(text.split(), groups)]
        elif columns and text[:1].isdigit():
            cells = text.split()
            row = {name: _cell(cell) for name, cell in zip(columns, cells)} if len(cells) == len(columns) else {}
            if row.get("time avg") and row.get("size") is not None:
                rows.append((line, row))
            else:
                lines.drop(line, "a row that is not complete")
        elif text and not text.lower().startswith(("warmup", "iterations", "small", "large")):
            lines.drop(line)
    if test:
        yield _finished(test, facts, rows, given)


def _cell(text: str) -> float | None:
    return None if text in NOTHING else number(text)


def _named(words: list[str], groups: list[str]) -> list[str]:
    """avg min max avg max min -> each with the group it stands under."""
    per = len(words) // len(groups)
    return [f"{groups[min(i // per, len(groups) - 1)]} {word}" for i, word in enumerate(words)] if per else []


def _finished(test: Test, facts: dict, rows: list[tuple[Line, dict]], given: Given) -> Test:
    test.facts = dict(facts)
    if not rows:
        test.fault = (test.line, "ucc_perftest without a row of its table")
        return test
    op = operation(facts.get("collective", ""))[0]
    ranks, blocks, note = _ranks(op, rows, given)
    nodes, where = nodes_of(ranks, 0, given, gpus=facts.get("memory type", "").lower() in ("cuda", "rocm"))
    test.notes += [said for said in (note, where, "no result was checked for wrong data") if said]
    for _, row in rows:
        size = int(row["size"])
        bandwidths = sorted(value for name, value in row.items() if name.startswith("bandwidth") and value)
        reported = {"time_us": row["time avg"], "min_us": row.get("time min"), "max_us": row.get("time max")}
        reported |= {"busbw_GBps": row.get("bandwidth avg") or None}
        if len(bandwidths) > 1:
            reported |= {"lowest_busbw_GBps": bandwidths[0], "highest_busbw_GBps": bandwidths[-1]}
        test.add(
            sample(
                op,
                "ucc",
                time_us=row["time avg"],
                ranks=ranks,
                nodes=nodes,
                size_bytes=size * ranks if blocks else size,
                count=int(row["count"] or 0),
                dtype=dtype(facts.get("datatype", "unknown")),
                redop=facts.get("reduction", "none").lower().replace("n/a", "none"),
                in_place=facts.get("inplace") == "1",
                params={"block_bytes": size} if blocks else {},
                over_ranks="mean",
                reported=reported,
            )
        )
    test.rows = len(rows)
    return test


def _ranks(op: str, rows, given: Given) -> tuple[int, bool, str]:
    """(ranks, whether the size is that of a block, what to say)."""
    ratios = []
    for _, row in rows:
        if row.get("bandwidth avg") and row["size"]:
            ratio = row["bandwidth avg"] * 1e3 * row["time avg"] / row["size"]
            spread = 0.006 / row["bandwidth avg"] + 0.006 / row["time avg"]
            ratios.append((ratio * (1 - spread), ratio * (1 + spread)))
    total = bool(ratios) and sum(high < 1.0 for _, high in ratios) > len(ratios) / 2
    blocks = op in _BLOCKS and not total
    if blocks:  # busbw = block x (n-1) / time
        peers = {round((low + high) / 2) for low, high in ratios}
        certain = len(peers) == 1 and min(peers) > 0
        if certain:
            return believed(peers.pop() + 1), True, ""
    else:
        least, most = ranks_of_factors(op, ratios)
        if least == most:
            return least, False, ""
    if given.ranks:
        return given.ranks, blocks, ""
    unknown = ", so the size of the whole buffer is not known either" if blocks else ""
    return 0, blocks, f"the number of ranks is not in the file{unknown}; give it with --ranks"
