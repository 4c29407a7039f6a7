"""DeepSpeed: the table of its communication logger, and that of DeepSpeedExamples' communication benchmark.

Bandwidths are Gbit/s of 10^9 unless the header says otherwise; sizes are texts such as "1.45 GB" of 2^30 bytes
(convert_size in deepspeed/utils/comms_logging.py), rounded to what they show. Throughput is not algbw: for all_reduce
it is twice the size over the time.
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, positive, sized, whole
from commbench.importers.found import Given, Test, believed
from commbench.importers.samples import nodes_of, sample
from commbench.importers.text import Line, Lines

_SIZE = r"(\d[\d.]{0,20} ?(?:[KMGT]?i?B))"
_NUMBER, _GAP = r"([\d.]{1,20})", r"\s{1,60}"
_LOGGED = re.compile(r"\s{0,60}" + _GAP.join([_SIZE, r"(\d{1,12})", *[_NUMBER] * 4]) + r"\s{0,60}$")
_BENCH_TITLE = re.compile(r"---- Performance of (\w{1,40}) on (\d{1,7}) devices")
_BENCH = re.compile(
    r"\s{0,60}"
    + _GAP.join([rf"(?:{_SIZE}|(\d{{1,18}}))", r"(\S{1,40})", _NUMBER + r" {0,60}(us|ms|s)?", _NUMBER, _NUMBER])
    + r"\s{0,60}$"
)
_NAME = re.compile(r"^\s*([a-z][a-z0-9_]{2,60})(?: \| \[Caller Func: ([\w.]{1,80})\])?\s*$")
_OPS = {
    "allreduce": "all_reduce",
    "inferenceallreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allgather": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherbase": "all_gather",
    "allgathercoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "sendrecv",
    "recv": "sendrecv",
    "isend": "sendrecv",
    "irecv": "sendrecv",
    "pt2pt": "p2p_bw",
    "logsummarybarrier": "barrier",
}
_BLOCKS = ("all_gather", "reduce_scatter")  # the logger counts one rank's share of these
_RATE = {"Gbps": 0.125, "GBps": 1.0}
_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}
WORDS = ("Comm. Op", "Performance of")


def starts(text: str) -> bool:
    return ("Comm. Op" in text and "Message Size" in text) or _BENCH_TITLE.search(text) is not None


def read(lines: Lines, given: Given) -> Iterator[Test]:
    state = None
    for line in lines.section("deepspeed"):
        text = line.text
        if starts(text):
            if state:
                yield _finished(state)
            state = _began(line, given)
        elif state is None or not text.strip(" -="):
            continue
        elif state["bench"]:
            _bench(line, state, lines)
        elif found := _LOGGED.match(text):
            _logged(line, found, state, lines)
        elif found := _NAME.match(text):
            state["name"], state["caller"] = found[1], found[2]
        else:
            lines.drop(line)
    if state:
        yield _finished(state)


def _began(line: Line, given: Given) -> dict:
    title = _BENCH_TITLE.search(line.text)
    ranks = believed(title[2]) if title else given.ranks
    test = Test("DeepSpeed communication benchmark" if title else "DeepSpeed communication logger", line.number)
    unit = "GBps" if "GBps" in line.text else "Gbps"
    return {
        "test": test,
        "bench": bool(title),
        "name": title[1] if title else "",
        "caller": None,
        "ranks": ranks,
        "nodes": nodes_of(ranks, 0, given, gpus=bool(title)),
        "unit": unit,
        "straggler": "straggler" in line.text,
        "unsized": set(),
    }


def _bench(line: Line, state: dict, lines: Lines) -> None:
    text = line.text
    if "Throughput" in text:
        state["unit"] = "GBps" if "GBps" in text else "Gbps"
    elif found := _BENCH.match(text):
        text_size, plain, _, time, time_unit, throughput, busbw = found.groups()
        size = whole(plain) if plain else sized(text_size)
        time_us = (positive(time) or 0) * _MICROSECONDS[time_unit or "us"] or None
        _add(line, state, lines, size, time_us, throughput, busbw, {}, exact=bool(plain))
    else:
        lines.drop(line)


def _logged(line: Line, found: re.Match, state: dict, lines: Lines) -> None:
    size, count, total, average, throughput, busbw = found.groups()
    if state["straggler"]:
        lines.drop(line, "a row of the table of stragglers")
        return
    time_us = (positive(average) or 0) * 1e3 or None
    more = {"calls": int(count), "total_us": (number(total) or 0) * 1e3 or None}
    _add(line, state, lines, sized(size), time_us, throughput, busbw, more, exact=False)


def _add(line: Line, state: dict, lines: Lines, size, time_us, throughput, busbw, more: dict, exact: bool) -> None:
    name = state["name"]
    op = _OPS.get(re.sub(r"[^a-z]", "", name.lower()), name)
    scale = _RATE[state["unit"]]
    rate, bus = (number(throughput) or 0) * scale or None, (number(busbw) or 0) * scale or None
    if size is None or not name or not (time_us or rate or bus):
        lines.drop(line, "a row without a time above 0")
        return
    blocks, ranks = op in _BLOCKS, state["ranks"]
    if blocks and not ranks:
        state["unsized"].add(op)
    params = ({"block_bytes": size} if blocks else {}) | ({"caller": state["caller"]} if state["caller"] else {})
    params |= {} if exact else {"size_is": "rounded"}
    state["test"].add(
        sample(
            op,
            "torch",
            time_us=time_us,
            ranks=ranks,
            nodes=state["nodes"][0],
            size_bytes=size * ranks if blocks else size,
            dtype="unknown",
            params=params,
            over_ranks="rank 0",
            reported={"time_us": time_us, "throughput_GBps": rate, "busbw_GBps": bus, **more},
        )
    )


def _finished(state: dict) -> Test:
    test = state["test"]
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "the header of DeepSpeed's table without a row")
        return test
    if not state["ranks"]:
        blocks = (
            f", so the whole size of {', '.join(sorted(state['unsized']))} is not known" if state["unsized"] else ""
        )
        test.notes.append(f"the number of ranks is not in the file{blocks}; give it with --ranks")
    elif state["nodes"][1]:
        test.notes.append(state["nodes"][1])
    if any("size_is" in s.point.params for s in test.samples):
        test.notes.append(
            "sizes are rounded texts of powers of 1024, so bandwidths computed from them are a little off"
        )
    return test
