"""nvbandwidth: matrices of copies between processors and GPUs, as text and as JSON (-j).

Cells are GB/s of 10^9 bytes or, for latency tests, ns. An empty diagonal is 0.00 in old versions and N/A in newer ones;
neither is a result. Tests that were waived have no name in the text. Formats: output.cpp, inline_common.h and
json_output.cpp of NVIDIA/nvbandwidth.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from commbench.importers.cells import NOTHING, listed, number, positive, whole
from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Line, Lines

_RUNNING = re.compile(r"^\s*Running ([A-Za-z]\w{3,80})\.?\s*$")
_VERSION = re.compile(r"nvbandwidth Version: *(\S{1,40})")
_SUM = re.compile(r"^\s*SUM (\w{3,80}) ([\d.]{1,30})")
_ENDS = re.compile(r"\b(CPU|GPU|Host|Device)\(row\) *(<->|->|<-) *(CPU|GPU|Host|Device)\(column\)")
_ABOUT = re.compile(
    r"^(CUDA Runtime Version|CUDA Driver Version|Driver Version): *(\S{1,40})|^Device (\d{1,4}): (.{1,100})"
)
_PROCESS = re.compile(r"^Process \d{1,6} \(([\w.-]{1,253})\): device (\d{1,4}): (.{1,80}?)(?: \(|$)")
_COPY = re.compile(r"^\s*(\w{3,20} (?:CE|SM)) .{0,20}\(row\).{1,20}\(column\) .{1,20}\((?:GB/s|ns)\)")
_MOST = 4096  # rows or columns of a matrix
WORDS = ("nvbandwidth Version", "Running ", "(row)", "SUM ")


def starts(text: str) -> bool:
    if "(row)" in text:
        return _COPY.match(text) is not None
    if "memcpy" in text and _SUM.match(text):
        return True
    return "nvbandwidth Version" in text or (_RUNNING.match(text) is not None and "_" in text)


def wants(document) -> bool:
    return isinstance(document, dict) and isinstance(document.get("nvbandwidth"), dict)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """The tests of one run of the program, as one test with a sample for each cell."""
    test, now, sums, waived, names = None, None, 0, 0, 0
    for line in lines.section("nvbandwidth"):
        text = line.text.strip()
        if found := _VERSION.search(text):
            if test and test.samples:
                yield _finished(test, now, waived, names, sums)
                now, sums, waived, names = None, 0, 0, 0
            test = Test(f"nvbandwidth {found[1]}", line.number)
            continue
        test = test or Test("nvbandwidth", line.number)
        if found := _RUNNING.match(text):
            now, names = _matrix(found[1]), names + 1
        elif text.startswith("Waived"):
            waived += 1
        elif found := _SUM.match(text):
            if now and _nameless(now["name"]):
                _rename(test, now, found[1])
            sums += _sum(test, found, line)
        elif found := _ABOUT.match(text):
            _about(test, found)
        elif found := _PROCESS.match(text):
            node = next((node for node in test.nodes if node["host"] == found[1]), None)
            if node is None and len(test.nodes) < _MOST:
                test.nodes.append(node := {"host": found[1], "gpus": []})
            if node and len(node["gpus"]) < _MOST:
                node["gpus"].append({"name": found[3]})
        elif "Invalid value when checking the pattern" in text and now:
            why = f"line {line.number}: {text[:120]}"
            test.add(sample(now["name"], "cuda", kind="link", nodes=1, dtype="bytes", status="wrong", reason=why))
        elif (found := _COPY.match(text)) and (
            now is None or now["columns"]
        ):  # the line that names the test is missing
            now = _matrix(found[1].lower().replace(" ", "_"), text)
            names += 1
        elif now and ("(GB/s)" in text or "(ns)" in text or "(us)" in text):
            now |= _matrix(now["name"], text)
        elif (
            now
            and now["unit"]
            and all(whole(cell) is not None for cell in text.split())
            and text
            and not now["columns"]
        ):
            now["columns"] = text.split()[:_MOST]
        elif now and now["columns"] and text and whole(text.split()[0]) is not None:
            if not _row(test, now, text.split()):
                lines.drop(line, "a row of a matrix that is not complete")
        elif text and not _known(text):
            lines.drop(line)
    if test:
        yield _finished(test, now, waived, names, sums)


def _matrix(name: str, text: str = "") -> dict:
    """What is known of a matrix before its rows. Without `text`, the line above it, nothing but its name."""
    unit = next((unit for unit in ("(GB/s)", "(ns)", "(us)") if unit in text), "")
    return {"name": name, "unit": unit, "columns": None, "ends": _ENDS.search(text)}


def _nameless(name: str) -> bool:
    return name.count("_") == 1 and name.endswith(("_ce", "_sm"))


def _rename(test: Test, now: dict, name: str) -> None:
    """Give the cells of a matrix the name that only its SUM tells."""
    test.samples = [
        replace(s, point=replace(s.point, op=name)) if s.point.op == now["name"] else s for s in test.samples
    ]
    now["name"] = name


def _known(text: str) -> bool:
    return text.startswith(("Built from", "NOTE:", "Performance can", "MPI version", "Process ", "[...]", "$", "..."))


def _about(test: Test, found: re.Match) -> None:
    if found[1]:
        test.versions[found[1].lower().replace(" version", "").replace(" ", "_")] = found[2]
    else:
        test.facts.setdefault("devices", []).append(found[4].strip())


def _sum(test: Test, found: re.Match, line: Line) -> int:
    """Keep a SUM, and say where it is not the sum of what stands above it."""
    printed = positive(found[2])
    if printed is None:
        return 0
    test.facts.setdefault("sums", {})[found[1]] = printed
    cells = [
        s.reported.get("bandwidth_GBps") or s.reported.get("latency_ns") for s in test.samples if s.point.op == found[1]
    ]
    total = sum(cell for cell in cells if cell)
    if cells and abs(total - printed) > 0.006 * (len(cells) + 1):
        test.notes.append(f"line {line.number}: the SUM of {found[1]} is {printed:g}, its cells sum up to {total:.2f}")
    return 1


def _row(test: Test, now: dict, cells: list[str]) -> bool:
    row, values = cells[0], cells[1:]
    if len(values) != len(now["columns"]):
        return False
    ends, unit = now["ends"], now["unit"]
    for column, cell in zip(now["columns"], values):
        value = None if cell in NOTHING else positive(cell)
        if value is not None:
            nodes = len(test.nodes) if now["name"].startswith("multinode") else 1
            test.add(_cell(now["name"], row, column, value, unit, ends and ends.groups(), nodes))
        elif cell not in NOTHING and (row != column or number(cell) is None):
            test.facts["unread_cells"] = test.facts.get("unread_cells", 0) + 1
    return True


def _cell(name: str, row: str, column: str, value: float, unit: str, ends, nodes: int = 1):
    left, arrow, right = ends or ("row", "->", "column")
    group = f"{left.lower()} {row} {arrow} {right.lower()} {column}"
    key, value = {"(ns)": ("latency_ns", value), "(us)": ("latency_ns", value * 1e3)}.get(
        unit, ("bandwidth_GBps", value)
    )
    return sample(
        name,
        "cuda",
        kind="link",
        time_us=value / 1e3 if key == "latency_ns" else None,
        ranks=2,
        nodes=min(nodes, 2),
        scope=("unknown", "intra", "inter")[min(nodes, 2)],
        members=(),
        group=group,
        dtype="bytes",
        params={"row": int(row), "column": int(column)},
        reported={key: value},
    )


def _finished(test: Test, now, waived: int, names: int, sums: int) -> Test:
    test.rows, test.unit = len({s.point.op for s in test.samples}), "matrix"
    if waived:
        test.notes.append(f"{waived} test(s) were waived; the text does not name them")
        test.facts["waived"] = waived
    if unread := test.facts.get("unread_cells"):
        test.notes.append(f"{unread} cell(s) are no number above 0 and were left out")
    if not test.samples:
        alone = " but only SUM lines; give the whole output" if "sums" in test.facts else ""
        test.fault = (test.line, f"nvbandwidth without a matrix{alone}")
    elif now and now["name"] not in test.facts.get("sums", {}) and sums:
        test.cut = f"ends before the SUM of {now['name']}"
    return test


def from_json(document: dict, line: int, given: Given) -> Test:
    """What nvbandwidth -j prints: matrices of numbers as text."""
    told = document["nvbandwidth"]
    test = Test(f"nvbandwidth {told.get('version', '')}".strip(), line, unit="matrix")
    test.versions = {"cuda_runtime": told.get("CUDA Runtime Version"), "driver": told.get("Driver Version")}
    test.facts["devices"] = (
        [str(d)[:200] for d in told.get("GPU Device list") or []] if _is_list(told, "GPU Device list") else []
    )
    for case in told.get("testcases") if _is_list(told, "testcases") else []:
        if isinstance(case, dict) and isinstance(case.get("name"), str):
            _json_case(case, test)
    test.rows = len({s.point.op for s in test.samples if s.status == "ok"})
    if not test.rows:
        test.samples = []
        test.fault = (line, "nvbandwidth's JSON without a matrix")
    return test


def _is_list(data: dict, key: str) -> bool:
    return isinstance(data.get(key), list)


def _json_case(case: dict, test: Test) -> None:
    name, status = case["name"][:80], str(case.get("status", ""))
    about = str(case.get("bandwidth_description", ""))
    unit = "(ns)" if "(ns)" in about else "(GB/s)"
    ends = found.groups() if (found := _ENDS.search(about)) else None
    matrix = case.get("bandwidth_matrix")
    if status == "Passed" and isinstance(matrix, list):
        for r, row in enumerate(matrix[:_MOST]):
            for c, cell in enumerate(row[:_MOST] if isinstance(row, list) else []):
                if value := listed(cell):
                    test.add(_cell(name, str(r), str(c), value, unit, ends))
        if total := listed(case.get("sum")):
            test.facts.setdefault("sums", {})[name] = total
    elif status:
        state = "skip" if status in ("Waived", "Not Found") else "error"
        test.add(sample(name, "cuda", kind="link", status=state, reason=f"nvbandwidth says {status[:80]!r}", nodes=1))
