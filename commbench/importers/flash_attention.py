"""Tables of flash-attn's benchmarks: FLOP rates of attention kernels by method. A rate of 0.00 means "not run"."""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, positive
from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Line, Lines

_HEAD = re.compile(r"#{2,3}(.{1,400}?)#{2,3}")
_SETTING = re.compile(
    r"\b(causal|headdim|batch_size|seqlen\w{0,6}|seq_len|mode|nheads(?:_kv)?|hdim|dim|dtype|window|varlen)"
    r" ?= ?'?([\w.-]{1,20})'?"
)
_PASSES = re.compile(r"(fwd \+ bwd|fwd|bwd): ([\d.]{1,20}) TFLOPs?/s")
_METHOD = re.compile(r"^\s*([A-Za-z][\w .+-]{0,40}?):? (?=fwd:)")
_TIMED = re.compile(
    r"^\s*((?:\[[\w, ]{1,40}\] )?[A-Za-z][\w .+-]{0,40}?)(?: (fwd|bwd))?: ([\d.]{1,20}) ?(us|ms|s)\b,?"
    r" *([\d.]{1,20}) TFLOPS?\b(?:/s)?"
)
_AFTER = re.compile(r"TFLOPs?/s, ([\d.]{1,30}) (us|ms|s)\b,?\s*$")  # a line of one pass may end with its time
_TABLE = re.compile(r"^\s*(FWD|BWD) \(ms / TFLOPS\b")
_COLUMNS = ("hdim", "causal", "batch", "seqlen")
_NAMES = {"fwd": "forward", "bwd": "backward", "fwd + bwd": "forward_backward"}
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}
WORDS = ("seqlen", "TFLOPS")


def starts(text: str) -> bool:
    return ("##" in text and "seqlen" in text and _HEAD.search(text) is not None) or _TABLE.match(text) is not None


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, config, configs, kind, methods = None, {}, 0, "", []
    for line in lines.section("flash_attention"):
        text = line.text.strip()
        if found := _TABLE.match(text):
            test = test or Test("flash-attn benchmark", line.number, unit="configuration")
            kind, methods, config = _NAMES[found[1].lower()], [], {}
        elif kind and tuple(text.split()[:4]) == _COLUMNS:
            methods = text.split()[4:]
        elif methods and text[:1].isdigit() and _table_row(line, text.split(), kind, methods, test):
            pass
        elif starts(text):
            kind, methods = "", []
            test = test or Test("flash-attn benchmark", line.number, unit="configuration")
            config, configs = _config(text), configs + 1
        elif config and _take(line, text, config, test):
            pass
        elif text:
            lines.drop(line)
    if test:
        test.rows = len({_key(s.point.params) for s in test.samples})
        if not any(s.status == "ok" for s in test.samples):
            test.samples, test.fault = [], (test.line, "a heading of flash-attn's benchmark without a rate above 0")
        yield test


def _config(text: str) -> dict:
    return {name: value for name, value in _SETTING.findall(_HEAD.search(text)[1])}


def _key(params: dict) -> tuple:
    return tuple(sorted((name, value) for name, value in params.items() if name != "method"))


def _take(line: Line, text: str, config: dict, test: Test) -> bool:
    if found := _TIMED.match(text):
        method, kind, time, unit, rate = found.groups()
        time_us = (positive(time) or 0) * _US[unit] or None
        kind = _NAMES.get(kind or config.get("mode", "fwd"), config.get("mode"))
        return _add(line, test, config, method, kind, rate, time_us)
    method, passes = _METHOD.match(text), _PASSES.findall(text)
    if not method or not passes:
        return False
    after = _AFTER.search(text) if len(passes) == 1 else None
    time_us = (positive(after[1]) or 0) * _US[after[2]] or None if after else None
    return all([_add(line, test, config, method[1], _NAMES[name], rate, time_us) for name, rate in passes])


def _table_row(line: Line, cells: list[str], kind: str, methods: list[str], test: Test) -> bool:
    """A row of the newer table: a configuration, and ms / TFLOPS / ... of each method."""
    figures = [cell.split("/")[:2] for cell in cells[4:]]
    if len(figures) != len(methods) or any(len(pair) != 2 for pair in figures):
        return False
    config = dict(zip(_COLUMNS, cells))
    pairs = zip(methods, figures)
    return all([_add(line, test, config, m, kind, rate, (positive(ms) or 0) * 1e3 or None) for m, (ms, rate) in pairs])


def _add(line: Line, test: Test, config: dict, method: str, kind: str, rate: str, time_us: float | None) -> bool:
    value = number(rate)
    if value is None:
        return False
    ran = value > 0
    test.add(
        sample(
            f"attention_{kind}",
            "cuda",
            kind="kernel",
            ranks=1,
            nodes=1,
            scope="intra",
            time_us=time_us if ran else None,
            params={**config, "method": method.strip()},
            dtype=config.get("dtype", "unknown"),
            clock="cuda events",
            reported={"TFLOPS": value, "time_us": time_us} if ran else {},
            status="ok" if ran else "skip",
            reason="" if ran else f"line {line.number}: 0.00 TFLOPs/s means that it was not run",
        )
    )
    return True
