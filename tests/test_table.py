"""What stands on the terminal: literal text, no lost digit, no thread behind the bar."""

import io
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from commbench.cli.table import LiveView, point_line, result_table
from commbench.results.records import Point, Sample


def sample(op="all_reduce", size_bytes=65536, times=(100.0,) * 5 + (110.0,) * 5, wrong=0, status="ok", **what):
    reason = what.pop("reason", "")
    what = {"redop": "sum", "ranks": 4, "members": (0, 1, 2, 3)} | what
    point = Point(op, "gloo", size_bytes, **what)
    return Sample(
        point, 1, "2026-01-01T00:00:00Z", samples_us=times, wrong=wrong, status=status, reason=reason,
        skew_us=12.5, stop_reason="precision",
    )  # fmt: skip


def shown(samples, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(result_table(samples))
    return console.file.getvalue().splitlines()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_all_samples_share_stands_in_the_title_and_the_rest_in_columns():
    lines = shown([sample(), sample(size_bytes=2**20)])
    assert "op all_reduce, backend gloo, ranks 4" in lines[0] and "place out" in " ".join(lines[:2])
    heads = next(line for line in lines if "busbw" in line).split()
    assert heads[0] == "size" and "op" not in heads
    lines = shown([sample(), sample("all_gather", redop="none")])
    assert "all_reduce" not in lines[0]
    assert [line.split()[0] for line in lines if " 64K " in line] == ["all_reduce", "all_gather"]


def test_a_row_holds_the_figures_of_its_sample():
    (row,) = [line.split() for line in shown([sample()]) if " 64K " in line]
    # 65536 B / 105 us = 0.624 GB/s, times 2 * 3 / 4; the interval of 10 samples is the 2nd to the 9th: 5 of 105
    assert row == ["64K", "105.00", "4.8", "0.62", "0.94", "0", "12.50", "precision", "ok"]


def test_what_is_not_there_is_never_a_zero():
    alone = sample(ranks=1, members=(0,), times=(5.0,), wrong=None)
    (row,) = [line.split() for line in shown([replace(alone, skew_us=None)]) if " 64K " in line]
    assert row == ["64K", "5.00", "-", "13.11", "n/a", "-", "-", "precision", "ok"]


def test_rows_stand_in_sections_with_sizes_ascending():
    samples = [sample(size_bytes=2**20), sample("reduce"), sample(), sample(in_place=True)]
    cells = [line.split() for line in shown([*samples, sample("reduce", size_bytes=8)]) if "reduce" in line]
    lines = [row[:3] for row in cells if row[0] in ("all_reduce", "reduce")]
    assert lines == [
        ["all_reduce", "out", "64K"], ["all_reduce", "in", "64K"], ["all_reduce", "out", "1M"],
        ["reduce", "out", "8"], ["reduce", "out", "64K"],
    ]  # fmt: skip


def test_text_from_outside_prints_literally():
    broken = sample(group="b", status="error", reason="[link=x]y")
    hostile = [sample(group="[red]"), sample(group="[/]x\x1b[2J"), broken]
    text = "\n".join(shown(hostile, 200))
    assert "[red]" in text and "[/]x [2J" in text and "error: [link=x]y" in text
    assert "\x1b" not in text


def test_no_digit_is_lost_on_a_narrow_terminal():
    text = shown([sample(times=(123456.0,)), sample("all_gather", redop="none", times=(7654321.0,))], width=50)
    first = next(i for i, line in enumerate(text) if "all_reduce" in line)
    assert "…" not in "".join(text[first:])
    times = "".join(line[15:20].strip() for line in text[first:])
    assert times == "1234567654321"


def test_large_times_are_written_out():
    assert ": 1234567 us," in point_line(sample(times=(1234567.0,)))


def test_a_line_for_a_log():
    assert point_line(sample(in_place=True, group="rail 0")) == (
        "all_reduce 64K, in place, gloo, 4 ranks, rail 0: "
        "105.00 us ±4.8 %, busbw 0.94 GB/s, 0 wrong, stop: precision, ok"
    )
    skipped = sample(size_bytes=0, params={"requested_bytes": 65536}, times=(), status="skip", reason="not\nhere")
    assert point_line(skipped) == "all_reduce 64K, gloo, 4 ranks: skip: not here"
    assert "busbw n/a GB/s, not checked" in point_line(sample(ranks=1, wrong=None))


def test_a_line_of_a_layer_tells_its_options():
    def line(**params):
        return point_line(
            sample("pipeline", kind="layer", redop="none", nodes=1, params={"dtype": "float32", **params})
        )

    assert line(schedule="zb_h1", tokens=64).startswith(
        "pipeline 64K, gloo, 4 ranks, schedule zb_h1: 105.00 us ±4.8 %,"
    )
    assert line(schedule="1f1b").startswith("pipeline 64K, gloo, 4 ranks: 105.00 us ±4.8 %, 0 wrong, stop")


def test_a_log_gets_one_plain_line_a_point():
    stream = io.StringIO()
    view = LiveView(12, stream)
    view.message("world of 4 ranks [bold]")
    view.point(sample())
    view.point(sample(size_bytes=2**20, status="wrong", wrong=3, reason="3 wrong elements"))
    view.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and "\x1b" not in stream.getvalue()
    assert lines[0] == "world of 4 ranks [bold]"
    assert lines[1].startswith("1/12 all_reduce 64K, gloo") and lines[2].startswith("2/12 all_reduce 1M")
    assert "3 wrong, stop: precision, wrong: 3 wrong elements" in lines[2]


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_a_terminal_gets_a_bar_that_no_thread_draws_and_the_table_at_the_end(terminal):
    import sys

    before, stdout = threading.active_count(), sys.stdout
    view = LiveView(3, terminal)
    view.point(sample(group="[red]"))
    assert threading.active_count() == before and sys.stdout is stdout  # ranks are forked now
    view.point(sample(status="wrong", wrong=3, reason="3 wrong elements"))
    view.message("halfway [bold]")
    during = terminal.getvalue()
    assert "all_reduce 64K, gloo, 4 ranks, [red]: 105.00 us" in during and "halfway [bold]" in during
    assert "━" in during and "2/3" in during and "wrong: 3 wrong elements" in during
    view.close()
    table = terminal.getvalue()[len(during) :]
    assert "#wrong" in table and "[red]" in table and "\x1b[?25h" in table  # the cursor is back


def test_a_line_tells_every_axis_that_is_not_the_usual_one():
    told = point_line(sample(dtype="bfloat16", redop="max", timing="streaming", batch=20, root=2))
    assert all(word in told for word in ("bfloat16", "max", "streaming x20", "root 2"))
    assert "asked 10" in point_line(sample(size_bytes=0, params={"requested_bytes": 10}))


def test_a_narrow_or_launched_terminal_gets_lines(terminal, monkeypatch):
    for width, plain in ((20, False), (200, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        view = LiveView(3, terminal, plain=plain)
        view.point(sample())
        view.close()
        assert "\x1b" not in terminal.getvalue() and "1/3 all_reduce" in terminal.getvalue()


def test_a_rate_that_no_machine_has_is_said():
    assert "implausible" in point_line(sample(size_bytes=2**30, times=(1.0,) * 8))
    assert "implausible" not in point_line(sample(size_bytes=2**30, times=(1e4,) * 8))
    assert "implausible" not in point_line(sample(size_bytes=2**30, times=(1.0,) * 8, ranks=1))
