"""Who reaches what between nodes, as tables: each node's ports, and the matrix of all pairs of a few nodes."""

from dataclasses import dataclass

import numpy as np

from commbench.acceptance.accuse import Accusation
from commbench.acceptance.culprits import Isolation
from commbench.acceptance.ports import BAR
from commbench.results.nccl_tests import one_line

MOST_NODES = 64  # of which every port is listed; of more nodes, those alone that are slow or not known
IN_MATRIX = 32


@dataclass(frozen=True)
class PortTable:
    """Shares of the healthy rate, None where none is known. rows: (host, one share for each column). matrix: (sending
    host, share to each receiving host, the sender's median); receivers: the median of each column."""

    backend: str
    healthy_GBps: float
    columns: tuple[str, ...]
    rows: list[tuple]
    left_out: int
    hosts: tuple[str, ...]
    matrix: list[tuple]
    receivers: list


def tables_of(found: Accusation | None) -> list[PortTable]:
    return [_table(backend, isolation) for backend, isolation in found.between.items()] if found else []


def _table(backend: str, isolation: Isolation) -> PortTable:
    ports, meetings = isolation.ports, isolation.ports.meetings
    hosts = tuple(map(one_line, meetings.hosts))
    share = ports.share.reshape(len(hosts), -1)  # rail 0 out, rail 0 in, rail 1 out, ...
    rail = [f"rail {i}, " if meetings.rails > 1 else "" for i in range(meetings.rails)]
    columns = tuple(f"{name}{side}" for name in rail for side in ("sends", "receives"))
    odd = ~(share >= BAR).all(axis=1)
    listed = range(len(hosts)) if len(hosts) <= MOST_NODES else np.flatnonzero(odd)[:MOST_NODES]
    rows = [(hosts[node], _known(share[node])) for node in listed]
    matrix, receivers = _matrix(isolation) if len(hosts) <= IN_MATRIX else ([], [])
    return PortTable(
        backend, ports.healthy_GBps, columns, rows, len(hosts) - len(rows), hosts, matrix, receivers,
    )  # fmt: skip


def _matrix(isolation: Isolation) -> tuple[list[tuple], list]:
    """Of each pair of nodes the slowest rail, one way."""
    meetings = isolation.ports.meetings
    count = len(meetings.hosts)
    found = np.full((count, count), np.inf)
    ends = meetings.src // meetings.rails, meetings.dst // meetings.rails
    np.minimum.at(found, ends, meetings.rate_GBps / isolation.ports.healthy_GBps)
    found[np.isinf(found)] = np.nan
    hosts = map(one_line, meetings.hosts)
    rows = [(host, _known(row), _median(row)) for host, row in zip(hosts, found)]
    return rows, [_median(column) for column in found.T]


def _known(values) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _median(values) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else None
