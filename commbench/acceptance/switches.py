"""Which nodes hang on which leaf switch: from Slurm's topology, or from a site's file of the same."""

import re
import tomllib
from pathlib import Path

from commbench.errors import UsageError
from commbench.launch.nodelist import expand_nodelist

_PAIR = re.compile(r"(\w+)=(\S+)")
_LARGEST_BYTES = 16 << 20


def switches_of(header: dict, hosts: tuple[str, ...]) -> dict[str, list[int]]:
    """The nodes of each leaf switch as Slurm has told them (SLURM_TOPOLOGY_ADDR of each node, "spine.leaf.node" of
    topology/tree); empty where it has not."""
    found = {}
    for node in header.get("nodes", []):
        told = node.get("environment")
        levels = str(told.get("SLURM_TOPOLOGY_ADDR", "") if isinstance(told, dict) else "").split(".")
        if len(levels) > 1 and node.get("host") in hosts:
            found.setdefault(".".join(levels[:-1]), []).append(hosts.index(node["host"]))
    return found


def read_switches(path: Path, hosts: tuple[str, ...]) -> dict[str, list[int]]:
    """The nodes (their place in `hosts`) of each leaf switch that a file names.

    Slurm's topology.conf (`SwitchName=leaf1 Nodes=node[1-32]`), or TOML with a table `switches`
    (`leaf1 = "node[1-32]"` or a list of such). Hosts that the file does not have are below no switch.
    Raises UsageError when it cannot be read, is neither, puts a node below two switches, or has none of the hosts.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST_BYTES + 1)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"topology file {path} cannot be read: {error}") from None
    if len(text) > _LARGEST_BYTES:
        raise UsageError(f"topology file {path} is larger than {_LARGEST_BYTES >> 20} MiB; that is no list of nodes")
    slurm = re.search(r"^\s*SwitchName=", text, re.MULTILINE | re.IGNORECASE)
    named = _slurm(text, path) if slurm else _toml(text, path)
    above = {}
    for switch, nodes in named.items():
        for node in nodes:
            if above.setdefault(node, switch) != switch:
                raise UsageError(f"topology file {path} puts {node} below {above[node]} and below {switch}")
    found = {}
    for number, host in enumerate(hosts):
        switch = above.get(host) or above.get(host.partition(".")[0])
        if switch:
            found.setdefault(switch, []).append(number)
    if not found:
        raise UsageError(f"topology file {path} has none of this run's nodes ({', '.join(hosts[:4])}, ...)")
    return found


def _names(nodes: str, path: Path) -> list[str]:
    try:
        return expand_nodelist(nodes)
    except UsageError as error:
        raise UsageError(f"topology file {path}: {str(error).partition('; set ')[0]}") from None


def _slurm(text: str, path: Path) -> dict[str, list[str]]:
    """Lines of topology.conf that name nodes; those that name switches only are the levels above."""
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        values = {key.lower(): value for key, value in _PAIR.findall(line.partition("#")[0])}
        if "switchname" in values and "nodes" in values:
            found.setdefault(values["switchname"], []).extend(_names(values["nodes"], path))
    return found


def _toml(text: str, path: Path) -> dict[str, list[str]]:
    try:
        tables = tomllib.loads(text).get("switches")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"topology file {path} has no line SwitchName=... and is no TOML: {error}") from None
    if not isinstance(tables, dict) or not tables:
        raise UsageError(f'topology file {path} has no table [switches] with lines such as leaf1 = "node[1-32]"')
    found = {}
    for switch, nodes in tables.items():
        nodes = [nodes] if isinstance(nodes, str) else nodes
        if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
            raise UsageError(f"topology file {path}: switches.{switch} is neither a node list nor a list of such")
        found[switch] = [name for node in nodes for name in _names(node, path)]
    return found
