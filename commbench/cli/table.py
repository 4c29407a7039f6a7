"""Results on a terminal: a table of samples, and the view that stands there while a run goes on.

rich is imported where it is used, so that a log or `--help` never waits for it.
"""

from collections.abc import Sequence
from shutil import get_terminal_size

from commbench.layers import NAMES as LAYER_NAMES
from commbench.layers import load
from commbench.results.layer_metrics import layer_words
from commbench.results.metrics import algbw_GBps, busbw_GBps, disturbances, flow_words, load_words, time_us
from commbench.results.nccl_tests import number, one_line
from commbench.results.records import Sample
from commbench.timing.statistics import relative_half_width
from commbench.units import format_size

# What samples can differ in. A key that all samples share stands in the title, any other one gets a column.
_KEYS = {
    "op": lambda s: s.point.op if s.point.redop in ("none", "sum") else f"{s.point.op} {s.point.redop}",
    "backend": lambda s: s.point.backend,
    "ranks": lambda s: str(s.point.ranks),
    "group": lambda s: s.point.group,
    "algorithm": lambda s: s.point.choice,
    "routing": lambda s: flow_words(s.point),
    "options": lambda s: _options_words(s.point),
    "dtype": lambda s: s.point.dtype,
    "timing": lambda s: s.point.timing,
    "place": lambda s: "in" if s.point.in_place else "out",
    "launch": lambda s: str(s.launch),
}

_NARROWEST = 80  # columns that the table needs
_STYLES = {"ok": "green", "skip": "dim", "wrong": "bold red", "error": "bold red"}


def result_table(samples: Sequence[Sample]):
    """A rich Table of `samples`, a section for each operation, backend and group; sizes ascend within a section.

    ± is half the width of the median's 95 % interval over the median, within one launch.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shared = {name for name, key in _KEYS.items() if len({key(s) for s in samples}) == 1}
    columns = [name for name in _KEYS if name not in shared]
    alike = {name: _KEYS[name](samples[0]) for name in _KEYS if name in shared}
    title = ", ".join(one_line(f"{name} {value}") for name, value in alike.items() if value)
    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, padding=0, title_justify="left")
    for name in columns:
        table.add_column(name, no_wrap=name != "options", overflow="fold")
    # On a narrow terminal a number is broken over two lines (fold): it must not lose a digit.
    for name in ("size", "time us", "± %", "algbw GB/s", "busbw GB/s", "#wrong", "skew us"):
        table.add_column(name, justify="right", overflow="fold")
    for name in ("stop", "status"):
        table.add_column(name, overflow="fold")
    order = list(dict.fromkeys(map(_section, samples)))
    flows = list(dict.fromkeys(flow_words(s.point) for s in samples))

    def place(s: Sample) -> tuple:
        flow = flows.index(flow_words(s.point))
        return order.index(_section(s)), flow, s.point.size_bytes, s.point.in_place, s.launch

    ordered = sorted(samples, key=place)
    for sample, after in zip(ordered, [*ordered[1:], None], strict=True):
        keys = [one_line(_KEYS[name](sample)) for name in columns]
        status = Text(_status(sample), style=_STYLES.get(sample.status, ""))
        cells = [*keys, *_figures(sample), one_line(sample.stop_reason)]
        ends = after is not None and _section(after) != _section(sample)
        table.add_row(*map(Text, cells), status, end_section=ends)
    return table


def _options_words(point) -> str:
    """What of a layer's options is not the default, "schedule zb_h1, tokens 128"; "" for what is no layer."""
    if point.kind != "layer" or point.op not in LAYER_NAMES:
        return ""
    usual = load(point.op).options | {"dtype": point.dtype}
    if point.ranks and point.nodes and "per_node" in usual:  # 0 stands for the nodes that are there
        usual["per_node"] = point.ranks // point.nodes
    return ", ".join(f"{name} {value}" for name, value in point.params.items() if usual.get(name) != value)


def _section(sample: Sample) -> tuple:
    point = sample.point
    return point.op, point.redop, point.backend, point.ranks, point.group, point.choice, point.dtype, point.timing


