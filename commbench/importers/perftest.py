"""linux-rdma perftest (ib_write_bw, ib_read_lat, ...): text and its JSON, valid or not.

Its MB is 2^20 bytes (newer versions print MiB), its Gb/sec 10^9 bits. A peak of 0.00 was not measured. Server and
client print the same result; it is taken once. Formats: src/perftest_parameters.h (RESULT_FMT, REPORT_FMT).
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, whole
from commbench.importers.columns import column_names
from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Lines

_TITLE = re.compile(
    r"^\s*(RDMA_Write|RDMA_Read|Send|Send_imm|RDMA_Write_imm|Atomic\w{0,30}|Raw Ethernet|RDMA_\w{1,30})\b.{0,60}?"
    r"\b(BW|Latency)\b.{0,30}\bTest\b"
)
_COMMAND = re.compile(r"\bib_(send|write|read|atomic)_(bw|lat)\b")
_PAIR = re.compile(
    r"(Dual-port|Device|Number of qps|Transport type|Connection type|Mtu|Link type|TX depth|Post List)\s*: *(\S{1,40})"
)
_GB = {"MB/sec": 2**20 / 1e9, "MiB/sec": 2**20 / 1e9, "Gb/sec": 0.125, "GB/sec": 1.0}
_JSON = re.compile(r'^\s*"?([A-Za-z_][\w .]{0,60}?)"?\s*:\s*"?([^"{}]{0,120}?)"?\s*,?\s*$')
_UNIT = re.compile(r"\[([^\]]{1,12})\]")
WORDS = ("Test", "#iterations")


def starts(text: str) -> bool:
    return _TITLE.match(text) is not None or (text.lstrip(" #").startswith("bytes") and "#iterations" in text)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each title; the second end's copy of a result is dropped and said."""
    test, columns, printed, tests = None, None, {}, []
    named = [found for line in lines.stray if (found := _COMMAND.search(line.text))]
    command = named[-1] if named else None
    for line in lines.section("perftest"):
        text = line.text.strip()
        if found := _TITLE.match(line.text):
            name = f"{found[1].lower().replace(' ', '_')}_{'bw' if found[2] == 'BW' else 'latency'}"
            if test:
                tests.append((test, printed))
            facts = {"op": name, "bidirectional": "bidirectional" in text.lower()}
            test, columns, printed = Test("perftest", line.number, facts=facts), None, {}
        elif text.lstrip("# ").startswith("bytes") and "iterations" in text:
            if test and test.samples:  # without a title of its own it is the same program once more
                tests.append((test, printed))
                test, printed = None, {}
            test = test or Test("perftest", line.number, facts={"op": _op(text, command)})
            columns = [name.strip() for name in column_names(text, ("bytes", "iterations", "sl"), "]")]
        elif columns and text[:1].isdigit():
            row = dict(zip(columns, text.split()))
            if len(text.split()) < len(columns) - 1 or not _row(row, test, printed, line.number):
                lines.drop(line, "a row that is not complete, or holds no number above 0")
        elif test and (pairs := _PAIR.findall(text)):
            test.facts |= {key.lower().replace(" ", "_"): value for key, value in pairs}
        elif text.strip("-*# ") and "address:" not in text and not _known(text):
            lines.drop(line)
    if test:
        tests.append((test, printed))
    for test in _once(tests):
        yield _finished(test)


def _op(header: str, command: re.Match | None) -> str:
    """The operation of a table without a title, by the command above it and by its columns."""
    kind = "latency" if "usec" in header else "bw"
    if not command or (command[2] == "bw") != (kind == "bw"):
        return f"rdma_{kind}"
    return f"{'' if command[1] in ('send', 'atomic') else 'rdma_'}{command[1]}_{kind}"


def _once(tests: list[tuple[Test, dict]]) -> list[Test]:
    """The tests without those of the other end: it prints the same title, and the same rows or none."""
    kept: list[tuple[Test, dict]] = []
    for test, rows in tests:
        before = kept[-1] if kept and kept[-1][0].facts["op"] == test.facts["op"] else None
        if before and (set(rows) <= set(before[1]) or not before[1]):
            if not before[1]:
                kept[-1] = (test, rows)
            kept[-1][0].facts["ends"] = 2
        else:
            kept.append((test, rows))
    return [test for test, _ in kept]


def _known(text: str) -> bool:
    words = ("Max inline", "rdma_cm", "Data ex.", "PCIe relax", "CQ Moderation", "ibv_wr", "GID", "Waiting for client",
             "RX depth", "Using SRQ", "Conflicting CPU", "Outstand")  # fmt: skip
    return any(word in text for word in words)


