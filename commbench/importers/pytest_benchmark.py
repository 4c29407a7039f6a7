"""pytest-benchmark: the JSON of --benchmark-json, with the times of all rounds, and of --benchmark-save, without them.

Times are seconds a round, already divided by the round's iterations (Metadata.update in src/pytest_benchmark/stats.py).
What `extra_info` says by the names of a record (op, algorithm, dtype, device, size_bytes, flops, params) is taken for
it; a benchmark that says nothing of the kind is an operation named as its function.
"""

import re

from commbench.importers.cells import listed, whole
from commbench.importers.found import Test
from commbench.importers.samples import sample

_NAME = re.compile(r"[A-Za-z]\w{0,79}")
_MOST_TIMES = 100_000
_MOST_PARAMS = 40


def wants(document) -> bool:
    """True for a document of pytest-benchmark."""
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list) and "machine_info" in document


def from_json(document: dict, line: int) -> Test:
    """The document as one test, each benchmark a sample of one rank."""
    test = Test(f"pytest-benchmark {_text(document.get('version'))}".strip(), line, unit="benchmark")
    started = _text(document.get("datetime"))
    _machine(document["machine_info"], test)
    odd = 0
    for benchmark in document["benchmarks"]:
        found = _sample(benchmark, started, test) if isinstance(benchmark, dict) else None
        odd += found is None
        if found:
            test.add(found)
    test.rows = len(test.samples)
    if odd:
        test.notes.append(f"{odd} benchmark(s) have no name or no time above 0 and were left out")
    if not test.samples:
        test.fault = (line, "JSON of pytest-benchmark without a benchmark that has a time above 0")
    return test


def _sample(benchmark: dict, started: str, test: Test):
    extra, stats = _dict(benchmark.get("extra_info")), _dict(benchmark.get("stats"))
    function = _text(benchmark.get("name")).partition("[")[0]
    op = next((name for name in (_text(extra.get("op")), function) if _NAME.fullmatch(name)), "")
    times = _times(stats.get("data"))
    if not op or not (times or listed(stats.get("median"))):
        return None
    if times and len(stats["data"]) > _MOST_TIMES:
        note = f"of a benchmark with more rounds the first {_MOST_TIMES} are taken"
        test.notes += [] if note in test.notes else [note]
    flops = listed(extra.get("flops"))
    return sample(
        op,
        _text(extra.get("device")) or "unknown",
        kind="kernel",
        ranks=1,
        nodes=1,
        time_us=times or listed(stats["median"]) * 1e6,
        size_bytes=_whole(extra.get("size_bytes")) or 0,
        algorithm=_text(extra.get("algorithm")) or "library",
        dtype=_text(extra.get("dtype")) or "unknown",
        params=_params(extra["params"]) if isinstance(extra.get("params"), dict) else _own_params(benchmark),
        flops=flops or None,
        started_at=started,
        reported={
            "rounds": _whole(stats.get("rounds")),
            "iterations": _whole(stats.get("iterations")),
            **{f"{name}_us": _us(stats.get(name)) for name in ("min", "max", "mean", "stddev", "iqr")},
        },
    )


def _own_params(benchmark: dict) -> dict:
    """What tells a benchmark of any project from the others: its file, its group and its parameters."""
    where = {"file": _text(benchmark.get("fullname")).partition("::")[0], "group": _text(benchmark.get("group"))}
    return {name: value for name, value in where.items() if value} | _params(_dict(benchmark.get("params")))


def _machine(machine, test: Test) -> None:
    machine = _dict(machine)
    if host := _text(machine.get("node")):
        cpu = _text(_dict(machine.get("cpu")).get("brand_raw"))
        cores = _whole(_dict(machine.get("cpu")).get("count"))
        node = {"host": host, "kernel": _text(machine.get("release")), "cpu": cpu, "cores": cores}
        test.nodes.append({name: value for name, value in node.items() if value})
    test.versions["python"] = _text(machine.get("python_version"))


def _params(params: dict) -> dict:
    """Those that are plain: numbers, texts, true and false; a list of them, which may hold null (a window without
    a limit), as they stand in a record."""
    kept = {str(name)[:40]: _plain(value) for name, value in list(params.items())[:_MOST_PARAMS]}
    return {name: value for name, value in kept.items() if value is not None}


def _plain(value):
    if isinstance(value, list):
        items = [(item, _plain(item)) for item in value[:_MOST_PARAMS]]
        return [kept for _, kept in items] if all(kept is not None or item is None for item, kept in items) else None
    if isinstance(value, str):
        return value[:100]
    return value if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 1e15) else None


def _times(data) -> tuple[float, ...]:
    times = [listed(time) for time in data[:_MOST_TIMES]] if isinstance(data, list) else []
    return tuple(time * 1e6 for time in times) if times and all(times) else ()


def _us(seconds) -> float | None:
    value = listed(seconds)
    return None if value is None else value * 1e6


def _whole(value) -> int | None:
    return whole(str(value)) if isinstance(value, int) and not isinstance(value, bool) else None


def _dict(value) -> dict:
    return value if isinstance(value, dict) else {}


def _text(value) -> str:
    return value[:100] if isinstance(value, str) else ""
