"""From a [[measure]] of a layer to its points: every combination of its `set`, on every group of its split."""

from itertools import product

from commbench.errors import UsageError
from commbench.layers import load
from commbench.layers.layer import Layer, Place
from commbench.layers.wire import wire_bytes
from commbench.results.records import Point
from commbench.routing.named import parse
from commbench.shapes import read_shape
from commbench.suite.groups import NotHere, split_rounds

_READERS = {"model": read_shape, "routing": parse}  # options that are texts of a form of their own


def layer_steps(measure, backend: str, ranks: int, node_of: list[int]):
    """The steps of `measure` (suite/schema.py) for its layers; what cannot be is a point of status "skip".

    Raises UsageError for an option that a layer does not have, a value of another kind than its default, a word that
    is none of those it takes, a model or a routing that nobody knows: a slip of the pen, in which the rest of a sweep
    would run for nothing.
    """
    for name, split, dtype in product(measure.layer, _splits(measure, ranks), measure.dtype):
        record = load(name)
        keys, lists = zip(*_checked(record, measure.set).items())
        for values in product(*lists):
            params = dict(zip(keys, values)) | {"dtype": dtype}
            if isinstance(split, int):
                reason = f"degree {split} does not divide the {ranks} ranks of the world"
                yield (_skip(record, backend, ranks, params, f"DIV {split}", reason),)
                continue
            try:
                rounds = split_rounds(split, node_of[:ranks])
            except NotHere as none:
                yield (_skip(record, backend, ranks, params, split, str(none)),)
                continue
            for groups in rounds:
                points = [_point(record, backend, ranks, params, label, members, node_of) for label, members in groups]
                for status in ("ok", "skip"):
                    if step := tuple(p for p in points if p.status == status):
                        yield step


def _splits(measure, ranks: int) -> list[str | int]:
    """The splits of `measure`, a degree being groups of so many consecutive ranks; a number is one that cannot be."""
    if measure.degree is None:
        return measure.split
    return [d if ranks % d else "all" if d == ranks else f"DIV {d}" for d in measure.degree]


def _checked(record: Layer, given: dict) -> dict[str, list]:
    """A list of values for each option of the layer."""
    unknown = set(given) - set(record.options)
    if unknown:
        raise UsageError(
            f"layer {record.name} has no option {sorted(unknown)[0]!r}; it has {', '.join(record.options)}"
        )
    options = {}
    for key, default in record.options.items():
        options[key] = given.get(key, default)
        options[key] = options[key] if isinstance(options[key], list) else [options[key]]
        if not options[key]:
            raise UsageError(f"{key} of layer {record.name} is an empty list; name at least one value, or leave it out")
        if type(default) is str:
            options[key] = [str(value) if type(value) is int else value for value in options[key]]
        for value in options[key]:
            kinds = (int, float) if type(default) is float else (type(default),)
            if type(value) not in kinds:
                like = f", such as {default!r}"
                kind = {bool: "true or false", int: f"a whole number{like}", float: f"a number{like}",
                        str: f"a text{like}"}[type(default)]  # fmt: skip
                raise UsageError(f"{key} of layer {record.name} is {value!r}; it must be {kind}")
            if kinds[-1] in (int, float) and not 0 <= value < 2**40:
                raise UsageError(
                    f"{key} of layer {record.name} is {value!r}; it must be a number from 0 up, below 2^40"
                )
            if value not in record.words.get(key, (value,)):
                raise UsageError(f"{key} {value!r} of layer {record.name} is none of {', '.join(record.words[key])}")
            _READERS.get(key, str)(value)
    return options


def _point(record: Layer, backend, ranks, params, label, members, node_of) -> Point:
    n, nodes = len(members), tuple(node_of[rank] for rank in members)
    if params.get("per_node") == 0:  # the nodes that are there
        params = params | {"per_node": _ranks_per_node(nodes)}
    reason = _refusal(record, backend, params, n)
    if reason is not None:
        return _skip(record, backend, ranks, params, label, reason, members, nodes)
    place = Place(0, n)
    traffic = record.traffic(params, place)
    sizes = {op: n if "." not in op else len(record.grids(params, n)[op.partition(".")[0]][0]) for op in traffic}
    sent = received = round(
        sum(wire_bytes(op.rpartition(".")[2], size, sizes[op]) for op, (_, size) in traffic.items())
    )
    if record.moved is not None:
        sent, received = record.moved(params, place)
    return Point(
        op=record.name, kind="layer", backend=backend, size_bytes=int(sum(size for _, size in traffic.values())),
        params=params, group=label, members=tuple(members), ranks=n, world_size=ranks, scope=_scope(nodes),
        nodes=len(set(nodes)), send_bytes=sent, recv_bytes=received, dtype=params["dtype"],
    )  # fmt: skip


def _ranks_per_node(nodes) -> int:
    """Ranks of each node where all have as many and they follow one another, else 1: every rank a node of its own."""
    each = nodes.count(nodes[0])
    alike = all(len(set(nodes[i : i + each])) == 1 for i in range(0, len(nodes), each))
    return each if alike and len(nodes) == each * len(set(nodes)) else 1


def _refusal(record: Layer, backend: str, params: dict, n: int) -> str | None:
    if params["dtype"] not in record.dtypes:
        return f"{record.name} runs in {', '.join(record.dtypes)}, not in {params['dtype']}"
    if backend not in (known := record.backends(params)):
        return f"{record.name} with these options runs on {' and '.join(known)}, not on {backend}"
    try:
        problem = record.problem(params, n)
    except UsageError as error:
        return str(error)
    if problem is None and backend == "mpi" and params["dtype"] != "float32":
        if any("reduce" in op for op in record.traffic(params, Place(0, n))):
            return f"MPI has no datatype for sums of {params['dtype']}"
    return problem


def _scope(nodes) -> str:
    return "intra" if len(set(nodes)) == 1 else "inter" if len(set(nodes)) == len(nodes) else "mixed"


def _skip(record: Layer, backend, ranks, params, label, reason, members=(), nodes=(0,)) -> Point:
    return Point(
        op=record.name, kind="layer", backend=backend, size_bytes=0, params=params, group=label, members=tuple(members),
        ranks=len(members), world_size=ranks, scope=_scope(nodes), nodes=len(set(nodes)), dtype=params["dtype"],
        status="skip", reason=reason,
    )  # fmt: skip
