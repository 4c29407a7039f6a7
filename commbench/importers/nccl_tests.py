"""nccl-tests and rccl-tests: the text of every header generation, with whatever stands between its lines.

Formats: NVIDIA/nccl-tests src/util.cu (2.17 and newer) and src/common.cu (before); ROCm/rocm-systems
projects/rccl-tests/src/util.cu. Before the column `#wrong` (2022) there was `error`, the largest difference, which
counted as wrong above a tolerance of the element type times (ranks - 1).
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number
from commbench.importers.found import MOST_SAMPLES, Given, Test
from commbench.importers.launchers import launched
from commbench.importers.nccl_output import Output
from commbench.importers.nccl_rows import TIME_UNITS, Row, begins_row, header_columns, may_begin, row_tokens
from commbench.importers.nccl_table import samples_of
from commbench.importers.text import Line, Lines

PROGRAM = re.compile(
    r"\b(all_reduce(?:_bias)?|all_gather|reduce_scatter|broadcast|reduce|alltoallv?|all_to_allv?|gather|scatter|sendrecv"
    r"|hypercube)_perf(?:_mpi)?\b"
)
_DEVICE = re.compile(
    r"Rank +(\d{1,7}) +(?:Group +(\d{1,7}) +)?(?:Pid +(\d{1,10}) +)?on +(\S{1,255}) +device +(\d{1,4}) +"
    r"\[([^\]]{1,40})\] *(.{0,120})"
)
_SETTINGS = re.compile(r"\bnThread +(\d{1,5}) +nGpus +(\d{1,5}) +minBytes +(\d{1,18}) +maxBytes +(\d{1,18})")
_SETTING = re.compile(r"\b(warmup iters|agg iters|iters|validation|graph): *(\d{1,9})")
_STEP = re.compile(r"\bstep: *(\d{1,18})\((factor|bytes)\)")
_VERSION = re.compile(r"\b([nr]ccl-tests):? [vV]ersion (\S{1,60})")
_LIBRARY = re.compile(r"\b[nr]ccl-library=(\d{4,6})\b")
_FAILURE = re.compile(r"Test (?:NCCL|CUDA|RCCL|HIP)? ?failure \S{1,80}(?: '.{1,80}')?")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values *: *(\d{1,18})(?: +(OK|FAILED))?")
_AVERAGE = re.compile(r"Avg bus bandwidth *: *(\S{1,30})(?: +(OK|FAILED))?")
_GPUS = re.compile(r"\s(?:-g|--ngpus)[ =]?(\d{1,5})\b")
_THREADS = re.compile(r"\s(?:-t|--nthreads)[ =]?(\d{1,5})\b")
_SAID = re.compile(r"\b(\d{1,6})[ -]?(?:x )?(?:GPUs?|ranks?|processes)\b", re.IGNORECASE)
_STARTS = ("nThread ", "Using devices", "Collective test starting", "ccl-tests version")
_OURS = (*_STARTS, "Collective test ", "Out of bounds values", "Avg bus bandwidth ", "out-of-place")
WORDS = (*_OURS, "size", "bytes", "_perf", " device ", "in-place")


def starts(text: str) -> bool:
    """True for a line that only these programs print, or that starts one of them."""
    if ("size" in text or "bytes" in text) and header_columns(text):
        return True
    if "_perf" in text and PROGRAM.search(text) and "_perf:" not in text:
        return True
    if text.strip("# ") == "in-place":
        return True
    return any(word in text for word in _OURS) or ("device" in text and _DEVICE.search(text) is not None)


def resembles(text: str) -> bool:
    """True for a row of the table, which may stand without all that belongs above it."""
    return bool(text) and (text[0] in " -|>" or text[0].isdigit()) and begins_row(row_tokens(text))


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """The tests in a section of a file, each a program's output."""
    output, total = None, 0
    stray = [line.text for line in lines.stray]
    for line in lines.section("nccl"):
        if output is None:
            output = Output(line.number)
            _heard(stray, output)
        if _begins_next(line.text, output):
            yield _finished(output, lines, given)
            output = _next(line, output)
        before = len(output.rows)
        _take(line, output, lines)
        total += len(output.rows) - before
        if total * 2 > MOST_SAMPLES:
            lines.drop(line, f"beyond {MOST_SAMPLES // 2} rows")
            break
    if output is not None:
        yield _finished(output, lines, given)


def _begins_next(text: str, output: Output) -> bool:
    """True for a line that belongs to the output of another program: it begins anew after rows."""
    if not output.rows and not output.ended:
        return False
    if any(word in text for word in _STARTS) or header_columns(text):
        return True
    if "_perf" in text and PROGRAM.search(text):
        return "concluded" not in text
    if output.ended and "device" in text and _DEVICE.search(text):
        return True
    return "out-of-place" in text or (output.ended and begins_row(row_tokens(text)))


def _next(line: Line, output: Output) -> Output:
    following = Output(line.number)
    if begins_row(row_tokens(line.text)):  # no header of its own: it can only be that of the table before
        following.devices, following.settings, following.tool = output.devices, output.settings, output.tool
        following.amd, following.version = output.amd, output.version
        following.table = output.table
    return following


