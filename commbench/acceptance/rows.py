"""The rows of a run as a judge sees them: whose they are, a node's, a rail's, a link's or everyone's."""

from dataclasses import dataclass

from commbench.results.nccl_tests import one_line
from commbench.results.records import Sample
from commbench.results.store import Run

UNSEEN = "not observed"


@dataclass(frozen=True)
class Row:
    """A sample, the `subject` it says something about, and how many nodes it ran over. `assumed`: nobody told the
    nodes, so they were taken from the ranks of a full node."""

    sample: Sample
    subject: str
    nodes: int
    scope: str
    assumed: bool

    @property
    def algorithm(self) -> str:
        """What ran: as it was seen, else as it was asked for, else "not observed"."""
        seen, asked = self.sample.algorithm_seen, self.sample.point.algorithm
        return seen if seen != UNSEEN else asked if asked != "library" else UNSEEN


def rows_of(run: Run, per_node: int | None) -> list[Row]:
    """A row for each sample of more than one rank. `per_node`: ranks of a full node, for imports that tell no hosts."""
    hosts_of, guessed = {}, set()
    for launch in run.launches:
        hosts, keys = _hosts(launch.header), [(sample.point.id, sample.launch) for sample in launch.samples]
        hosts_of |= dict.fromkeys(keys, hosts)
        if _guessed(launch.header):
            guessed.update(keys)
    samples = [(s, (s.point.id, s.launch)) for s in run.samples() if s.point.ranks != 1]
    return [_row(s, hosts_of.get(key, {}), per_node, key in guessed) for s, key in samples]


def _guessed(header: dict) -> bool:
    """Whether an import has guessed the nodes from the ranks, which a profile knows better."""
    imported = header.get("imported")
    return isinstance(imported, dict) and imported.get("nodes_assumed") is True


def _hosts(header: dict) -> dict[int, str]:
    """{rank: host} as far as the header of a launch tells."""
    return {
        r["rank"]: one_line(r["host"]) for r in header.get("ranks", []) if "host" in r and type(r.get("rank")) is int
    }


def _row(sample: Sample, hosts: dict[int, str], per_node: int | None, guessed: bool) -> Row:
    point = sample.point
    nodes, scope = point.nodes, point.scope
    # An import of a table without hosts knows how many ranks there were, and no more.
    assumed = bool((guessed or not nodes) and per_node and point.ranks)
    if assumed:
        nodes = -(-point.ranks // per_node)
        scope = "intra" if nodes == 1 else "mixed"
    return Row(sample, _subject(point, hosts, nodes, scope), nodes, scope, assumed)


def _subject(point, hosts: dict[int, str], nodes: int, scope: str) -> str:
    group = one_line(point.group)
    if own := next((f"{what} {one_line(point.params[what])}" for what in ("nic", "rank") if what in point.params), ""):
        return own
    if point.kind == "p2p" and point.ranks == 2 and len(point.members) == 2:
        return _link(point, hosts)
    if not nodes:
        return group if group != "all" else f"{point.ranks} ranks" if point.ranks else "the run"
    if scope == "intra":
        return (
            hosts.get(point.members[0], group) if point.members and hosts else "the node" if group == "all" else group
        )
    if scope == "inter":
        return group if group != "all" else f"one rank of each of {nodes} nodes"
    return f"{nodes} nodes, {point.ranks} ranks" if group == "all" else f"{group} ({nodes} nodes)"


def _link(point, hosts: dict[int, str]) -> str:
    """The sender first, where there is one; both ends with their hosts."""
    ends = point.members if point.root in (-1, 0) else point.members[::-1]
    named = [f"rank {rank}" + (f" on {hosts[rank]}" if rank in hosts else "") for rank in ends]
    return (" -> " if point.root >= 0 else " <-> ").join(named)
