"""The rows of one program of nccl-tests as samples: collective, ranks, checks, and what does not add up."""

from dataclasses import replace

from commbench.importers.cells import NOTHING, number, positive
from commbench.importers.found import MOST_RANKS, Given, Test
from commbench.importers.names import named_rccl
from commbench.importers.nccl_infer import (
    TOTALS,
    algbw_range,
    factors,
    holds_factor,
    op_of,
    ranks_of_factors,
    ranks_of_sizes,
)
from commbench.importers.nccl_jobs import machines, several, shared_devices
from commbench.importers.nccl_log import Told
from commbench.importers.nccl_output import Output
from commbench.importers.nccl_rows import Half, Row
from commbench.importers.samples import ONE_NODE, dtype, nodes_of, sample
from commbench.ops import OPS
from commbench.results.records import Sample

_NAMES = {"alltoall": "all_to_all", "alltoallv": "all_to_all_v", "all_to_allv": "all_to_all_v"}
# DeltaMaxValue in NVIDIA/nccl-tests src/common.cu before 2.13, times (ranks - 1). Integers must be equal.
_TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
_MANY = 1024  # ranks to judge an `error` by where their number is not known
_FUNCTIONS = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
    "reduce": "Reduce",
}  # fmt: skip


def samples_of(output: Output, told: Told, given: Given) -> Test:
    """The finished output of one program as a Test; one with a fault where nothing can be used."""
    rccl = output.amd or output.asterisks or output.tool == "rccl-tests" or told.library == "RCCL"
    silent = not (output.devices or output.tool or output.library or told.library)
    rccl |= named_rccl(given.name) and silent
    backend = "rccl" if rccl else "nccl"
    test = Test(f"{backend}-tests {output.version}".strip(), output.line)
    test.facts = {**output.settings, "average_busbw_GBps": output.average, "ranks_told": told.ranks or None}
    test.versions = {backend: told.version or output.library} if told.version or output.library else {}
    test.nodes, test.ranks = machines(output.devices)
    if why := several(output):
        return _without(test, output, why)
    rows = [row for row in output.rows if _usable(row)]
    if not rows:
        return _without(test, output, "")
    op, doubt = _op(output, rows, given)
    if doubt:
        return _without(test, output, doubt)
    ranks, notes = _ranks(op, rows, output, told, given)
    if not output.table.columns and not _adds_up(rows, ranks):
        return _without(test, output, "rows without a header, whose third figure is not size / time: no nccl-tests")
    whole_list = len(test.hosts) if len(output.devices) == ranks else 0  # a list may have been cut out of the file
    full = all(device["device"] == f"cuda:{device['rank'] % ONE_NODE}" for device in output.devices)
    nodes, note = nodes_of(ranks, whole_list or output.command_nodes, given, gpus=full)
    test.rows, test.notes = len(rows), [*notes, *([note] if note else [])]
    _write(test, rows, output, told, op, backend, ranks, nodes)
    test.cut = _cut(output, rows)
    return test


def _usable(row: Row) -> bool:
    return any(positive(half.time) for half in row.halves.values())


def _adds_up(rows: list[Row], ranks: int) -> bool:
    """False where algbw is size / time in no row, so that the guessed columns are those of another program."""
    judged = [(row, half) for row in rows for half in row.halves.values() if row.size_bytes and number(half.algbw)]
    fits = (algbw_range(row.size_bytes, half) is not None or holds_factor(row, half, ranks) for row, half in judged)
    return not judged or any(fits)


def _without(test: Test, output: Output, why: str) -> Test:
    """The test with the reason why nothing of it can be used."""
    line = output.head_line or output.line
    if why:
        test.fault = (output.line if "not one job" in why else (output.rows[0].line if output.rows else line), why)
    elif output.odd:
        test.fault = output.odd
    elif output.head_line:
        test.fault = (line, "a table header with no row below it")
    else:
        test.fault = (line, output.settings.get("cut") or "the beginning of nccl-tests without a table")
    ranks = len(output.devices) or test.facts.get("ranks_told")
    if ranks and "not one job" not in why:
        test.fault = (test.fault[0], f"{test.fault[1]} ({ranks} rank(s) are named)")
    return test


def _op(output: Output, rows: list[Row], given: Given) -> tuple[str, str]:
    """(operation, "") or ("", what is not known)."""
    if output.program or given.op:
        return _NAMES.get(output.program, output.program) or given.op, ""
    sized = [row for row in rows if row.size_bytes]
    if not sized:
        return "", "all rows are of size 0, and no program is named; name the collective with --op"
    if _busbw_is_zero(sized):
        return "", "busbw is 0 in all rows: this was one rank, and no program is named; name the collective with --op"
    found = op_of(sized)
    return (found[0], "") if len(found) == 1 else ("", f"this can be {' or '.join(found)}; say which with --op")


