"""DeepEP: its README's tables and what its tests print (intranode, internode, low latency, V2).

Sources: deepseek-ai/DeepEP tests/test_internode.py, test_low_latency.py, tests/elastic/test_ep.py. GB/s of 10^9 bytes.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from commbench.importers.cells import number, positive
from commbench.importers.found import Given, Test, believed
from commbench.importers.samples import nodes_of, sample
from commbench.importers.text import Lines

_BEST = re.compile(r"\[tuning\] Best (dispatch|combine)(?: \((\w{1,12})\))?: (.{1,300})")
_TUNING = re.compile(r"\[tuning\] SMs \d")
_RATE = re.compile(r"([\d.]{1,20}) ?GB/s(?: \((RDMA|NVL|NVLink|SO|SU)\))?")
_BEST_TIME = re.compile(r"\b(transmit|notify|t): ([\d.]{1,20}) us")
_CHUNK = re.compile(r"(SMs|NVL chunk|RDMA chunk) (\d{1,6})")
_RANK = re.compile(r"\[rank (\d{1,7})\] (.{1,300})")
_PART = re.compile(r"(Dispatch \+ combine|Dispatch|Combine) bandwidth: ([\d.]{1,20}) GB/s(?:, (.{1,200}))?")
_RATE_CUT = re.compile(r"bandwidth: ?[\d.]*\s*(?:G|GB|GB/)?$")
_TIME = re.compile(r"(avg_t|min_t|max_t)=([\d.]{1,20}) us")
_SEND = re.compile(r"(Dispatch|Combine) send/recv time: ([\d.]{1,20})(?: \+ ([\d.]{1,20}))? us")
_V2 = re.compile(r"\bEP: *(\d{1,6})/(\d{1,6}) \| ([a-z ]{4,40}): (.{1,300})")
_V2_TIME = re.compile(r"([\d.]{1,20}) us, (\d{1,18}) bytes")
_COPY = re.compile(r"\b(copy|reduce): ([\d.]{1,20}) GB/s, ([\d.]{1,20}) us")
_EP = ("Dispatch #EP", "Combine #EP")
_LINK = {"RDMA": "rdma", "NVL": "nvlink", "NVLink": "nvlink", "SO": "scale_out", "SU": "scale_up"}
WORDS = ("[tuning]", "#EP", "EP:", "ispatch")


def starts(text: str) -> bool:
    if "[tuning]" in text or "#EP" in text and "|" in text:
        return True
    return ("EP:" in text and _V2.search(text) is not None) or ("[rank " in text and "ispatch" in text)


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each block: a table, a set of best lines, or the lines of all ranks."""
    test, columns, best, kind = None, None, set(), ""
    for line in lines.section("deepep"):
        text = line.text.strip()
        now = _kind(text)
        again = now == "best" and _BEST.search(text) and _best_key(text) in best
        if now and (test is None or now != kind or again or now == "header"):
            if test:
                yield _finished(test, given)
            test, best, kind, columns = Test("DeepEP", line.number), set(), now, None
        if now == "header":
            columns, kind = _cells(text), "table"
        elif columns and text.startswith("|"):
            if not set(text) <= set("|-: ") and not _table_row(columns, _cells(text), test, given):
                lines.drop(line, "a row that is not complete")
        elif now == "best" and (found := _BEST.search(text)):
            best.add(_best_key(text))
            if not _best(found, test, given):
                lines.drop(line, "a line without a rate")
        elif now == "best":
            test.facts["steps"] = True
            lines.drop(line, "a step of the tuning, not its best")
        elif now == "rank":
            if "bandwidth" in text and _RATE_CUT.search(text):
                lines.drop(line, "a rate that is not complete")
            if not _rank(text, test, given):
                lines.drop(line, "a line of a rank without a rate or time")
        elif now == "v2":
            if not _v2(text, test, given):
                lines.drop(line, "a line of a rank without a rate or time")
        elif text.strip("`#-") and not text.startswith(("Allocating", "[testing]", "[layout]", "#")):
            lines.drop(line)
    if test:
        yield _finished(test, given)


