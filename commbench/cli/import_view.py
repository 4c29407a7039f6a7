"""What an import found, in words: the tests of a file, what is odd about them, and what was dropped."""

from commbench.importers.found import Test
from commbench.importers.read import Imported
from commbench.results.nccl_tests import one_line
from commbench.results.records import Sample
from commbench.units import format_size

_RATES = ("busbw_GBps", "bandwidth_GBps", "TFLOPS")
_SHOWN, _MOST = 5, 40  # reasons, and operations, that are listed


def told(file: Imported) -> list[str]:
    """The lines for one file."""
    lines = [one_line(file.path)]
    for test in file.tests:
        lines += _test(test)
    for test in file.unusable:
        lines.append(
            f"  {one_line(test.tool)}, line {test.line}: not used; line {test.fault[0]}: {one_line(test.fault[1])}"
        )
    for why, (count, number, text) in file.dropped.items():
        lines.append(
            f"  dropped: {count} line(s), {one_line(why)}; the first is line {number}: {one_line(text)[:80]!r}"
        )
    if file.log_lines:
        lines.append(f"  {file.log_lines} line(s) of NCCL's log were passed over")
    return lines


def _test(test: Test) -> list[str]:
    lines = [f"  {one_line(test.tool)}, line {test.line}: {test.rows} {test.unit}(s), {len(test.samples)} result(s)"]
    groups: dict[tuple, list[Sample]] = {}
    for sample in test.samples:
        groups.setdefault((sample.point.op, sample.point.in_place, sample.point.ranks), []).append(sample)
    lines += [f"    {_group(samples)}" for samples in list(groups.values())[:_MOST]]
    if test.samples[0].point.kind == "link":
        told_ = [f"{name} {value}" for name, value in test.facts.items() if isinstance(value, str | int | float)]
        lines += [f"    {one_line(', '.join(told_))}"] if told_ else []
    if len(groups) > _MOST:
        lines.append(f"    and {len(groups) - _MOST} more operations")
    lines += [f"    note: {one_line(note)}" for note in test.notes]
    if average := test.facts.get("average_busbw_GBps"):
        lines.append(f"    the printed average over the sweep is {average:g} GB/s; no verdict rests on it")
    if test.cut:
        lines.append(f"    cut: {one_line(test.cut)}")
    lines += _bad(test.samples)
    return lines


def _group(samples: list[Sample]) -> str:
    point = samples[0].point
    what = [point.op + (" in place" if point.in_place else "")]
    if point.ranks and point.kind not in ("link", "kernel"):
        nodes = f" on {point.nodes} node(s)" if point.nodes else ""
        what.append(f"{point.ranks} rank(s){nodes}")
    sizes = [s.point.size_bytes or s.point.params.get("block_bytes", 0) for s in samples]
    if any(sizes):
        blocks = " a block" if not any(s.point.size_bytes for s in samples) else ""
        what.append(f"{format_size(min(sizes))} to {format_size(max(sizes))}{blocks}" if len(set(sizes)) > 1
                    else f"{format_size(sizes[0])}{blocks}")  # fmt: skip
    return f"{one_line(', '.join(what))}: {len(samples)} result(s){_best(samples)}"


def _best(samples: list[Sample]) -> str:
    """The highest rate or, where no rate is printed, the range of times."""
    for name in _RATES:
        rated = [s for s in samples if s.reported.get(name) and s.status == "ok"]
        if rated and not (name == "busbw_GBps" and samples[0].point.ranks == 1):
            best = max(rated, key=lambda s: s.reported[name])
            at = f" at {format_size(best.point.size_bytes)}" if best.point.size_bytes else ""
            unit = name.rpartition("_")[2].replace("GBps", "GB/s")
            time = f", {samples[0].samples_us[0]:g} us" if len(samples) == 1 and samples[0].samples_us else ""
            what = f"highest {name.partition('_')[0]}" if "_" in name else "highest rate"
            return f", {what} {best.reported[name]:g} {unit}{at}{time}"
    times = [s.samples_us[0] for s in samples if s.samples_us]
    if times:
        return f", {min(times):g} to {max(times):g} us" if len(times) > 1 else f", {times[0]:g} us"
    paths = dict.fromkeys(str(s.reported["path"]) for s in samples if "path" in s.reported)
    return f", paths {', '.join(paths)}" if paths else ""


def _bad(samples: list[Sample]) -> list[str]:
    lines = []
    for status, what in (("wrong", "FAILED CHECK"), ("error", "damaged"), ("skip", "not run")):
        reasons = list(dict.fromkeys(s.reason for s in samples if s.status == status))
        count = sum(s.status == status for s in samples)
        lines += [f"    {what}: {one_line(reason)}" for reason in reasons[:_SHOWN]]
        if len(reasons) > _SHOWN:
            lines.append(f"    {what}: and {count - _SHOWN} more result(s)")
    return lines
