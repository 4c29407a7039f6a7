"""What a lab is, before anything is made: its ranks with their namespaces and addresses, and its links. Pure.

Every rank has a network namespace with one port, eth0. In the rate form the ports of a node meet on the bridge of the
node's own namespace, whose up0 leads to the core's bridge: the node's uplink, which its ranks share. In the latency
form all ports end in our switch, which keeps the same links as clocks.
"""

import re
from dataclasses import asdict, dataclass, field

from commbench.errors import UsageError
from commbench.lab.quantities import payload_GBps

DIRECTIONS = ("out", "in")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?", re.ASCII)
_LINK = re.compile(r"(node|rank)(\d{1,5})", re.ASCII)
_MOST_RANKS = 200


@dataclass(frozen=True)
class Rank:
    """A rank's place. `host` is the name of its node, the same for all ranks of the node."""

    rank: int
    node: int
    local_rank: int
    namespace: str
    host: str
    address: str
    mac: str


@dataclass(frozen=True)
class Lab:
    """`nodes` nodes of `ranks_per_node` ranks. A rank's port has intra_bit_s, a node's uplink inter_bit_s, each way.

    delay_us and intra_delay_us are one-way delays between and within nodes in the latency form, None in the rate form.
    `changes` holds the links that were slowed or cut since: {"node1 out": {"bit_s": 1e7, "cut": False}}.
    """

    name: str
    nodes: int
    ranks_per_node: int
    intra_bit_s: float
    inter_bit_s: float
    delay_us: float | None = None
    intra_delay_us: float | None = None
    mtu: int = 1500
    changes: dict = field(default_factory=dict)

    @property
    def form(self) -> str:
        return "rate" if self.delay_us is None else "latency"

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node

    def host(self, node: int) -> str:
        return f"{self.name}-node{node}"

    def rank(self, rank: int) -> Rank:
        node, local = divmod(rank, self.ranks_per_node)
        return Rank(
            rank, node, local, f"commbench-{self.name}-rank{rank}", self.host(node), f"10.77.{node}.{10 + local}",
            f"02:77:00:00:{rank >> 8:02x}:{rank & 255:02x}",
        )  # fmt: skip

    def ranks(self) -> list[Rank]:
        return [self.rank(rank) for rank in range(self.size)]

    def node_namespace(self, node: int) -> str:
        return f"commbench-{self.name}-node{node}"

    @property
    def core_namespace(self) -> str:
        return f"commbench-{self.name}-core"

    def namespaces(self) -> list[str]:
        """All network namespaces that the lab makes."""
        switches = [self.node_namespace(node) for node in range(self.nodes)] + [self.core_namespace]
        return [rank.namespace for rank in self.ranks()] + (switches if self.form == "rate" else [])

    def links(self) -> list[str]:
        """The links that can be slowed or cut: the uplink of each node, the port of each rank."""
        return [f"node{n}" for n in range(self.nodes)] + [f"rank{r}" for r in range(self.size)]

    def set_bit_s(self, link: str) -> float:
        """The rate that `link` was built with."""
        return self.inter_bit_s if link.startswith("node") else self.intra_bit_s

    def state_of(self, link: str, direction: str) -> tuple[float, bool]:
        """(bits per second, cut) of a link now."""
        change = self.changes.get(f"{link} {direction}", {})
        return change.get("bit_s", self.set_bit_s(link)), change.get("cut", False)

    def path(self, a: int, b: int) -> list[tuple[str, str]]:
        """The links, with their directions, that data from rank a to rank b crosses in turn."""
        here, there = a // self.ranks_per_node, b // self.ranks_per_node
        between = [] if here == there else [(f"node{here}", "out"), (f"node{there}", "in")]
        return [(f"rank{a}", "out"), *between, (f"rank{b}", "in")]

    def payload_GBps(self, a: int, b: int) -> float:
        """GB/s of payload that the slowest link from rank a to rank b allows; 0 where one is cut."""
        states = [self.state_of(*hop) for hop in self.path(a, b)]
        return 0.0 if any(cut for _, cut in states) else payload_GBps(min(rate for rate, _ in states), self.mtu)

    def hosts_file(self) -> str:
        """The text of /etc/hosts inside the lab. A node's name is the address of its first rank."""
        lines = ["127.0.0.1 localhost"]
        for rank in self.ranks():
            own = rank.host + (f"-{rank.local_rank}" if rank.local_rank else "")
            # The second line is for callers with a dual-stack socket, who ask whose the mapped address is.
            lines += [f"{rank.address} {own}", f"::ffff:{rank.address} {own}.mapped"]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict:
        return asdict(self)


def check(lab: Lab) -> Lab:
    """`lab` itself. Raises UsageError where it cannot be built."""
    check_name(lab.name)
    if lab.nodes < 1 or lab.ranks_per_node < 1 or not 2 <= lab.size <= _MOST_RANKS:
        raise UsageError(
            f"{lab.nodes} nodes of {lab.ranks_per_node} ranks make no lab; it has 2 to {_MOST_RANKS} ranks in all"
        )
    if lab.inter_bit_s > lab.intra_bit_s:
        raise UsageError(
            "--inter is faster than --intra: what leaves a node comes through a rank's port, which would be the limit"
        )
    if not 576 <= lab.mtu <= 9000:
        raise UsageError(f"--mtu {lab.mtu}: a packet has 576 to 9000 bytes")
    return lab


def check_name(name: str) -> str:
    """`name` itself. Raises UsageError where it can be no lab's; it becomes part of paths and host names."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: a lab's name is 1 to 20 of a-z, 0-9 and -, and begins with a letter")
    return name


def check_link(lab: Lab, link: str) -> str:
    """`link` itself. Raises UsageError, saying which there are, where the lab has no such link."""
    match = _LINK.fullmatch(link)
    if match is None or int(match[2]) >= (lab.nodes if match[1] == "node" else lab.size):
        raise UsageError(
            f"lab {lab.name} has no link {link!r}; it has node0 to node{lab.nodes - 1} (a node's uplink) "
            f"and rank0 to rank{lab.size - 1} (a rank's port)"
        )
    return f"{match[1]}{int(match[2])}"