def _row(row: dict, test: Test, printed: dict, line: int) -> bool:
    size = whole(row.get("bytes", ""))
    key = tuple(sorted(row.items()))
    if key in printed:
        test.facts["ends"] = 2
        return True
    if size is None:
        return False
    reported = {}
    for name, cell in row.items():
        unit = _UNIT.search(name)
        value = number(cell)
        if value is None and name not in ("bytes", "sl"):
            return False
        if unit and unit[1] in _GB and name.startswith("BW average"):
            reported["bandwidth_GBps"] = value * _GB[unit[1]] or None
        elif unit and unit[1] in _GB and name.startswith("BW peak"):
            reported["peak_GBps"] = value * _GB[unit[1]] or None
        elif name.startswith("MsgRate["):
            reported["messages_per_s"] = value * 1e6 or None
        elif name.endswith("[usec]"):
            percentile = f"p{name.split('%')[0]}" if "%" in name else ""
            reported[f"{percentile or name.removesuffix('[usec]').removeprefix('t_')}_us"] = value
        elif name == "iterations":
            reported["iterations"] = int(value)
        elif name.startswith("tps"):
            reported["transactions_per_s"] = value
    return _add(test, size, reported, printed, key)


def _add(test: Test, size: int, reported: dict, printed: dict, key) -> bool:
    time = reported.pop("avg_us", None) or None
    reported["time_us"] = time
    if not (time or reported.get("bandwidth_GBps")):
        return False
    printed[key] = True
    again = printed["size", size] = printed.get(("size", size), 0) + 1
    facts = test.facts
    params = {"nic": facts["device"]} if facts.get("device") else {}
    params |= {name: facts[name] for name in ("number_of_qps", "transport_type", "connection_type", "mtu", "link_type",
                                             "tx_depth", "post_list", "sl") if name in facts}  # fmt: skip
    if facts.get("bidirectional"):
        params["bidirectional"] = True
    if again > 1:
        params["repeat"] = again
    test.add(
        sample(facts["op"], "verbs", kind="p2p", time_us=time, ranks=2, nodes=0, size_bytes=size, send_bytes=size,
               recv_bytes=size, dtype="bytes", params=params, reported=reported)
    )  # fmt: skip
    return True


def _finished(test: Test) -> Test:
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, f"{test.facts['op']} without a row of its table")
    elif test.facts.get("ends") == 2 and any("repeat" in s.point.params for s in test.samples):
        test.notes.append("server and client printed different figures for the same size: both were taken")
    elif test.facts.get("ends") == 2:
        test.notes.append("server and client both printed the result: it was taken once")
    return test


def from_json(text: str, data, line: int) -> Test:
    """perftest's --out_json. It was no valid JSON for years (perftest issue 216), and is then read by its keys."""
    if isinstance(data, dict) and all(isinstance(data.get(part), dict) for part in ("test_info", "results")):
        facts = {str(key): str(value)[:200] for key, value in (data["test_info"] | data["results"]).items()}
    else:
        found = (_JSON.match(part.strip()) for part in text.split("\n") if len(part) < 400)
        facts = {part[1].strip(): part[2].strip() for part in found if part}
    test = Test("perftest (JSON)", line)
    name = facts.get("test", "rdma").lower().removesuffix("_test").replace("_bw", "_bw")
    test.facts = {"op": name, "device": facts.get("Device") or None}
    names = {"number_of_qps": "Number_of_qps", "transport_type": "Transport_type", "connection_type": "Connection_type",
             "mtu": "Mtu", "link_type": "Link_type", "tx_depth": "TX_depth"}  # fmt: skip
    test.facts |= {ours: facts[theirs] for ours, theirs in names.items() if theirs in facts}
    size, values = whole(facts.get("MsgSize", "")), {key: number(value) for key, value in facts.items()}
    if size is None:
        test.fault = (line, "perftest's JSON without MsgSize: it is cut, or of another tool")
        return test
    reported = {
        f"{key.removeprefix('t_')}_us": values.get(key) for key in ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")
    }
    reported |= {f"p{key.split('_')[1]}_us": values[key] for key in values if key.startswith("percentile_")}
    reported |= {"iterations": values.get("n_iterations")}
    _json_bandwidth(values, size, reported, test)
    if not _add(test, size, {k: v for k, v in reported.items() if v is not None}, {}, ()):
        test.fault = (line, "perftest's JSON holds neither a time nor a bandwidth above 0")
    return test if test.fault else _finished(test)


def _json_bandwidth(values: dict, size: int, reported: dict, test: Test) -> None:
    """The JSON names no unit; size x message rate tells whether BW is in MiB or Gbit per second."""
    bandwidth, rate = values.get("BW_average"), values.get("MsgRate")
    if not bandwidth or not rate or not size:
        if bandwidth:
            test.notes.append("the unit of BW_average is not in the file, and no message rate tells it")
        return
    true = size * rate * 1e6 / 1e9
    scale = min((2**20 / 1e9, 0.125), key=lambda s: abs(bandwidth * s / true - 1))
    if abs(bandwidth * scale / true - 1) < 0.05:
        reported["bandwidth_GBps"], reported["messages_per_s"] = bandwidth * scale, rate * 1e6
        reported["peak_GBps"] = (values.get("BW_peak") or 0) * scale or None
    else:
        test.notes.append("BW_average fits neither MiB nor Gbit per second at this message rate; it was left out")
