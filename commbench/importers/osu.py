"""OSU micro-benchmarks: every column set of the C, xccl and Python versions.

Formats: OMB 7.4 c/util/osu_util_mpi.c (print_preamble and its relatives). MB/s are of 10^6 bytes. What a "size" is
differs: the block of a rank for all_gather, gather and scatter, the block for each peer for all_to_all.
"""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, whole
from commbench.importers.columns import column_names
from commbench.importers.found import Given, Test, believed
from commbench.importers.launchers import launched
from commbench.importers.samples import dtype, nodes_of, sample
from commbench.importers.text import Line, Lines

_TITLE = re.compile(
    r"\b(?:OSU|OMB)(?:[- ]Py(?:thon)?)? (MPI|NCCL|RCCL|OpenSHMEM|UPC)([\w+-]{0,20}) (.{1,80}?) ?Test\b(?: v(\S{1,20}))?"
)
_ALONE = ("Size", "MB/s", "Messages/s", "Iterations", "Validation")
_PAIRS = re.compile(r"\[ *(pairs|window size): *(\d{1,7}) *\]")
_BUFFERS = re.compile(r"Send Buffer on \w{1,10} \((\w{1,3})\) and Receive Buffer on \w{1,10} \((\w{1,3})\)")
_FULL = ("size", "avg latency(us)", "min latency(us)", "max latency(us)", "iterations")  # the columns of -f
_MAXIMUM = re.compile(r"\s-m +(?:\d{1,12}:)?(\d{1,12})\b")
_ITERATIONS = re.compile(r"\s-i +(?:\d{1,9}:)?(\d{1,9})\b")
_COLLECTIVES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherv": "all_gather_v", "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v", "alltoallw": "all_to_all_w", "bcast": "broadcast", "broadcast": "broadcast",
    "reduce": "reduce", "reducescatter": "reduce_scatter", "reducescatterblock": "reduce_scatter", "gather": "gather",
    "gatherv": "gather_v", "scatter": "scatter", "scatterv": "scatter_v", "barrier": "barrier",
}  # fmt: skip
BLOCKS = (
    "all_gather",
    "all_gather_v",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_w",
    "gather",
    "gather_v",
    "scatter",
    "scatter_v",
)
_POINTS = {"latency": "p2p_latency", "bandwidth": "p2p_bw", "bi-directional bandwidth": "p2p_bibw"}
_FIRST_WORD = re.compile(r"[a-z][a-z0-9]{0,15}")
_LAST = {"collective": 1 << 20, "p2p": 1 << 22}  # what the programs sweep to unless -m says otherwise
_BANDWIDTHS = ("mb/s", "bandwidth (mb/s)", "bi-bandwidth (mb/s)")
WORDS = ("OSU ", "OMB")


def starts(text: str) -> bool:
    return ("OSU " in text or "OMB" in text) and _TITLE.search(text) is not None


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each title in a section."""
    command = _command([line.text for line in lines.stray])
    test = state = None
    for line in lines.section("osu"):
        if starts(line.text):
            if test:
                yield _finished(test, state)
            state = _began(line, command, given)
            test, command = state["test"], ""
        elif found := _command([line.text]):
            command = found
        elif state:
            _take(line, state, lines)
        elif line.text.strip():
            lines.drop(line)
    if test:
        yield _finished(test, state)


def _command(texts: list[str]) -> str:
    return next((text for text in reversed(texts) if "osu_" in text), "")


def _began(line: Line, command: str, given: Given) -> dict:
    library, device, title, version = _TITLE.search(line.text).groups()
    op, params = operation(title)
    pair = op in _POINTS.values() and not params
    ranks, nodes = map(believed, launched(command))
    if not ranks:
        ranks, nodes = given.ranks, given.nodes
    if device.startswith("_"):  # one-sided: MPI_Put, MPI_Get_accumulate
        op, device = f"{device[1:].lower()}_{op.removeprefix('p2p_')}", ""
    test = Test(f"OSU micro-benchmarks {version or ''}".strip(), line.number)
    test.facts = {"title": f"{library}{device} {title}".strip(), "command": command[:500] or None}
    return {
        "test": test, "op": op, "params": params | ({"device": device.strip("-").lower()} if device.strip("-") else {}),
        "backend": library.lower(), "ranks": 2 if pair else ranks, "nodes": nodes or given.nodes,
        "columns": None, "dtype": "", "last": None, "given": given, "largest": _MAXIMUM.search(command),
        "iterations": _ITERATIONS.search(command.partition("osu_")[2]),
    }  # fmt: skip


def operation(title: str) -> tuple[str, dict]:
    """(operation, what tells it from the plain one) of a test's title, such as "Non-blocking Allreduce Latency"."""
    params, words = {}, title.lower()
    for word, name in (("non-blocking", "nonblocking"), ("persistent", "persistent"), ("neighborhood", "neighborhood")):
        if word in words:
            words, params = words.replace(word, " "), {**params, name: True}
    words = " ".join(words.split())
    plain = re.sub(r"[^a-z]", "", words.removesuffix("latency").replace("personalized exchange", ""))
    if plain in _COLLECTIVES:
        return _COLLECTIVES[plain], params
    if words.startswith("multiple bandwidth"):
        return "p2p_bw", {**params, "pairs": 0}
    for kind in ("multi-threaded", "multi-process", "multi"):
        if words == f"{kind} latency":
            return "p2p_latency", {**params, "variant": kind}
    if words in _POINTS:
        return _POINTS[words], params
    return (re.sub(r"\W+", "_", title.lower()).strip("_") or "unknown"), params