def _busbw_is_zero(rows: list[Row]) -> bool:
    halves = [half for row in rows for half in row.halves.values()]
    return any((number(h.algbw) or 0) >= 1 for h in halves) and all(not number(h.busbw) for h in halves)


def _ranks(op: str, rows: list[Row], output: Output, told: Told, given: Given) -> tuple[int, list[str]]:
    """(ranks, 0 where not known; notes). What size and count or busbw and algbw prove stands above what is listed."""
    sized = [row for row in rows if row.size_bytes]
    listed = max((device["rank"] for device in output.devices), default=-1) + 1
    listed = listed if listed == len(output.devices) else 0  # part of the list was cut out
    proven, by = ranks_of_sizes(sized) if op in TOTALS else None, "size / count"
    least, most = ranks_of_factors(op, factors(sized))
    if not proven and least == most:
        proven, by = least, "busbw / algbw"
    if proven:
        others = [(listed, "device(s) are listed"), (given.ranks, "were given by --ranks")]
        return proven, [f"{by} says {proven} rank(s), but {n} {what}" for n, what in others if n and n != proven]
    hints = [n for n in (given.ranks, listed, told.ranks, *output.hints) if 0 < n <= MOST_RANKS]
    allowed = [hint for hint in (*hints, *output.said) if least <= hint <= most]
    if allowed:
        told = f"{allowed[0]} rank(s) are taken from a sentence above the table"
        return allowed[0], [told] * (allowed[0] not in hints)
    between = f"busbw / algbw allows {least} to {most}" if most < MOST_RANKS else "busbw / algbw does not tell it"
    return 0, [f"the number of ranks is not in the file ({between}); give it with --ranks"]


def _write(test: Test, rows, output, told, op: str, backend: str, ranks: int, nodes: int) -> None:
    """Put the samples of all rows, and what is odd about them, into `test`."""
    iters = output.settings.get("iters", 0) * output.settings.get("agg_iters", 1)
    repeats: dict[tuple, int] = {}
    judged, contradicting, convention, unmeasured = 0, [], 0, 0
    for row, asked in zip(rows, _requested(rows, output.settings)):
        for in_place, half in sorted(row.halves.items()):
            if positive(half.time) is None:
                unmeasured += 1
                continue
            key = asked, row.size_bytes, row.count, row.dtype, row.redop, row.root, in_place
            repeats[key] = repeats.get(key, 0) + 1
            params = {"requested_bytes": asked} | ({"repeat": repeats[key]} if repeats[key] > 1 else {})
            made = _sample(row, half, in_place, params, op, backend, ranks, nodes, iters, output, told)
            if row.size_bytes and (number(half.algbw) or 0) > 0:
                judged += 1
                if op in ("all_gather", "reduce_scatter") and holds_factor(row, half, ranks):
                    convention += 1
                elif algbw_range(row.size_bytes, half) is None:
                    contradicting.append((len(test.samples), row.line, half, row.size_bytes))
            test.add(made)
    if contradicting and 2 * len(contradicting) < judged:
        for at, line, half, _ in contradicting:
            why = f"line {line}: algbw {half.algbw} GB/s is not size / time ({half.time} us), so a figure is damaged"
            test.samples[at] = replace(test.samples[at], status="error", reason=why, samples_us=())
    elif contradicting:
        ratios = sorted((number(h.algbw) or 0) * 1e3 * float(h.time) / s for _, _, h, s in contradicting)
        test.notes.append(
            f"algbw is not size / time in {len(contradicting)} of {judged} results (typically "
            f"{ratios[len(ratios) // 2]:.3g} times it): a unit or a convention is not nccl-tests' own; times were taken"
        )
    if convention:
        test.notes.append(
            f"algbw in this file is {ranks - 1}/{ranks} of size / time, as nccl-tests printed it before 2020: algbw is "
            "computed anew from size and time, busbw is as printed"
        )
    if unmeasured:
        test.notes.append(f"{unmeasured} result(s) with a time of 0 were left out: they were not measured")
    _judge(test, output)
    _remarks(test, output, ranks)


def _requested(rows: list[Row], settings: dict) -> list[int]:
    """The size that each row was asked to have: the program rounds it down to whole elements of every rank, small ones
    to 0. Where the rows are not those of the sweep in its header, the size as printed."""
    sizes = [row.size_bytes for row in rows]
    least, factor = settings.get("minimum_bytes", 0), settings.get("step_factor", 0)
    if least and factor > 1 and len(sizes) < 64:
        asked = [least * factor**i for i in range(len(sizes))]
        if all(size <= full and (not size or full < factor * size) for size, full in zip(sizes, asked)):
            return asked
    return sizes


