"""The choice of an algorithm: the library's own by its name, or one of commbench's schedules as own:NAME.

The two families never mix: `ring` is the library's ring, `own:ring` is commbench's over its sends and receives.
"""

from commbench.ops import algorithms_nccl as nccl
from commbench.ops import algorithms_open_mpi as open_mpi
from commbench.ops.op import call_of
from commbench.schedules import catalogue
from commbench.schedules.catalogue import SCHEDULES
from commbench.world.dtypes import DTYPES

LIBRARY = "library"
OWN = "own:"
_NOT_OBSERVED = ("not observed", "not observed")


def parse(text: str) -> tuple[str, str]:
    """(algorithm, protocol) of "library", "ring", "ring/ll128" or "own:ring".

    Raises ValueError, naming what there is, for a name that no library and no schedule has.
    """
    name, slash, protocol = text.strip().lower().replace("-", "_").partition("/")
    own = {OWN + schedule for schedules in SCHEDULES.values() for schedule in schedules}
    tuned = {algorithm for _, algorithms in open_mpi.TUNED.values() for algorithm in algorithms}
    if name not in {LIBRARY, *nccl.ALGORITHMS, *tuned, *own}:
        raise ValueError(
            f"there is no algorithm {text!r}; there are library (the library's own choice); NCCL's "
            f"{', '.join(nccl.ALGORITHMS)}; Open MPI's {', '.join(sorted(tuned))}; "
            f"commbench's {', '.join(sorted(own - {OWN + 'nvls'}))}"
        )
    if not slash:
        return name, "default"
    if protocol not in nccl.PROTOCOLS:
        raise ValueError(f"there is no protocol {protocol!r}; NCCL has {', '.join(nccl.PROTOCOLS)}")
    if name == LIBRARY or name.startswith(OWN):
        raise ValueError(
            f"a protocol is chosen together with an algorithm of NCCL, as in ring/{protocol}; found {text!r}"
        )
    return name, protocol


def refusal(point, node_of: list[int]) -> str | None:
    """Why the algorithm that `point` asks for cannot be run, in one sentence; None where it can, as far as known.

    node_of[i] is the node of the group's rank i.
    """
    algorithm, op = point.algorithm, point.op
    if algorithm == LIBRARY:
        return None
    if algorithm.startswith(OWN):
        return catalogue.refusal(op, algorithm.removeprefix(OWN), node_of, point.in_place)
    if point.backend == "gloo":
        runs = algorithm in SCHEDULES.get(op, ()) and not catalogue.refusal(op, algorithm, node_of, point.in_place)
        own = f"; {OWN}{algorithm} runs commbench's" if runs else ""
        return f"Gloo has one algorithm for each collective and no way to choose{own}"
    if point.backend == "nccl":
        return nccl.refusal(op, algorithm, point.protocol, point.ranks, point.nodes)
    itemsize = DTYPES[point.dtype].itemsize
    return open_mpi.refusal(op, algorithm, point.protocol, call_of(point), itemsize, point.world_size)


def params(point, node_of: list[int], size_bytes: int) -> dict[str, int]:
    """What a schedule of commbench's own is built with; it stands in the point's params."""
    if not point.algorithm.startswith(OWN):
        return {}
    return catalogue.params(point.op, point.algorithm.removeprefix(OWN), node_of, size_bytes)


def environment(point) -> dict[str, str]:
    """The variables that ranks need from their start for `point` to run by the algorithm it asks for."""
    if point.status != "ok" or point.algorithm == LIBRARY or point.algorithm.startswith(OWN):
        return {}
    if point.backend == "nccl":
        return nccl.environment(point.algorithm, point.protocol)
    return open_mpi.environment(point.op, point.algorithm)


def seen(point, probed: dict) -> tuple[str, str]:
    """(algorithm, protocol) that a row may claim. `probed`: what a probe launch of the whole world saw.

    An algorithm of Open MPI reads "set: tuned/4 ring": the library has taken the parameter (world/forced.py asked it),
    which is not the same as having been watched.
    """
    if point.algorithm.startswith(OWN):
        return point.algorithm, "not observed"
    if point.backend == "mpi" and point.algorithm != LIBRARY:
        return f"set: tuned/{open_mpi.number(point.op, point.algorithm)} {point.algorithm}", "not observed"
    if point.group != "all":
        return _NOT_OBSERVED
    return tuple(probed.get(f"{point.op} {point.size_bytes}") or probed.get(point.op) or _NOT_OBSERVED)
