"""Samples from imported figures: sizes as nccl-tests counts them, and what is not known left open."""

from commbench.importers.found import Given
from commbench.importers.names import nodes_named
from commbench.ops import OPS
from commbench.results.records import Point, Sample
from commbench.world.dtypes import ALIASES, DTYPES

ONE_NODE = 8  # so many GPUs does a node of today have
ASSUMED = "no host is named; "
_LISTED = 4096  # ranks that a point lists one by one; more would make each record a long list
_PER_RANK = {"all_gather": ("send",), "gather": ("send",), "reduce_scatter": ("recv",), "scatter": ("recv",)}


def sample(
    op: str,
    backend: str,
    *,
    time_us: float | tuple[float, ...] | None = None,
    kind: str | None = None,
    ranks: int = 0,
    nodes: int = 0,
    size_bytes: int = 0,
    reported: dict | None = None,
    status: str = "ok",
    reason: str = "",
    wrong: int | None = None,
    error_max: float | None = None,
    clock: str = "host",
    warmup: int = 0,
    seen: tuple[str, str] = ("not observed", "not observed"),
    started_at: str = "",
    flops: float | None = None,
    **what,
) -> Sample:
    """One imported figure. `time_us`: what the tool printed as the time of one call, or None; `reported`: its figures
    as printed, with units in their names; `what`: the other fields of Point."""
    times = time_us if isinstance(time_us, tuple) else () if time_us is None else (time_us,)
    known = OPS.get(op)
    sends = {f"{way}_bytes": size_bytes for way in ("send", "recv")}
    for way in _PER_RANK.get(op, ()):
        sends[f"{way}_bytes"] = size_bytes // ranks if ranks else 0
    point = Point(
        op=op,
        backend=backend,
        size_bytes=size_bytes,
        kind=kind or (known.kind if known else "collective"),
        ranks=ranks,
        world_size=ranks,
        nodes=nodes,
        scope=what.pop("scope", scope(ranks, nodes)),
        members=what.pop("members", tuple(range(ranks)) if ranks <= _LISTED else ()),
        **{**sends, **what},
    )
    return Sample(
        point, 1, started_at, clock=clock, warmup=warmup, samples_us=times if status in ("ok", "wrong") else (),
        status=status, reason=reason, wrong=wrong, error_max=error_max, algorithm_seen=seen[0], protocol_seen=seen[1],
        stop_reason="imported", reported={k: v for k, v in (reported or {}).items() if v is not None}, flops=flops,
    )  # fmt: skip


def scope(ranks: int, nodes: int) -> str:
    if not nodes:
        return "unknown"
    return "intra" if nodes == 1 else "inter" if nodes == ranks else "mixed"


def dtype(name: str) -> str:
    """Our name of an element type, or the tool's own where there is none."""
    name = name.lower().removeprefix("mpi_").rstrip(".")
    name = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}.get(name, name)
    return ALIASES.get(name, name)


def itemsize(name: str) -> int | None:
    """Bytes of an element of a type as tools name it; None for one that is not known."""
    known = DTYPES.get(dtype(name))
    return known.itemsize if known else {"uint32": 4, "uint64": 8, "int16": 2, "uint16": 2}.get(name.lower())


def nodes_of(ranks: int, hosts: int, given: Given, gpus: bool = False) -> tuple[int, str]:
    """(nodes, 0 where not known; what to say of them). `gpus`: each rank has a GPU of its own, and a full node ONE_NODE
    of them: an assumption, which begins with ASSUMED."""
    if hosts or 0 < given.nodes <= (ranks or given.nodes):
        return hosts or given.nodes, ""
    if given.nodes:
        return 0, f"--nodes {given.nodes} is more than its {ranks} rank(s), so it was not taken"
    named = nodes_named(given.name)
    if 0 < named <= ranks:
        return named, f"the file's name says {named} node(s)"
    if gpus and 0 < ranks <= ONE_NODE:
        return 1, f"{ASSUMED}{ranks} GPU(s) are taken to be in one node (--nodes says otherwise)"
    if gpus and ranks and ranks % ONE_NODE == 0:
        nodes = ranks // ONE_NODE
        return nodes, f"{ASSUMED}{ranks} GPUs are taken to be in {nodes} nodes of {ONE_NODE} (--nodes says otherwise)"
    return 0, "no host is named, so the number of nodes is not known; give it with --nodes" if ranks else ""
