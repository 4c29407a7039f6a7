"""Where and with what a run was made, from its plan and the headers of its launches.

A header may be cut, old or made by hand, so every key may be missing, and what is missing is not shown.
"""

import shlex
from collections import Counter

from commbench.results.store import Launch, Run
from commbench.units import format_bytes

_LISTS_OF_NODE = ("gpus", "nics")
_TEXTS_OF_NODE = ("conf_files", "environment")


def facts(run: Run) -> dict:
    """The header of the page. Nodes that differ in nothing but their name are shown once, under all their names."""
    launches = run.launches
    heads = [launch.header for launch in launches if launch.header]
    machines = _machines(launches)
    worlds = [head.get("world_size") for head in heads] or [point.world_size for point in run.plan.points()]
    return {
        "command": shlex.join(map(str, run.plan.command)),
        "started": min((str(head["started_at"]) for head in heads if head.get("started_at")), default=""),
        "finished": max((str(l.end["finished_at"]) for l in launches if l.end.get("finished_at")), default=""),
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
        return ", ".join(f"{_words(key)} {plain(part)}" for key, part in value.items() if part not in (None, ""))
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
    """Nodes that are alike, as one machine with all their names; `launches` where it was not seen in all of them.

    What one launch knows of a node (its GPUs under NCCL) completes what another left empty; where two launches
    contradict each other, such as after a changed conf file, both stand.
    """
    seen: dict[str, list[tuple[dict, dict]]] = {}  # host -> [(what, the launches that saw it)]
    for launch in launches:
        for node in _list(launch.header.get("nodes")):
            what = {key: value for key, value in _dict(node).items() if key not in ("host", "versions") and value}
            states = seen.setdefault(plain(_dict(node).get("host")) or "unnamed", [])
            for known, names in states:
                if all(known.get(key, value) == value for key, value in what.items()):
                    known.update(what)
                    names[launch.path.name] = None
                    break
            else:
                states.append((what, {launch.path.name: None}))
    alike: dict[str, tuple[dict, list, dict]] = {}
    for host, states in seen.items():
        for what, names in states:
            alike.setdefault(repr((sorted(what.items(), key=str), list(names))), (what, list(names), {}))[2][host] = None
    everywhere = [launch.path.name for launch in launches if launch.header]
    return [_machine(what, list(hosts)) | {"launches": [] if names == everywhere else names} for what, names, hosts in alike.values()]


def _machine(what: dict, hosts: list[str]) -> dict:
    apart = (*_LISTS_OF_NODE, *_TEXTS_OF_NODE)
    gpus = Counter(plain(gpu.get("name", gpu) if isinstance(gpu, dict) else gpu) for gpu in _list(what.get("gpus")))
    return {
        "hosts": hosts,
        "facts": [(_title(key), _quantity(key, value)) for key, value in what.items() if key not in apart],
        "gpus": ", ".join(f"{count} × {name}" for name, count in gpus.items()),
        "lists": [(name, _grid(_list(what.get(name)))) for name in _LISTS_OF_NODE if _list(what.get(name))],
        "conf_files": [(str(path), plain(text)) for path, text in _dict(what.get("conf_files")).items()],
        "environment": [(str(name), plain(value)) for name, value in sorted(_dict(what.get("environment")).items())],
    }


def _quantity(key: str, value) -> str:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return format_bytes(value)
    return plain(value)


def _grid(items: list) -> dict:
    """Records as a table with the keys that any of them has; anything else as a table of one column."""
    records = [item if isinstance(item, dict) else {"name": item} for item in items]
    keys = [key for key in dict.fromkeys(k for record in records for k in record) if any(plain(r.get(key)) for r in records)]
    return {
        "heads": [_title(key) for key in keys],
        "lines": [[_quantity(key, record.get(key)) for key in keys] for record in records],
    }


def _ranks(launches: tuple[Launch, ...]) -> list[dict]:
    """The table of ranks of each launch; launches that placed their ranks alike share one."""
    alike = {}
    for launch in launches:
        ranks = [{k: v for k, v in r.items() if k != "pid"} for r in _list(launch.header.get("ranks")) if isinstance(r, dict)]
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
    }
