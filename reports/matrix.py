"""The matrix of one-way rates between pairs of ranks, and which of its links are slow for their class."""

import statistics
from dataclasses import dataclass

import numpy as np

from commbench.results.metrics import busbw_GBps
from commbench.results.records import Sample
from commbench.suite.groups import MOST_RANKS_IN_PAIRS

SLOW = 0.7  # of what the best tenth of its class reach, from which on a link is named
MOST = 0.75  # of a rank's links, from which on the rank is named in their place
_KINDS = {"round": "pairs", "node": "node pairs", "rail": "rail pairs", "again": "rail pairs"}  # first word of a group
CLASSES = {"intra": "within a node", "inter": "between nodes"}


@dataclass(frozen=True)
class Matrix:
    """One-way rates between ranks: rate_GBps[i, j] from ranks[i] to ranks[j], nan where none was measured.

    share: of what the best tenth of its class reach; the class is "intra" or "inter" (scope[i, j]). Where one of a few
    nodes is slow most of their links are, so a median would be that of slow ones.
    """

    backend: str
    kind: str
    ranks: tuple[int, ...]
    rate_GBps: np.ndarray
    scope: np.ndarray
    size_bytes: int

    @property
    def reached(self) -> dict[str, tuple[float, float]]:
        """(median, best tenth) of each class, in GB/s."""
        known = {name: self.rate_GBps[self.scope == name] for name in CLASSES}
        return {
            name: (float(np.nanmedian(values)), float(np.nanquantile(values, 0.9)))
            for name, values in known.items()
            if np.isfinite(values).any()
        }

    @property
    def share(self) -> np.ndarray:
        shares = np.full(self.rate_GBps.shape, np.nan)
        for name, (_, best) in self.reached.items():
            shares[self.scope == name] = self.rate_GBps[self.scope == name] / best
        return shares


def matrices(samples: list[Sample]) -> list[Matrix]:
    """A matrix for each backend and kind of pairs ("pairs" of all ranks, "node pairs" of the first rank of each node,
    "rail pairs" of the ranks of a rail), from the p2p_bw rows of rounds; each entry is the median over launches at the
    largest size. None of worlds that a figure cannot show."""
    found = {}
    for sample in samples:
        point, rate = sample.point, busbw_GBps(sample)
        kind = _KINDS.get(point.group.split(" ")[0])
        drawn = point.world_size <= MOST_RANKS_IN_PAIRS and point.group.partition(": ")[2]
        if drawn and point.op == "p2p_bw" and kind and sample.status == "ok" and rate:
            key = point.backend, kind, point.size_bytes
            sender, receiver = point.members[point.root], point.members[1 - point.root]
            found.setdefault(key, {}).setdefault((sender, receiver), []).append((rate, point.scope))
    largest = {}
    for backend, kind, size in found:
        largest[backend, kind] = max(size, largest.get((backend, kind), 0))
    return [_matrix(backend, kind, size, found[backend, kind, size]) for (backend, kind), size in largest.items()]


def _matrix(backend: str, kind: str, size: int, pairs: dict) -> Matrix:
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    place = {rank: i for i, rank in enumerate(ranks)}
    rate, scope = np.full((len(ranks), len(ranks)), np.nan), np.full((len(ranks), len(ranks)), "", dtype="U8")
    for (sender, receiver), measured in pairs.items():
        at = place[sender], place[receiver]
        rate[at], scope[at] = statistics.median(value for value, _ in measured), measured[0][1]
    return Matrix(backend, kind, ranks, rate, scope, size)


def slow_ranks(matrix: Matrix) -> list[tuple[int, str]]:
    """(rank, class) where MOST of a rank's links of that class are slow in both or in one direction."""
    share, found = matrix.share, []
    for i, rank in enumerate(matrix.ranks):
        for name in CLASSES:
            lines = [share[i][matrix.scope[i] == name], share[:, i][matrix.scope[:, i] == name]]
            if any(line.size > 1 and np.mean(line < SLOW) >= MOST for line in lines):
                found.append((rank, name))
    return found


def slow_links(matrix: Matrix) -> list[tuple[int, int, float, float, str]]:
    """(from, to, GB/s, share of the best tenth of its class, class) of the links below SLOW, the slowest first."""
    share = matrix.share
    slow = [(float(share[i, j]), (i, j)) for i, j in np.argwhere(share < SLOW)]
    return [
        (matrix.ranks[i], matrix.ranks[j], float(matrix.rate_GBps[i, j]), value, str(matrix.scope[i, j]))
        for value, (i, j) in sorted(slow)
    ]
