"""A run tells that it was made on a lab, so that nobody takes its figures for a real machine's."""

import os

from commbench.errors import CommbenchError
from commbench.lab.layout import Lab, check
from commbench.lab.quantities import format_rate
from commbench.lab.state import load
from commbench.results.store import Run

VARIABLE = "COMMBENCH_LAB"  # its name, in the environment of its ranks


def lab_here() -> Lab | None:
    """The lab that this process is a rank of, its links as they are now; None on a real machine."""
    name = os.environ.get(VARIABLE)
    found = load(name) if name else None
    return found and found[0]


def lab_of(run: Run) -> Lab | None:
    """The lab that a run was made on, as the first of its headers tells that does; None for a real machine."""
    return next(filter(None, (_lab(launch.header.get("lab")) for launch in run.launches)), None)


def _lab(data) -> Lab | None:
    try:
        lab = check(Lab(**data))
        return lab if 0 < lab.inter_bit_s <= lab.intra_bit_s < float("inf") else None
    except (TypeError, CommbenchError):  # no lab, or made by hand
        return None


def short(lab: Lab) -> str:
    """The lab in a few words: its name, form, and both set rates."""
    return f"lab {lab.name}, {lab.form} form, {format_rate(lab.intra_bit_s)} : {format_rate(lab.inter_bit_s)}"


def sentence(lab: Lab) -> str:
    """What stands in the header's notes: the rates that were set, its form, and what was changed since."""
    told = [
        f"an emulated cluster, no real machine: lab {lab.name} ({lab.form} form), {lab.nodes} node(s) of "
        f"{lab.ranks_per_node} rank(s)"
    ]
    for where, bit_s, delay_us in (
        ("within a node", lab.intra_bit_s, lab.intra_delay_us),
        ("between nodes", lab.inter_bit_s, lab.delay_us),
    ):
        told.append(f"{format_rate(bit_s)} {where}" + (f" with {delay_us / 1e3:g} ms one way" if delay_us else ""))
    told += [f"{link} {'cut' if now['cut'] else format_rate(now['bit_s'])}" for link, now in lab.changes.items()]
    return ", ".join(told)


def set_ratio(lab: Lab | None) -> float | None:
    """The set rate within a node over that between nodes; None without a lab, and where a link was changed."""
    return lab.intra_bit_s / lab.inter_bit_s if lab and not lab.changes else None
