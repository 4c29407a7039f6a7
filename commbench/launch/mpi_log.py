"""Which collective component Open MPI chose for MPI_COMM_WORLD, read from coll_base_verbose.

A component that is enabled later takes over the functions it has, so the highest priority wins; what it lacks stays
with the next one below.
"""

import re

_WORLD = re.compile(r"coll:base:comm_select: new communicator: (\S+)")
_SELECTED = re.compile(r"coll:base:comm_select: selecting\s+(\w+), priority\s+(-?\d+), Enabled")
_HAN = {"all_reduce", "all_gather", "broadcast", "reduce", "gather", "scatter", "barrier"}  # coll_han.h
_TUNED = _HAN | {"reduce_scatter", "all_to_all", "all_to_all_v"}  # coll_tuned.h


def components(text: str, rank_tag: str | None = None) -> dict[str, list[str]]:
    """{"all_reduce": ["tuned", "not observed"]}: operation to component; the algorithm inside stays unobserved.

    Only lines between "new communicator: MPI_COMM_WORLD" and the next communicator count. `rank_tag` ("[vm:4711]")
    picks one process of a mixed log; by default the first that appears.
    """
    lines = [line for line in text.splitlines() if "coll:base:comm_select" in line]
    if not lines:
        return {}
    tag = rank_tag or lines[0].split(" ")[0]
    inside, enabled = False, []
    for line in lines:
        if not line.startswith(tag):
            continue
        new = _WORLD.search(line)
        if new:
            inside = new[1] == "MPI_COMM_WORLD"
        selected = _SELECTED.search(line)
        if inside and selected:
            enabled.append((int(selected[2]), selected[1]))
    seen = {}
    for op in _TUNED:
        for _, name in sorted(enabled, reverse=True):
            known = {"han": _HAN, "tuned": _TUNED}.get(name)
            if known is None:
                break  # a component whose functions are not listed here: nothing below it is certain
            if op in known:
                seen[op] = [f"{name} (component)", "not observed"]
                break
    return seen
