"""Were the cores our own while we timed? What other programs, and the hypervisor, took shows as foreign work."""

import os
import time
from pathlib import Path

_SHORTEST_S = 0.1  # /proc/stat counts in hundredths of a second


def used() -> tuple[float, float, float | None]:
    """(monotonic time, processor seconds of this process, processor seconds of the whole node) up to now."""
    return time.monotonic(), time.process_time(), node_seconds()


def node_seconds(procfs: Path = Path("/proc")) -> float | None:
    """Seconds that all cores together spent in user, nice and system, or lost to the hypervisor; None if not told.

    Interrupts are left out: the kernel moves the ranks' own bytes in them.
    """
    try:
        fields = (procfs / "stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _, _, _, _, steal = map(int, fields)
    except (OSError, ValueError):
        return None
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")


def foreign_cores(rows: list[tuple[int, float, float, float | None]]) -> float | None:
    """How many cores' worth of other work the busiest node had.

    `rows`: per rank its node and the differences of two `used`. None where the time was too short to tell.
    """
    worst = None
    for node in {row[0] for row in rows}:
        here = [row for row in rows if row[0] == node]
        _, wall_s, _, node_s = here[0]
        if node_s is None or wall_s < _SHORTEST_S:
            continue
        foreign = max(0.0, (node_s - sum(row[2] for row in here)) / wall_s)
        worst = foreign if worst is None else max(worst, foreign)
    return worst
