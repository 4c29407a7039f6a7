"""Where and with what a run was made, from its plan and the headers of its launches.

A header may be cut, old or made by hand, so every key may be missing, and what is missing is not shown.
"""

import shlex
from collections import Counter

from commbench.lab.told import lab_of, short
from commbench.results.store import Launch, Run
from commbench.units import format_bytes

_SETTINGS = ("environment", "conf_files")
_NOT_TOLD = ("host", "versions", "memory_available_bytes")  # told elsewhere, or different at each look
_LISTED = 64  # nodes of one kind whose cards are listed; the journal has all


def facts(run: Run) -> dict:
    """The header of the page. Nodes that differ in nothing but their name are shown once, under all their names."""
    launches = run.launches
    heads = [launch.header for launch in launches if launch.header]
    machines = _machines(launches)
    worlds = [head.get("world_size") for head in heads] or [point.world_size for point in run.plan.points()]
    return {
        "lab": short(lab) if (lab := lab_of(run)) else "",
        "command": shlex.join(map(str, run.plan.command)),
        "started": min((str(head["started_at"]) for head in heads if head.get("started_at")), default=""),
        "finished": max((str(x.end["finished_at"]) for x in launches if x.end.get("finished_at")), default=""),
        "world_sizes": list(dict.fromkeys(plain(ranks) for ranks in worlds if ranks)),
        "hosts": len({host for machine in machines for host in machine["hosts"]}),
        "versions": _versions(launches),
        "machines": machines,
        "ranks": _ranks(launches),
        "launches": _grid([_launch(launch) for launch in launches]),
        "notes": list(dict.fromkeys(plain(note) for head in heads for note in _list(head.get("notes")))),
    }


def plain(value) -> str:
    """Any JSON value as words."""
    if isinstance(value, dict):
        return ", ".join(f"{_words(key)}: {plain(part)}" for key, part in value.items() if part not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(plain(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _list(value) -> list:
    return value if isinstance(value, list) else []


def _dict(value) -> dict:
    return value if isinstance(value, dict) else {}


def _words(name) -> str:
    return str(name).replace("_", " ")


def _title(key) -> str:
    return _words(key).removesuffix(" bytes")  # _quantity gives the value its unit


def _versions(launches: tuple[Launch, ...]) -> list[tuple[str, list[str]]]:
    """(name, the distinct values over the launches), without what no launch knows."""
    found = {}
    for launch in launches:
        for name, value in _dict(launch.header.get("versions")).items():
            if plain(value):
                found.setdefault(_words(name), {})[plain(value)] = None
    return [(name, list(values)) for name, values in found.items()]


def _machines(launches: tuple[Launch, ...]) -> list[dict]:
    """Nodes that are alike, as one machine with all their names."""
    nodes: dict[str, dict] = {}
    for launch in launches:
        for node in filter(None, map(_dict, _list(launch.header.get("nodes")))):
            _complete(nodes.setdefault(plain(node.get("host")) or "unnamed", {}), node)
    alike: dict[str, dict[str, dict]] = {}
    for host, node in nodes.items():
        told = [_told(node), _gpus(node), node.get("conf_files"), [len(records) for records in _tables(node).values()]]
        alike.setdefault(repr(told), {})[host] = node
    return [_machine(group) for group in alike.values()]


def _complete(known: dict, node: dict) -> None:
    """Add what one launch says of a node: only NCCL lists GPUs, and settings may change from launch to launch."""
    for key, value in node.items():
        if key in _SETTINGS:
            for name, setting in _dict(value).items():
                known.setdefault(key, {}).setdefault(str(name), {})[plain(setting)] = None
        elif key not in _NOT_TOLD and plain(value):
            known.setdefault(key, value)


def _machine(nodes: dict[str, dict]) -> dict:
    """`lists`: GPUs, network cards and the like, a line each with its host. Settings come with all their values."""
    first = next(iter(nodes.values()))
    settings = {key: {} for key in _SETTINGS}
    for node in nodes.values():
        for key, found in settings.items():
            for name, values in node.get(key, {}).items():
                found.setdefault(name, {}).update(values)
    listed = list(nodes.items())[:_LISTED]
    lists = {
        key: _grid([{"host": host, **record} for host, node in listed for record in _tables(node).get(key, [])])
        for key in _tables(first)
    }
    return {
        "hosts": list(nodes),
        "listed": len(listed),
        "facts": _told(first),
        "gpus": _gpus(first),
        "lists": [(_words(key), grid) for key, grid in lists.items()],
        **{key: [(name, list(values)) for name, values in sorted(found.items())] for key, found in settings.items()},
    }


def _tables(node: dict) -> dict[str, list[dict]]:
    """The lists of records of a node: gpus, infiniband, net."""
    lists = {key: [item for item in _list(value) if isinstance(item, dict)] for key, value in node.items()}
    return {key: records for key, records in lists.items() if records}


def _told(node: dict) -> list[tuple[str, str]]:
    apart = (*_SETTINGS, *_tables(node))
    return [(_title(key), _quantity(key, value)) for key, value in node.items() if key not in apart]


def _gpus(node: dict) -> str:
    names = Counter(plain(gpu.get("name")) or "GPU without a name" for gpu in _tables(node).get("gpus", []))
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _quantity(key: str, value) -> str:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return format_bytes(value)
    return plain(value)


def _grid(records: list[dict]) -> dict:
    """Records as a table with the keys that any of them has a value for."""
    keys = dict.fromkeys(key for record in records for key, value in record.items() if plain(value))
    return {
        "heads": [_title(key) for key in keys],
        "lines": [[_quantity(key, record.get(key)) for key in keys] for record in records],
    }


def _ranks(launches: tuple[Launch, ...]) -> list[dict]:
    """The table of ranks of each launch; launches that placed their ranks alike share one."""
    alike = {}
    for launch in launches:
        ranks = [_dict(rank) for rank in _list(launch.header.get("ranks"))]
        ranks = [{key: value for key, value in rank.items() if key != "pid"} for rank in ranks]
        if ranks:
            alike.setdefault(repr(ranks), (ranks, []))[1].append(launch.path.name)
    return [{"launches": names, "count": len(ranks), **_grid(ranks)} for ranks, names in alike.values()]


def _launch(launch: Launch) -> dict:
    head, end = launch.header, launch.end
    rendezvous = _dict(head.get("rendezvous"))
    return {
        "journal": launch.path.name,
        "launch": plain(head.get("launch")),
        "backend": plain(head.get("backend")),
        "ranks": plain(head.get("world_size")),
        "rendezvous": ":".join(plain(rendezvous[key]) for key in ("address", "port") if rendezvous.get(key)),
        "started": plain(head.get("started_at")),
        "finished": plain(end.get("finished_at")),
        "rows": str(len(launch.samples)),
        "exit_code": plain(end.get("exit_code")),
        "how_it_ended": plain(end.get("reason")) if end else "no end record",
        "missing_ranks": plain(end.get("missing")),
        "at_point": plain(end.get("point")),
        "library": plain(head.get("library")),
    }