def _kind(text: str) -> str:
    if "|" in text and any(name in text for name in _EP):
        return "header"
    if "[tuning]" in text:
        return "best"
    if _RANK.search(text) and "ispatch" in text:
        return "rank"
    return "v2" if _V2.search(text) else ""


def _best_key(text: str) -> str:
    found = _BEST.search(text)
    return f"{found[1]} {found[2]}" if found else ""


def _cells(text: str) -> list[str]:
    return [cell.strip(" *`") for cell in text.strip().strip("|").split("|")]


def _add(test: Test, op: str, ranks: int, given: Given, reported: dict, params: dict, time_us=None, **what) -> bool:
    reported = {key: value for key, value in reported.items() if value}
    if not reported:
        return False
    nodes = 1 if params.get("type") == "intranode" else nodes_of(ranks, 0, given, gpus=True)[0]
    test.add(
        sample(op, "deepep", kind="layer", time_us=time_us or None, ranks=ranks, nodes=nodes, reported=reported,
               params=params, dtype=what.pop("dtype", "unknown"), **what)
    )  # fmt: skip
    return True


def _table_row(columns: list[str], cells: list[str], test: Test, given: Given) -> bool:
    """A row of the README: dispatch, then combine, each with its own EP size, latency and bandwidth."""
    if len(cells) != len(columns):
        return False
    op, parts, kind = "", [], ""
    for name, cell in zip(columns, cells):
        if name in _EP:
            op = f"moe_{name.split()[0].lower()}"
            parts.append({"op": op, "ranks": number(cell.removeprefix("EP"))})
        elif name == "Type":
            kind = cell.lower()
        elif parts and (rate := _RATE.search(cell)):
            link = rate[2] or ("RDMA" if "RDMA" in name or "(RDMA)" in cell else "")
            parts[-1] |= {"rate": positive(rate[1]), "link": _LINK.get(link, "")}
        elif parts and cell.endswith("us"):
            parts[-1]["time"] = positive(cell.removesuffix("us").strip())
    good = [part for part in parts if part.get("rate") and part["ranks"] and believed(part["ranks"])]
    for part in good:
        params = {"mode": "normal" if kind else "low latency", "link": part["link"]} | ({"type": kind} if kind else {})
        reported = {"bandwidth_GBps": part["rate"], "time_us": part.get("time")}
        reported |= {f"{part['link']}_GBps": part["rate"]} if part["link"] else {}
        _add(test, part["op"], int(part["ranks"]), given, reported, params, part.get("time"))
    test.rows += bool(good)
    return bool(good) and len(good) == len(parts)


def _best(found: re.Match, test: Test, given: Given) -> bool:
    rates = {_LINK.get(link or "NVL", "nvlink"): positive(rate) for rate, link in _RATE.findall(found[3])}
    chunks = {name.lower().replace(" ", "_"): int(value) for name, value in _CHUNK.findall(found[3])}
    reported = {f"{link}_GBps": rate for link, rate in rates.items()}
    reported["bandwidth_GBps"] = rates.get("rdma") or rates.get("nvlink")
    dtype = {"FP8": "float8_e4m3fn", "BF16": "bfloat16"}.get(found[2] or "", "unknown")
    params = {"mode": "normal", "type": "internode" if "rdma" in rates else "intranode", **chunks}
    timed = {name: positive(value) for name, value in _BEST_TIME.findall(found[3])}
    reported |= {f"{name}_us": timed.get(name) for name in ("transmit", "notify")} | {"time_us": timed.get("t")}
    made = _add(test, f"moe_{found[1]}", given.ranks, given, reported, params, timed.get("t"), dtype=dtype)
    test.rows += made
    return made


