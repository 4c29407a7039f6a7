"""All pipeline schedules by name, and what each asks of its numbers."""

from commbench.schedules.stages import StageSchedule
from commbench.schedules.stages_1f1b import gpipe, interleaved, one_f_one_b
from commbench.schedules.stages_dualpipe import dualpipe, dualpipe_v
from commbench.schedules.stages_zero_bubble import zb_h1, zb_v

NAMES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe", "dualpipe_v")
MOST_CELLS = 400_000  # of a schedule that is built: a few seconds
_BUILD = {
    "gpipe": gpipe, "1f1b": one_f_one_b, "zb_h1": zb_h1, "zb_v": zb_v, "dualpipe": dualpipe, "dualpipe_v": dualpipe_v,
}  # fmt: skip


def problem(name: str, p: int, m: int, chunks: int = 2) -> str | None:
    """Why there is no such schedule for p ranks and m micro-batches, in a sentence; None where there is one.

    `chunks`: the stages on each rank, of the interleaved schedule alone.
    """
    if name not in NAMES:
        return f"pipeline schedule {name!r} is none of {', '.join(NAMES)}"
    if p < 1 or m < 1:
        return f"a pipeline has 1 rank or more and 1 micro-batch or more, not {p} and {m}"
    if name == "interleaved" and chunks < 2:
        return f"chunks {chunks}: the interleaved schedule has 2 stages or more on each rank; 1 is 1f1b"
    if p * m * 3 * (chunks if name == "interleaved" else 2) > MOST_CELLS:
        return f"{p} ranks with {m} micro-batches have more than {MOST_CELLS} cells; take fewer micro-batches"
    if name == "interleaved" and m % p:
        return f"interleaved takes {p} micro-batches at a time, so their number must be divided by {p}, not {m}"
    if name == "dualpipe" and (p % 2 or m % 2):
        return f"dualpipe runs from both ends: ranks and micro-batches must be even, not {p} and {m}"
    if name.startswith("dualpipe") and m < 2 * p:
        return f"{name} on {p} ranks needs {2 * p} micro-batches or more, not {m}"
    return None


def build(name: str, p: int, m: int, chunks: int = 2) -> StageSchedule:
    """The schedule `name` of p ranks and m micro-batches. Raises ValueError with the sentence of `problem`."""
    if sentence := problem(name, p, m, chunks):
        raise ValueError(sentence)
    return interleaved(p, m, chunks) if name == "interleaved" else _BUILD[name](p, m)