def _take(line: Line, state: dict, lines: Lines) -> None:
    text = line.text.strip()
    if not text.strip("#-`$ "):
        return
    if "Datatype:" in text:
        state["dtype"] = dtype(text.rpartition(":")[2].strip()[:40])
    elif "[" in text and (pairs := _PAIRS.findall(text)):
        state["params"] |= {name.replace("window size", "window"): int(value) for name, value in pairs}
        state["ranks"] = state["ranks"] or believed(2 * state["params"].get("pairs", 0))
    elif found := _BUFFERS.search(text):
        state["params"]["buffers"] = " ".join(found.groups())
    elif _is_header(text):
        state["columns"] = [name.lower() for name in column_names(text, _ALONE)]
    elif state["columns"] and text[0].isdigit():
        _row(line, text.split(), state, lines)
    elif not text.startswith("#"):
        lines.drop(line)


def _is_header(text: str) -> bool:
    words = text.lstrip("# ")
    units = any(unit in text for unit in ("(us)", "MB/s"))
    return units and (words.startswith("Size") or words[:1].isupper()) and not words[:1].isdigit() and "=" not in text


def _row(line: Line, cells: list[str], state: dict, lines: Lines) -> None:
    columns = state["columns"]
    if tuple(columns) == _FULL[:2] and len(cells) == len(_FULL) and not state["test"].samples:
        columns = state["columns"] = list(_FULL)
        state["test"].notes.append(f"line {line.number}: the rows have the 5 columns of -f, the header names 2 of them")
    if len(cells) != len(columns):
        lines.drop(line, f"a row of {len(cells)} cells under {len(columns)} columns")
        return
    row = dict(zip(columns, cells))
    size = whole(row.get("size", "0"))
    figures = {name: number(cell) for name, cell in row.items() if name not in ("size", "validation")}
    time = next(
        (figures[name] for name in columns if name.startswith(("avg lat", "latency", "overall", "avg bar"))), None
    )
    bandwidth = next((figures[name] for name in columns if name in _BANDWIDTHS), None)
    if size is None or None in figures.values() or not (time or bandwidth):
        lines.drop(line, "a cell that is no number above 0")
        return
    op, ranks, given = state["op"], state["ranks"], state["given"]
    blocks = op in BLOCKS
    params = dict(state["params"])
    if blocks:
        params["block_bytes"] = size
    nodes = state["nodes"] or nodes_of(ranks, 0, given)[0]
    reported = _reported(figures, time, bandwidth, columns)
    if state["iterations"]:
        reported.setdefault("iterations", int(state["iterations"][1]))
    failed = row.get("validation", "").lower() == "fail"
    state["test"].add(
        sample(
            op,
            state["backend"],
            time_us=time or None,
            ranks=ranks,
            nodes=nodes,
            kind=_kind(op),
            size_bytes=size * ranks if blocks else size,
            dtype=state["dtype"] or "unknown",
            params=params,
            over_ranks="mean",
            reported=reported,
            status="wrong" if failed else "ok",
            reason=f"line {line.number}: validation failed" if failed else "",
            wrong=0 if row.get("validation", "").lower() == "pass" else None,
        )
    )
    state["last"] = (size, line.number)


def _kind(op: str) -> str:
    return "p2p" if op.startswith("p2p_") or op not in _COLLECTIVES.values() else "collective"


def _reported(figures: dict, time, bandwidth, columns) -> dict:
    found = {"time_us": time or None, "bandwidth_GBps": bandwidth / 1e3 if bandwidth else None}
    for name, value in figures.items():
        words = _FIRST_WORD.match(name)
        word = words[0] if words else ""
        if word and name.endswith("(us)") and value != time and value:
            word = re.sub(r"\W+", "_", name.removesuffix("(us)")).strip("_") if word in ("coll", "mpi") else word
            found[f"{word}_us"] = value
        elif word and name.endswith("tail bw(mb/s)"):
            found[f"{word}_GBps"] = value / 1e3
        elif name == "iterations":
            found["iterations"] = int(value)
        elif name == "messages/s":
            found["messages_per_s"] = value
        elif name == "overlap(%)":
            found["overlap_percent"] = value
    return found


def _finished(test: Test, state: dict) -> Test:
    test.rows = len(test.samples)
    if not test.samples:
        why = "no row under the header" if state["columns"] else "no table under the title"
        test.fault = (test.line, f"{test.facts['title']}: {why}")
        return test
    ranks, op = state["ranks"], state["op"]
    if not ranks:
        unknown = (
            "so the size of the whole buffer is not known (a block is what the file prints); " if op in BLOCKS else ""
        )
        test.notes.append(f"the number of ranks is not in the file, {unknown}give it with --ranks")
    elif not state["nodes"]:
        test.notes += [note] if (note := nodes_of(ranks, 0, state["given"])[1]) else []
    if not any(s.wrong is not None or s.status == "wrong" for s in test.samples):
        test.notes.append("no result was checked for wrong data")
    last, line = state["last"]
    until = int(state["largest"][1]) if state["largest"] else _LAST.get(_kind(op), 0)
    if last and last < until:
        asked = "was asked to go" if state["largest"] else "goes by default"
        test.cut = f"stops at {last} B (line {line}); the program {asked} to {until} B"
    return test
