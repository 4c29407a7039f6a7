"""Work of other programs on our cores stands in the row."""

import subprocess
import sys

from runs import points, run_in_process

from commbench.timing.cores import foreign_cores, node_seconds

STAT = "cpu  100 20 30 9999 50 7 8 40 0 0\ncpu0 1 2 3 4\n"


def test_what_a_node_used(tmp_path):
    (tmp_path / "stat").write_text(STAT)
    assert node_seconds(tmp_path) == (100 + 20 + 30 + 40) / 100
    for garbage in ("", "cpu\n", "cpu a b c d e f g h\n"):
        (tmp_path / "stat").write_text(garbage)
        assert node_seconds(tmp_path) is None
    assert node_seconds(tmp_path / "nosuch") is None


def test_the_busiest_node_counts():
    quiet = [(0, 1.0, 0.9, 1.9), (0, 1.0, 0.9, 1.9)]
    busy = [(1, 1.0, 0.5, 1.75), (1, 1.0, 0.5, 1.75)]
    assert foreign_cores(quiet) < 0.15
    assert foreign_cores(quiet + busy) == 0.75
    assert foreign_cores([(0, 1.0, 1.2, 1.0)]) == 0.0
    assert foreign_cores([(0, 0.01, 0.0, 0.5)]) is None
    assert foreign_cores([(0, 1.0, 0.5, None)]) is None


def test_a_busy_machine_shows_in_a_real_row(tmp_path):
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        tables = {"name": "t", "settings": {"budget_s": 1.0}, "measure": [{"op": "all_reduce", "size": "64K"}]}
        assert run_in_process(tables, tmp_path / "run", 2)[0] == 0
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert points(tmp_path / "run")[0]["foreign_cores"] > 0.3
