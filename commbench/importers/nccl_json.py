"""nccl-tests and rccl-tests as JSON: `-J` (2.17 and newer), the earlier proposal with sizes as keys, and the list of
records that rccl-tests writes for -Z json. The environment that -J prints is not taken over: it holds secrets.

Formats: NVIDIA/nccl-tests src/util.cu (json*), its pull request 318, ROCm/rccl-tests pull request 93.
"""

from commbench.importers.cells import listed, whole
from commbench.importers.found import Given, Test
from commbench.importers.launchers import launched
from commbench.importers.nccl_log import Told
from commbench.importers.nccl_output import Output
from commbench.importers.nccl_rows import Half, Row
from commbench.importers.nccl_table import samples_of
from commbench.importers.nccl_tests import PROGRAM, version_of
from commbench.importers.samples import itemsize

_FUNCTIONS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "alltoall",
    "AllToAll": "alltoall",
    "AlltoAllv": "alltoallv",
    "AllToAllv": "alltoallv",
    "Gather": "gather",
    "Scatter": "scatter",
    "SendRecv": "sendrecv",
    "HyperCube": "hypercube",
}
_TOTALS = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
_MOST_TIMES = 100_000


def wants(data) -> bool:
    """True for a document of -J or of the earlier proposal."""
    return isinstance(data, dict) and (isinstance(data.get("results"), list) or isinstance(data.get("benchmark"), list))


def is_line(data) -> bool:
    """True for a record of rccl-tests, or a list of them."""
    first = data[0] if isinstance(data, list) and data else data
    return isinstance(first, dict) and "busBw" in first


def lines_of(data, line: int) -> list[tuple[int, dict]]:
    records = data if isinstance(data, list) else [data]
    return [(line, record) for record in records if isinstance(record, dict)]