def _figures(sample: Sample) -> list[str]:
    """Size, time, ±, algbw, busbw, #wrong and skew; "-" where there is none, "n/a" for the busbw of a single rank."""
    width = relative_half_width(sample.samples_us)
    size_bytes = sample.point.size_bytes if sample.samples_us else sample.point.params.get("requested_bytes", 0)
    busbw = "n/a" if sample.point.ranks == 1 else _number(busbw_GBps(sample))
    return [
        format_size(size_bytes),
        _number(time_us(sample)),
        "-" if width is None else f"{100 * width:.{1 if width < 0.1 else 0}f}",
        _number(algbw_GBps(sample)),
        busbw,
        "-" if sample.wrong is None else str(sample.wrong),
        _number(sample.skew_us),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return number(value, 6).strip() if value < 1e5 else f"{value:.0f}"


def _status(sample: Sample) -> str:
    return one_line(f"{sample.status}: {sample.reason}" if sample.reason else sample.status)


def _unusual(sample: Sample):
    """(what a point is, what most are): a line tells the axes in which it differs from the usual."""
    point = sample.point
    yield point.group, "all"
    yield point.choice, "library"
    yield flow_words(point), ""
    yield _options_words(point), ""
    yield point.dtype, "float32"
    yield ("sum" if point.redop == "none" else point.redop), "sum"
    yield f"root {max(point.root, 0)}", "root 0"
    yield f"{point.timing} x{point.batch}", "isolated x1"
    yield f"launch {sample.launch}", "launch 1"


def point_line(sample: Sample) -> str:
    """One finished point in words, for a log."""
    point = sample.point
    size, time, width, _, busbw, wrong, _ = _figures(sample)
    asked = point.params.get("requested_bytes", point.size_bytes)
    rounded = f" (asked {format_size(asked)})" if asked != point.size_bytes and sample.samples_us else ""
    what = [f"{point.op} {size}{rounded}", "in place" * point.in_place, point.backend, f"{point.ranks} ranks"]
    what += [name for name, usual in _unusual(sample) if name != usual]
    outcome = [_status(sample)]
    if sample.samples_us:
        spread = "" if width == "-" else f" ±{width} %"
        checked = "not checked" if sample.wrong is None else f"{wrong} wrong"
        rates = f"busbw {busbw} GB/s" if point.kind in ("collective", "p2p") else layer_words(sample)
        outcome = [
            f"{time} us{spread}",
            *filter(None, [rates, load_words(sample)]),
            checked,
            f"stop: {sample.stop_reason}",
            *disturbances(sample),
            *outcome,
        ]
    return one_line(f"{', '.join(filter(None, what))}: {', '.join(outcome)}")


class LiveView:
    """What a person sees while a run goes on: on a terminal a bar and at the end the table; in a log a line each.

    The bar is drawn by the calls below and by no thread: ranks are forked from this process.
    """

    def __init__(self, total: int, stream, plain: bool = False):
        """`total` points are to come; lines go to `stream`. `plain`: no bar even on a terminal (a launcher's pty)."""
        self._total, self._done, self._stream, self._bar = total, 0, stream, None
        self._samples = []
        if total and not plain and stream.isatty() and get_terminal_size().columns >= _NARROWEST:
            self._bar = _progress_bar(stream)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def more(self, points: int) -> None:
        """`points` more are to come than was known at first."""
        self._total += points
        if self._bar:
            self._bar.update(self._task, total=self._total)

    def header(self, record: dict) -> None:
        """What a launch noticed about its world, a line each."""
        for note in record.get("notes", ()):
            self.message(note)

    def point(self, sample: Sample) -> None:
        """A line for a finished point in a log; on a terminal the bar says it, and only what failed stays above it."""
        self._done += 1
        self._samples.append(sample)
        if not self._bar or sample.status in ("wrong", "error"):
            self.message(f"{self._done}/{self._total} {point_line(sample)}")
        if self._bar:
            from rich.markup import escape

            self._bar.update(self._task, advance=1, description=escape(point_line(sample)), refresh=True)

    def message(self, text: str) -> None:
        """A line of its own."""
        if self._bar:
            from rich.text import Text

            self._bar.console.print(Text(one_line(text)))
        else:
            print(one_line(text), file=self._stream, flush=True)

    def close(self) -> None:
        """The bar goes, the cursor is given back, and the table stands in its place."""
        if self._bar:
            self._bar.stop()
            if self._samples:
                self._bar.console.print(result_table(self._samples))


def _progress_bar(stream):
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    return Progress(
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        transient=True,
        console=Console(file=stream),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
