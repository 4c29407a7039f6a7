"""Results in the text of nccl-tests, so that people find their table and every parser of it works.

Column widths and number rules are those of nccl-tests 2.18 and 2.19; golden tests hold them against captured output.
A world of one rank keeps 0.00 in the busbw column, which parsers read as a number; `notes` says that it means nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from commbench import __version__
from commbench.results.metrics import algbw_GBps, busbw_GBps, copies_input, time_us
from commbench.results.records import Point, Sample
from commbench.world.dtypes import DTYPES

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "all_to_all": "alltoall_perf",
    "all_to_all_v": "alltoallv_perf",
    "sendrecv": "sendrecv_perf",
}

_HALF = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", ""), (7, 6, 6, 6)
_NAMES = ("size", "count", "type", "redop", "root", *_HALF[0], *_HALF[0])
_UNITS = ("(B)", "(elements)", "", "", "", *_HALF[1], *_HALF[1])
_WIDTHS = (12, 12, 8, 6, 6, *_HALF[2], *_HALF[2])


class Half(NamedTuple):
    """One placement of one size as printed; `wrong` is None where the data was not checked."""

    time_us: float
    algbw_GBps: float
    busbw_GBps: float
    wrong: int | None


def one_line(text) -> str:
    """`text` from outside on one printable line: a host name must not start a new row or move the cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def number(value: float, width: int) -> str:
    """The most decimals (at most two) with which `value` fits into `width` characters, right-aligned."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def half(sample: Sample | None) -> Half | None:
    """The printed figures of a sample; None where it was skipped, failed, or was never measured."""
    if sample is None or sample.status not in ("ok", "wrong") or not sample.samples_us:
        return None
    return Half(time_us(sample), algbw_GBps(sample) or 0.0, busbw_GBps(sample) or 0.0, sample.wrong)


def row_line(point: Point, out_of_place: Half | None, in_place: Half | None) -> str:
    """The row of one size. `point` is that of either half; a half that is None prints as N/A in all its columns."""
    dtype = DTYPES[point.dtype].nccl_name if point.dtype in DTYPES else one_line(point.dtype)
    what = str(point.size_bytes), str(point.count), dtype, one_line(point.redop), str(point.root)
    return "  ".join([_columns(what, _WIDTHS[:5]), _half_text(out_of_place), _half_text(in_place)])


def _half_text(figures: Half | None) -> str:
    if figures is None:
        return _columns(["N/A"] * 4, _HALF[2])
    # nccl-tests itself prints this N/A one character narrower than a count.
    wrong = "  N/A" if figures.wrong is None else f"{figures.wrong:6g}"
    return "  ".join([number(figures.time_us, 7), number(figures.algbw_GBps, 6), number(figures.busbw_GBps, 6), wrong])


def _columns(cells, widths) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def device_lines(header: dict, members: Iterable[int]) -> list[str]:
    """The lines of those ranks of a journal's header that are `members`; a rank without a GPU shows its processor."""
    members, lines = set(members), []
    for facts in header.get("ranks", []):
        if facts.get("rank") not in members:
            continue
        if facts.get("device") == "cpu":
            device, bus, name = 0, "cpu", header["nodes"][facts["node"]].get("cpu")
        else:
            bus, name = str(facts.get("device_id")).removesuffix(".0"), facts.get("device_name")
            device = str(facts.get("device")).removeprefix("cuda:")
        lines.append(
            f"#  Rank {facts['rank']:>2} Group  0 Pid {facts.get('pid'):>6} on {one_line(facts.get('host')):>10} "
            f"device {device:>2} [{one_line(bus)}] {one_line(name)}"
        )
    return lines


def header_lines(
    program: str,
    sizes: Iterable[int],
    *,
    warmup: int,
    iters: int,
    checks: int,
    graph: int,
    devices: Iterable[str],
    notes: Iterable[str],
) -> list[str]:
    """What stands above the rows of at least one size; `devices`: device_lines(), `notes`: sentences to read first."""
    sizes = sorted(set(sizes))
    first, title = "# " + " " * 61 + "out-of-place" + " " * 23 + "in-place" + " " * 10, (10, *_WIDTHS[1:])
    return [
        f"# commbench {__version__} (table of nccl-tests 2.19)",
        f"# Collective test starting: {program}",
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)} warmup iters: {warmup} "
        f"iters: {iters} agg iters: 1 validation: {checks} graph: {graph} unalign: 0",
        "#",
        "# Using devices",
        *devices,
        *(f"# {one_line(note)}" for note in notes),
        "#",
        first,
        f"# {_columns(_NAMES, title)} ",
        f"# {_columns(_UNITS, title)} ",
    ]


def _step(sizes: list[int]) -> str:
    """How the sorted sizes go on: "2(factor)", "1048576(bytes)", or "0(list)" where they follow neither rule."""
    factors = {b / a for a, b in zip(sizes, sizes[1:]) if a}
    steps = {b - a for a, b in zip(sizes, sizes[1:])}
    if len(factors) == 1 and sizes[0] and factors == {int(min(factors))}:
        return f"{int(factors.pop())}(factor)"
    if len(steps) == 1:
        return f"{steps.pop()}(bytes)"
    return "0(list)" if steps else "1048576(bytes)"


def footer_lines(program: str, halves: Iterable[Half | None]) -> list[str]:
    """Everything below the rows: how many halves hold wrong data, and the mean busbw over all that were measured.

    The mean is written without an exponent, unlike nccl-tests' own: parsers read "1.3e-05" as 1.3.
    """
    measured = [figures for figures in halves if figures]
    failed = sum(bool(figures.wrong) for figures in measured)
    mean = float(np.mean([figures.busbw_GBps for figures in measured])) if measured else 0.0
    unchecked = not any(figures.wrong is not None for figures in measured)
    return [
        f"# Out of bounds values : {failed} {'FAILED' if failed else 'OK'}",
        f"# Avg bus bandwidth    : {np.format_float_positional(mean, precision=6, fractional=False, trim='-')} ",
        *(["# Not one result was checked: OK says nothing about the data."] if unchecked else []),
        "#",
        f"# Collective test concluded: {program}",
        "#",
    ]


def notes(points: Iterable[Point]) -> list[str]:
    """What sets these figures apart from those of nccl-tests: the timing, a copy, or a world of one rank."""
    points = list(points)
    said = []
    if any(point.timing == "isolated" for point in points):
        said.append("Times are isolated: all ranks are aligned before each call. nccl-tests streams its calls.")
    if any(copies_input(point) for point in points):
        said.append("The left half includes a copy from send to receive buffer: the library works in place only.")
    if any(point.ranks == 1 for point in points):
        said.append("The world has one rank: no bus is used, so busbw does not apply; its 0.00 is not a measurement.")
    return said