def _rank(text: str, test: Test, given: Given) -> bool:
    rank, rest = _RANK.search(text).groups()
    made = False
    for part in rest.split(" | "):
        if found := _PART.search(part):
            times = {name[:3]: positive(value) for name, value in _TIME.findall(found[3] or "")}
            op = {"Dispatch + combine": "moe_dispatch_combine"}.get(found[1], f"moe_{found[1].lower()}")
            reported = {"bandwidth_GBps": positive(found[2]), "time_us": times.get("avg")}
            reported |= {"min_us": times.get("min"), "max_us": times.get("max")}
        elif found := _SEND.search(part):
            op = f"moe_{found[1].lower()}_send_recv"
            sends, receives = positive(found[2]), positive(found[3]) if found[3] else None
            reported = {"send_us": sends, "receive_us": receives, "time_us": sends and receives and sends + receives}
            if found[3] is None:  # older versions print the sum
                reported = {"time_us": sends}
        else:
            continue
        what = {"params": {"mode": "low latency", "rank": int(rank)}, "over_ranks": f"rank {int(rank)}"}
        made |= _add(
            test,
            op,
            given.ranks,
            given,
            reported,
            what["params"],
            reported.get("time_us"),
            over_ranks=what["over_ranks"],
        )
    test.rows += made
    return made


def _v2(text: str, test: Test, given: Given) -> bool:
    rank, ranks, name, rest = _V2.search(text).groups()
    own = rest.partition(" | ")[0]
    rates = {_LINK[link]: positive(rate) for rate, link in _RATE.findall(own) if link in _LINK}
    timed, copy = _V2_TIME.search(own), _COPY.search(rest)
    time = positive(timed[1]) if timed else None
    reported = {f"{link}_GBps": rate for link, rate in rates.items()} | {"time_us": time}
    reported["bandwidth_GBps"] = rates.get("scale_out") or rates.get("scale_up")
    if copy:
        reported |= {f"{copy[1]}_GBps": positive(copy[2]), f"{copy[1]}_us": positive(copy[3])}
    size = int(timed[2]) if timed else 0
    made = _add(test, f"moe_{name.strip().replace(' ', '_')}", believed(ranks), given, reported,
                {"mode": "V2", "rank": int(rank)}, time, size_bytes=size, recv_bytes=size,
                over_ranks=f"rank {int(rank)}")  # fmt: skip
    test.rows += made
    return made


def _told_apart(samples: list) -> list:
    """The samples, with a number for those that a rank has printed before: the test was run more than once."""
    times, apart = {}, []
    for s in samples:
        key = s.point.op, tuple(sorted(s.point.params.items()))
        times[key] = times.get(key, 0) + 1
        again = "rank" in s.point.params and times[key] > 1
        params = s.point.params | {"repeat": times[key]}
        apart.append(replace(s, point=replace(s.point, params=params)) if again else s)
    return apart


def _finished(test: Test, given: Given) -> Test:
    if not test.samples:
        steps = "steps of a tuning without the line of its best" if test.facts.get("steps") else ""
        test.fault = (test.line, steps or "lines of DeepEP without a rate above 0")
        return test
    test.facts.pop("steps", None)
    test.samples = _told_apart(test.samples)
    ranks = sorted({s.point.params["rank"] for s in test.samples if "rank" in s.point.params})
    world = max(s.point.ranks for s in test.samples)
    if ranks:
        of = f" of {world}" if world else ""
        missing = world and len(ranks) < world
        test.notes.append(f"{len(ranks)} rank(s){of} have a line" + ("; the others are missing" if missing else ""))
        sizes = [s.point.size_bytes for s in test.samples if s.point.size_bytes]
        if sizes and min(sizes) != max(sizes):
            test.notes.append(f"the bytes differ from rank to rank: {min(sizes)} to {max(sizes)}")
    if note := nodes_of(world, 0, given, gpus=True)[1]:
        test.notes += [note] * any(s.point.params.get("type") != "intranode" for s in test.samples)
    if not world:
        test.notes.append("the number of ranks is not in the file; give it with --ranks")
    return test
