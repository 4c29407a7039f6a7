"""How long a schedule takes on a fabric that is not there, which links carry how much, and which one is the busiest.

The model. A rank works through its steps in order. A message begins when its sender and its receiver have both ended
their earlier steps (rendezvous, as a batched send/recv with a wait after each step does). It takes the latency of its
link class, once however many chunks it has, and the largest load of any resource it uses in that step. The load of a
resource is the sum of bytes / bandwidth of all messages of the step that pass through it; resources are

- within an NVLink domain the send port of the sender and the receive port of the receiver, one each per rank, and
- between domains the egress NIC of the sender and the ingress NIC of the receiver. Local rank l of a node uses
  NIC l * nics_per_node // ranks_per_node, so ranks may share one. It works beside the NVLink port: a ring of NCCL's
  for each NIC fills both at once.

A message to or from the switch moves at the in-switch rate of the rank's own port; the switch itself is no bottleneck
and adds for free. What a rank adds to its own data costs gamma times all bytes that it adds in the step, after they
arrived. A step of a rank ends when its messages and its additions have ended. Chunks are equal and may be fractions of
a byte, which is what makes closed forms exact.

The end times of a step are a max-plus linear map of those of the step before. Two shortcuts follow, both exact:
once every repetition of a block delays all ranks that talk to each other by the same amount, all later ones do; and
where all ranks that are `period` apart do the same, one period of ranks stands for all.
"""

from dataclasses import dataclass

import numpy as np

from commbench.errors import UsageError
from commbench.fabrics import Fabric
from commbench.schedules.schedule import Schedule, Step

CLASSES = ("intra", "inter", "in_switch")
_BYTES_PER_US = 1e3  # of 1 GB/s


@dataclass(frozen=True)
class Busy:
    """A resource: its name, the bytes it carries, and the share of the whole time in which it is occupied."""

    name: str
    bytes: float
    share: float


@dataclass(frozen=True)
class Simulation:
    """What a schedule does on a fabric. `link_bytes`: bytes over the links of each class, all ranks together.

    `rank_bytes`: the most that one rank sends. `busiest`: the resource that is occupied longest, None if none is.
    """

    time_us: float
    n_steps: int
    link_bytes: dict[str, float]
    rank_bytes: float
    busiest: Busy | None


def chunk_bytes(schedule: Schedule, size_bytes: float) -> float:
    """Bytes of a chunk when the operation has nccl-tests' size `size_bytes` (of all_to_all: one rank's send buffer)."""
    buffers = schedule.n_ranks if schedule.op == "all_to_all" else 1
    return size_bytes * buffers / schedule.n_chunks


def simulate(schedule: Schedule, fabric: Fabric, size_bytes: float, long: bool = False) -> Simulation:
    """Run `schedule` on `fabric`. `long`: every rank and every repetition one by one, without the two shortcuts.

    Raises UsageError when the schedule needs a switch that reduces and the fabric has none that joins all its ranks.
    """
    if schedule.switch and (fabric.in_switch is None or schedule.n_ranks > fabric.domain_ranks):
        found = f"one for {fabric.domain_ranks} ranks" if fabric.in_switch else "none"
        raise UsageError(
            f"{schedule.name} needs a switch that reduces among {schedule.n_ranks} ranks; {fabric.name} has {found}"
        )
    run = _Run(schedule, fabric, chunk_bytes(schedule, size_bytes), 0 if long else schedule.symmetry)
    for block in schedule.blocks:
        run.repeat([run.messages(one) for one in block.steps], block.times, long)
    return run.result()


@dataclass(frozen=True)
class _Messages:
    """The messages of a step, those of one period of ranks; columns of `used` are the four resources of a message."""

    src: np.ndarray
    dst: np.ndarray
    bytes: np.ndarray
    link: np.ndarray
    used: np.ndarray
    occupied_us: np.ndarray  # of each of its resources
    sent_us: np.ndarray  # from its beginning to its end at the sender
    kept_us: np.ndarray  # and to the end of the receiver's additions


