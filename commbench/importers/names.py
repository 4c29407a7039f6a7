"""What the name of a file says where its text does not: people write `all_reduce-16gpus-2nodes.log`."""

import re

from commbench.importers.found import believed

_BEGINS, _ENDS = r"(?<![a-z0-9.])", r"(?![a-z0-9])"
_NUMBER = rf"(?:{_BEGINS}(\d{{1,6}})|(?<=[-_ ])(\d{{1,6}})[-_ ])"  # 16gpus; 16-gpus, but not where a name begins
_RANKS = re.compile(
    rf"{_NUMBER}(?:ranks?|gpus?|procs?|processes|ep){_ENDS}|(?<![a-z0-9])(?:np|ranks|ep)[-_=]?(\d{{1,6}}){_ENDS}"
)
_NODES = re.compile(
    rf"{_NUMBER}(?:nodes?|hosts?){_ENDS}|{_BEGINS}(\d{{1,5}})n{_ENDS}|{_BEGINS}nodes[-_=]?(\d{{1,5}}){_ENDS}"
)
_EACH = re.compile(rf"{_BEGINS}(\d{{1,5}})x(\d{{1,3}})[-_ ]?(?:gpus?|ranks?){_ENDS}")  # 2x8gpus


def ranks_named(name: str) -> int:
    """The ranks that a file's name tells, 0 where it does not."""
    if each := _EACH.search(name.lower()):
        return believed(int(each[1]) * int(each[2]))
    return _first(_RANKS.search(name.lower()))


def nodes_named(name: str) -> int:
    """The nodes that a file's name tells, 0 where it does not."""
    if each := _EACH.search(name.lower()):
        return believed(each[1])
    return _first(_NODES.search(name.lower()))


def _first(found: re.Match | None) -> int:
    return believed(next(group for group in found.groups() if group)) if found else 0


def named_rccl(name: str) -> bool:
    """Whether a file's name says RCCL and not NCCL."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return any(word.startswith("rccl") for word in words) and not any(word.startswith("nccl") for word in words)