def _heard(texts: list[str], output: Output) -> None:
    """Ranks, nodes and the program as far as command lines and sentences in front of the table tell."""
    for text in texts:
        output.said += [int(n) for n in _SAID.findall(text)]
        if program := PROGRAM.search(text):
            _command(text, program, output)


def _command(text: str, program: re.Match, output: Output) -> None:
    ranks, nodes = launched(text[: program.start()])
    own = text[program.end() :][:4000]
    per_process = int(m[1]) if (m := _GPUS.search(own)) else 1
    per_process *= int(m[1]) if (m := _THREADS.search(own)) else 1
    output.hints.append(max(ranks, 1) * per_process)
    output.command_nodes = nodes or output.command_nodes


def _take(line: Line, output: Output, lines: Lines) -> None:
    """Put one line where it belongs."""
    text = line.text
    if not text.strip(" #`|-="):
        return
    if found := _DEVICE.search(text):
        _device(found, output)
    elif columns := header_columns(text):
        output.table.columns = columns
        if "bytes" in text:  # until 2019: milliseconds, and no line of units
            output.table.time_power = TIME_UNITS["(ms)"]
        output.heads, output.head_line = output.heads + 1, line.number
        if text.count(" size ") > 1:
            lines.drop(line, "a second table beside this one, on its right: it was left out")
    elif found := _SETTINGS.search(text):
        output.starts += 1
        threads, gpus, low, high = map(int, found.groups())
        output.settings = {"threads": threads, "gpus": gpus, "minimum_bytes": low, "maximum_bytes": high}
        output.settings |= {name.replace(" ", "_"): int(value) for name, value in _SETTING.findall(text)}
        if step := _STEP.search(text):
            output.settings[f"step_{step[2]}"] = int(step[1])
    elif found := _OUT_OF_BOUNDS.search(text):
        output.ended = True
        if found[2] == "FAILED" or int(found[1]):
            output.failed = f"line {line.number}: {found[0].strip()}"
    elif found := _AVERAGE.search(text):
        output.ended, output.average = True, number(found[1])
        output.average_failed = found[2] == "FAILED"
    elif found := _VERSION.search(text):
        output.tool, output.version = found[1], found[2]
        if library := _LIBRARY.search(text):
            output.library = version_of(int(library[1]))
    elif "with asterisks" in text:
        output.asterisks = True
    elif _part_of_row(row_tokens(text), output):
        _row(line, output, lines)
    elif not _told(text, output) and not text.lstrip().startswith("#"):
        lines.drop(line)


def _part_of_row(tokens: list[str], output: Output) -> bool:
    if output.table.waiting:
        return begins_row(tokens) or (bool(tokens) and number(tokens[0]) is not None)
    known = bool(output.table.columns) or (bool(output.rows) and len(tokens) == 3)
    return begins_row(tokens) or (known and not output.ended and may_begin(tokens))


def _row(line: Line, output: Output, lines: Lines) -> None:
    for made in output.table.feed(line):
        if isinstance(made, Row):
            output.rows.append(made)
        else:
            where, why = made
            output.odd = output.odd or (where.number, why)
            lines.drop(where, why)


def _told(text: str, output: Output) -> bool:
    """True where a line tells something else that is known: the program, its placements, its units."""
    if program := PROGRAM.search(text):
        if "concluded" in text:
            output.ended = True
        output.program = output.program or program[1]
        if "Collective test" not in text:
            _command(text, program, output)
        return True
    if "in-place" in text or "out-of-place" in text:
        output.table.in_place_alone = "out-of-place" not in text
        output.table.in_place_first = (
            not output.table.in_place_alone and "in-place" in text.partition("out-of-place")[0]
        )
        return True
    if "(GB/s)" in text and (unit := next((unit for unit in TIME_UNITS if unit in text), "")):
        output.table.time_power = TIME_UNITS[unit]
        return True
    if text.strip() == "...":
        output.gap = True
        return True
    if found := _FAILURE.search(text):
        output.settings.setdefault("cut", f"{found[0]!r} ended the program")
        return True
    return any(words in text for words in ("Using devices", "Blocking Enabled", "CCL version"))


def _device(found: re.Match, output: Output) -> None:
    rank, group, pid, host, device, bus, name = found.groups()
    if int(rank) == 0:
        output.first_ranks += 1
    output.amd = output.amd or any(word in name for word in ("AMD", "Radeon", "gfx", "Instinct"))
    if len(output.devices) < MOST_SAMPLES:
        output.devices.append(
            {"rank": int(rank), "group": int(group or 0), "pid": int(pid or 0), "host": host,
             "device": f"cuda:{device}", "device_id": bus, "device_name": name.strip()}
        )  # fmt: skip


def _finished(output: Output, lines: Lines, given: Given) -> Test:
    if output.table.waiting:
        for where, why in output.table.flush():
            output.odd = output.odd or (where.number, why)
            lines.drop(where, why)
            output.settings["cut"] = f"line {where.number}: {why}"
    return samples_of(output, lines.told, given)


def version_of(code: int) -> str:
    """22907 -> 2.29.7; before 2.9 there was one digit for the minor version, 2804 -> 2.8.4 (NCCL_VERSION in nccl.h)."""
    unit = 10_000 if code >= 10_000 else 1_000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"