class _Run:
    """A simulation under way: when each rank of a period ended its last step, and what each resource did so far.

    Resources are numbered: NICs out, NICs in, send ports, receive ports, and one that stands for none.
    """

    def __init__(self, schedule: Schedule, fabric: Fabric, chunk: float, symmetry: int):
        self.schedule, self.fabric, self.chunk = schedule, fabric, chunk
        self.n = schedule.n_ranks
        period = int(np.lcm(symmetry, fabric.domain_ranks)) if symmetry else self.n
        self.period = self.n if self.n % period else period
        links = [fabric.intra, fabric.inter, *([fabric.in_switch] if fabric.in_switch else [])]
        self.latency_us = np.array([link.latency_us for link in links])
        self.us_per_byte = np.array([1 / (link.bandwidth_GBps * _BYTES_PER_US) for link in links])
        self.end_us = np.zeros(self.period + 1)  # the last one is the switch
        self.n_nics = -(-self.period // fabric.ranks_per_node) * fabric.nics_per_node
        self.none = 2 * (self.n_nics + self.period)
        self.busy_us, self.busy_bytes, self.zeros = np.zeros((3, self.none + 1))
        self.sent_bytes = np.zeros(self.period + 1)
        self.link_bytes = np.zeros(len(CLASSES))
        self.known = {}

    def messages(self, one: Step) -> _Messages:
        """The messages of a step; steps of an all_to_all over many nodes differ in nothing but how far the node is."""
        if self.period == self.n:
            return self._messages(one)
        hop, domain = (one.dst - one.src) % self.n, self.fabric.domain_ranks
        far = (hop >= domain) & (hop <= self.n - domain)
        columns = one.src, np.where(far, hop % self.period - self.period, hop), one.count, one.reduce
        key = (one.every, *(column.tobytes() for column in columns))
        if key not in self.known:
            self.known[key] = self._messages(one)
        return self.known[key]

    def _messages(self, one: Step) -> _Messages:
        """Merge the rows of a step to messages, and work out how long each takes."""
        n, period, fabric = self.n, self.period, self.fabric
        src, dst, size, added = self._merged(one)
        between = src // fabric.domain_ranks != dst // fabric.domain_ranks
        link = np.where((src == n) | (dst == n), 2, between)
        src, dst = (np.where(rank == n, period, rank % period) for rank in (src, dst))
        used = self._used(src, dst, link == 1)
        occupied = size * self.us_per_byte[link]
        sent = self.latency_us[link] + self._sums(used, np.broadcast_to(occupied, used.shape)).max(axis=0)
        adding = fabric.gamma_us_per_byte * self._sums(dst, np.where(dst < period, added, 0))
        return _Messages(src, dst, size, link, used, occupied, sent, sent + np.where(added > 0, adding, 0))

    def _merged(self, one: Step) -> tuple[np.ndarray, ...]:
        """src, dst, bytes, and bytes to add, of all messages of a period."""
        n, src, dst = self.n, one.src, one.dst
        if one.every:
            back = src // one.every * one.every
            src, dst = src - back, (dst - back) % n
        key, row = np.unique(src * (n + 1) + dst, return_inverse=True)
        src, dst = np.divmod(key, n + 1)
        columns = [src, dst, np.bincount(row, one.count), np.bincount(row, one.count * one.reduce)]
        if one.every:
            by = np.arange(0, self.period, one.every)
            columns = [np.repeat(column, by.size) for column in columns]
            by = np.tile(by, src.size)
            columns[0], columns[1] = columns[0] + by, (columns[1] + by) % n
        src, dst, count, added = columns
        return src, dst, count * self.chunk, added * self.chunk

    def _used(self, src: np.ndarray, dst: np.ndarray, between: np.ndarray) -> np.ndarray:
        """The resources of each message: NIC out, NIC in, send port, receive port."""
        ports = 2 * self.n_nics
        return np.stack(
            [
                np.where(between, self._nic(src), self.none),
                np.where(between, self._nic(dst) + self.n_nics, self.none),
                np.where(between | (src == self.period), self.none, src + ports),
                np.where(between | (dst == self.period), self.none, dst + ports + self.period),
            ]
        )

    def _nic(self, rank: np.ndarray) -> np.ndarray:
        ranks, nics = self.fabric.ranks_per_node, self.fabric.nics_per_node
        return rank // ranks * nics + rank % ranks * nics // ranks

    def _sums(self, place: np.ndarray, amount: np.ndarray) -> np.ndarray:
        """For each element of `place`: the sum of all amounts at that place. Costs no more than there are elements."""
        np.add.at(self.zeros, place, amount)
        sums = np.where(place == self.none, 0, self.zeros[place])
        self.zeros[place] = 0
        return sums

    def repeat(self, steps: list[_Messages], times: int, long: bool) -> None:
        """Run `steps` in order `times` times, the last repetitions at once where all of them take equally long."""
        for one in steps:
            self._account(one, times)
        end_us, began = self.end_us, self.end_us.min()
        end_us -= began  # small numbers, so that equal delays are seen as equal
        for left in range(times - 1, -1, -1):
            before = end_us.copy()
            for one in steps:
                start = np.maximum(end_us[one.src], end_us[one.dst])
                np.maximum.at(end_us, one.src, start + one.sent_us)
                np.maximum.at(end_us, one.dst, start + one.kept_us)
            if left and not long and self._together(steps, end_us - before):
                end_us += left * (end_us - before)
                break
        end_us += began

    def _together(self, steps: list[_Messages], delay: np.ndarray) -> bool:
        """Whether any two ranks that talk to each other have the same delay, as then in all later repetitions."""
        rounding = 1e-12 * self.end_us.max()
        return all(np.abs(delay[one.src] - delay[one.dst]).max(initial=0) <= rounding for one in steps)

    def _account(self, one: _Messages, times: int) -> None:
        np.add.at(self.busy_us, one.used, times * np.broadcast_to(one.occupied_us, one.used.shape))
        np.add.at(self.sent_bytes, one.src, times * one.bytes)
        np.add.at(self.busy_bytes, one.used, times * np.broadcast_to(one.bytes, one.used.shape))
        self.link_bytes += np.bincount(one.link, one.bytes, len(CLASSES)) * times * (self.n // self.period)

    def result(self) -> Simulation:
        time_us, busy_us = float(self.end_us.max()), self.busy_us[: self.none]
        busiest = None
        if busy_us.any():
            most = int(busy_us.argmax())
            busiest = Busy(self._name(most), float(self.busy_bytes[most]), float(busy_us[most]) / time_us)
        carried = {name: float(amount) for name, amount in zip(CLASSES, self.link_bytes) if amount > 0}
        return Simulation(time_us, self.schedule.n_steps, carried, float(self.sent_bytes[:-1].max()), busiest)

    def _name(self, resource: int) -> str:
        if resource >= 2 * self.n_nics:
            receiving, rank = divmod(resource - 2 * self.n_nics, self.period)
            return f"rank {rank} {'receiving' if receiving else 'sending'}"
        inward, nic = divmod(resource, self.n_nics)
        node, nic = divmod(nic, self.fabric.nics_per_node)
        return f"node {node} NIC {nic} {'in' if inward else 'out'}"