def from_lines(records: list[tuple[int, dict]], told: Told, given: Given, fault: str) -> Test:
    """rccl-tests' records: one for each size and placement."""
    output = Output(records[0][0], tool="rccl-tests")
    by_row: dict[tuple, dict] = {}
    for line, record in records:
        name = str(record.get("name", ""))
        gpus, size = _whole(record.get("gpus")), _whole(record.get("size"))
        kind = str(record.get("type", ""))
        half = _half(record, "time", "algBw", "busBw", "#wrong")
        if size is None or half is None or not itemsize(kind):
            output.odd = output.odd or (line, "a record without size, type or figures")
            continue
        output.program = output.program or _FUNCTIONS.get(name, "")
        output.hints += [gpus] if gpus and gpus not in output.hints else []
        share = gpus if output.program in _TOTALS and gpus else 1
        redop = str(record.get("redop", "none")).lower()
        key = size, kind, redop, record.get("cycle")
        in_place = record.get("inPlace") in (1, "1", True)
        row = by_row.setdefault(key, {"line": line, "count": size // itemsize(kind) // share, "halves": {}})
        row["halves"].setdefault(in_place, half)
    for (size, kind, redop, _), row in by_row.items():
        output.rows.append(Row(row["line"], size, row["count"], kind, redop, None, row["halves"], False))
    test = samples_of(output, told, given)
    test.cut = fault or test.cut
    return test


def from_document(data: dict, line: int, told: Told, given: Given) -> Test:
    output = Output(line)
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    args = [str(word)[:200] for word in data.get("args")[:200]] if isinstance(data.get("args"), list) else []
    if found := PROGRAM.search(" ".join(args)):
        output.program = found[1]
    version = data.get("rccl_version") or data.get("nccl_version") or data.get("version")
    output.tool = "rccl-tests" if "rccl_version" in data else ""
    for name, key in (
        ("iters", "iterations"),
        ("agg_iters", "aggregated_iterations"),
        ("warmup_iters", "warmup_iters"),
        ("maximum_bytes", "maximum_bytes"),
        ("step_factor", "step_factor"),
        ("step_bytes", "step_bytes"),
    ):
        if (value := _whole(config.get(key))) is not None:
            output.settings[name] = value
    output.devices = (
        [d for d in map(_device, config.get("devices", [])) if d] if isinstance(config.get("devices"), list) else []
    )
    output.first_ranks = sum(device["rank"] == 0 for device in output.devices)
    output.hints += [n for n in launched(" ".join(args))[:1] if n]
    rows = _results(data["results"]) if isinstance(data.get("results"), list) else _proposal(data["benchmark"])
    for result in rows:
        row = _row(result, line, output)
        if row:
            output.rows.append(row)
        else:
            output.odd = output.odd or (line, "a result without size, type or figures")
    bounds = data.get("out_of_bounds")
    if isinstance(bounds, dict):
        output.ended = True
        if _whole(bounds.get("count")):
            output.failed = f"out_of_bounds counts {bounds['count']}"
    average = data.get("average_bus_bandwidth")
    output.average = listed(average.get("bandwidth")) if isinstance(average, dict) else None
    test = samples_of(output, told, given)
    if isinstance(version, int | str) and not isinstance(version, bool):
        code = _whole(version)
        told_version = version_of(code) if code and code >= 1000 else str(version)[:40]
        test.versions.setdefault("rccl" if output.tool else "nccl", told_version)
    return test


def _results(results: list):
    for result in results:
        if isinstance(result, dict):
            name = str(result.get("experiment_name", ""))
            yield {
                **result,
                "program": name,
                "halves": {False: result.get("out_of_place"), True: result.get("in_place")},
                "times": {False: _times(result, "out_of_place"), True: _times(result, "in_place")},
            }


def _times(result: dict, place: str) -> tuple[float, ...]:
    per_iter = result.get(f"{place}_per_iter")
    times = per_iter.get("times_us") if isinstance(per_iter, dict) else None
    values = [listed(t) for t in times[:_MOST_TIMES]] if isinstance(times, list) else []
    return tuple(values) if values and all(values) else ()


def _proposal(benchmark: list):
    for sizes in benchmark:
        for size, result in sizes.items() if isinstance(sizes, dict) else ():
            if isinstance(result, dict):
                halves = {
                    place: {name.removeprefix(short): value for name, value in result.items() if name.startswith(short)}
                    for place, short in ((False, "oop_"), (True, "ip_"))
                }
                yield {**result, "size": size, "halves": halves, "times": {}, "program": ""}


def _row(result: dict, line: int, output: Output) -> Row | None:
    size, count, kind = _whole(result.get("size")), _whole(result.get("count")), str(result.get("type", ""))
    halves = {}
    for place, half in result["halves"].items():
        if isinstance(half, dict):
            made = _half(half, "time", "alg_bw", "bus_bw", "nwrong") or _half(half, "time", "algbw", "busbw", "error")
            made = made or _half(half, "cpu_time", "alg_bw", "bus_bw", "nwrong", cpu=True)
            if made and result["times"].get(place):
                made.extra["times_us"] = result["times"][place]
            halves |= {place: made} if made else {}
    if size is None or count is None or not itemsize(kind) or not halves:
        return None
    root = str(result.get("root", "")).strip()
    if found := PROGRAM.search(result["program"]):
        output.program = output.program or found[1]
    number = int(root) if whole(root.removeprefix("-")) is not None and len(root) < 9 else None
    redop = str(result.get("redop", "")).strip().lower() or "none"
    return Row(line, size, count, kind, redop, number, dict(sorted(halves.items())), False)


def _half(data: dict, time: str, algbw: str, busbw: str, check: str, cpu: bool = False) -> Half | None:
    figures = [listed(data.get(name)) for name in (time, algbw, busbw)]
    if None in figures:
        return None
    wrong = listed(data.get(check))
    texts = [repr(figure) for figure in figures]
    # The proposal's `error` is a count of wrong values that is printed with decimals.
    return Half(*texts, "N/A" if wrong is None else f"{wrong:g}", False, cpu)


def _whole(value) -> int | None:
    if isinstance(value, str):
        return whole(value.strip())
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _device(data) -> dict | None:
    if not isinstance(data, dict) or _whole(data.get("rank")) is None:
        return None
    return {
        "rank": _whole(data["rank"]), "group": _whole(data.get("group")) or 0, "pid": _whole(data.get("pid")) or 0,
        "host": str(data.get("hostname", "not named"))[:255], "device": f"cuda:{_whole(data.get('device')) or 0}",
        "device_id": str(data.get("device_hex", ""))[:40], "device_name": str(data.get("device_info", ""))[:120],
    }  # fmt: skip