def _sample(
    row: Row, half: Half, in_place: bool, params: dict, op, backend, ranks, nodes, iters, output, told
) -> Sample:
    wrong, error_max, failed = _check(half, row, ranks)
    seen = _seen(op, row.size_bytes, ranks, told)
    if row.texts.get("algo"):
        seen = row.texts["algo"].lower().replace("_", ""), row.texts.get("proto", "not observed").lower()
    time = positive(half.time)
    if half.cpu_time:
        algbw = positive(half.algbw)
        time = row.size_bytes / algbw / 1e3 if algbw and row.size_bytes else None
    reported = {"time_us": time, "algbw_GBps": number(half.algbw), "busbw_GBps": number(half.busbw)}
    reported |= {
        f"{name[2:]}_us": number(text) for name, text in half.extra.items() if name in ("i_min", "i_max", "i_p99")
    }
    per_iter = half.extra.get("times_us")
    return sample(
        op, backend, time_us=per_iter or time, ranks=ranks, nodes=nodes, size_bytes=row.size_bytes, count=row.count,
        dtype=dtype(row.dtype), redop=row.redop, root=-1 if row.root is None else row.root, in_place=in_place,
        timing="streaming", batch=1 if per_iter else iters, reported=reported,
        params=params,
        over_ranks="max" if per_iter else "rank 0" if half.is_error else "mean",
        clock="cuda events" if per_iter else "host",
        wrong=wrong, error_max=error_max, status="wrong" if failed else "ok", reason=failed,
        warmup=output.settings.get("warmup_iters", 0), seen=seen,
    )  # fmt: skip


def _check(half: Half, row: Row, ranks: int) -> tuple[int | None, float | None, str]:
    """(wrong elements, largest difference, why the check failed). N/A was not checked, and is no pass."""
    if half.check in NOTHING:
        return None, None, ""
    value = number(half.check.rstrip("*"))
    if not half.is_error:
        return round(value), None, f"line {row.line}: #wrong is {half.check}" if value else ""
    allowed = _TOLERANCE.get(dtype(row.dtype), 0.0) * max(1, (ranks or _MANY) - 1)
    if value > allowed or half.check.endswith("*"):
        return None, value, f"line {row.line}: error {half.check} is above the {allowed:.0e} that nccl-tests allows"
    return 0, value, ""


def _seen(op: str, size_bytes: int, ranks: int, told: Told) -> tuple[str, str]:
    """What the library's log says it ran for this size; its bytes are per rank for all_gather and reduce_scatter."""
    share = size_bytes // ranks if op in ("all_gather", "reduce_scatter") and ranks else size_bytes
    pairs = told.algorithms.get((_FUNCTIONS.get(op, ""), share), set())
    return next(iter(pairs)) if len(pairs) == 1 else ("not observed", "not observed")


def _judge(test: Test, output: Output) -> None:
    """A check that failed according to the last lines, though no row shows it, fails every row."""
    if output.failed and not any(s.status == "wrong" for s in test.samples):
        why = f"{output.failed}, and no row that is left shows which one"
        test.samples = [replace(s, status="wrong", reason=why) if s.status == "ok" else s for s in test.samples]
    if output.average_failed:
        test.notes.append(f"the average bus bandwidth was below the program's own limit ({output.average})")


def _remarks(test: Test, output: Output, ranks: int) -> None:
    if not any(s.wrong is not None or s.status == "wrong" for s in test.samples):
        test.notes.append("no result was checked for wrong data")
    if ranks == 1:
        test.notes.append("one rank: no bus was used, so busbw does not apply; this says nothing about a fabric")
    if output.gap:
        test.notes.append("lines were taken out of the file at `...`")
    groups = {device["group"] for device in output.devices}
    if len(groups) > 1:
        test.notes.append(f"{len(groups)} groups ran at once: each time is the mean over all of them")
    shared = shared_devices(output.devices)
    if shared:
        test.notes.append(f"{shared} ranks share one device, so this is not a rate between devices")
    for s in test.samples:
        algbw = s.reported.get("algbw_GBps") or 0
        if algbw > 2000 and s.point.op in OPS:
            test.notes.append(f"algbw {algbw:g} GB/s at {s.point.size_bytes} B is more than any memory moves")
            break


def _cut(output: Output, rows: list[Row]) -> str:
    if output.settings.get("cut"):
        return f"{output.settings['cut']}; the last complete row is of {rows[-1].size_bytes} B"
    most = output.settings.get("maximum_bytes", 0)
    step = output.settings.get("step_factor", 1) * rows[-1].size_bytes + output.settings.get("step_bytes", 0)
    if most and not output.ended and rows[-1].size_bytes < step <= most:
        return f"ends after {rows[-1].size_bytes} B (line {rows[-1].line}); the sweep was to go to {most} B"
    return ""
