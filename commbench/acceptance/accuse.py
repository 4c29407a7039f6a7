"""The culprits of a run, and how they are told to people and to programs."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from commbench.acceptance.culprits import NAMED, Isolation, Part, isolate
from commbench.acceptance.evidence import meetings_of, slow_alone
from commbench.acceptance.ports import BAR, SIDES
from commbench.acceptance.switches import read_switches, switches_of
from commbench.acceptance.wording import sentence
from commbench.results.store import Run

_SHOWN = 4  # slow pairs in words


@dataclass(frozen=True)
class Accusation:
    """Who is slow in a run: within nodes (`alone`) and between them, for each backend that was measured there."""

    alone: tuple[Part, ...]
    between: dict[str, Isolation]

    @property
    def culprits(self) -> list[Part]:
        """Those of whom it is sure enough, from both."""
        found = [part for part in self.alone if part.confidence >= NAMED]
        return found + [part for isolation in self.between.values() for part in isolation.culprits]

    @property
    def suspects(self) -> list[Part]:
        """Those whom too few figures accuse."""
        found = [part for part in self.alone if part.confidence < NAMED]
        return found + [part for isolation in self.between.values() for part in isolation.suspects]


def accuse(run: Run, topology: Path | None = None) -> Accusation:
    """The slow parts of `run`. `topology`: a file that names the leaf switches; else what Slurm has told the run.

    Raises UsageError for a topology file that cannot be used.
    """
    header = run.launches[-1].header if run.launches else {}
    between = {}
    for backend, meetings in meetings_of(run).items():
        switches = read_switches(topology, meetings.hosts) if topology else switches_of(header, meetings.hosts)
        between[backend] = isolate(meetings, switches)
    return Accusation(tuple(slow_alone(run)), between)


def lines(found: Accusation) -> list[str]:
    """Everything that a person should read, the culprits first; a sentence when nobody is slow."""
    told = [f"CULPRIT {sentence(part, healthy)}" for part, healthy in _all(found, True)]
    told += [f"suspect {sentence(part, healthy)}" for part, healthy in _all(found, False)]
    if not told:
        told = ["no culprit: every part reaches what the others do"]
    for backend, isolation in found.between.items():
        told += _told(backend, isolation)
    return told


def _all(found: Accusation, named: bool):
    for part in found.alone:
        if (part.confidence >= NAMED) == named:
            yield part, None
    for isolation in found.between.values():
        for part in isolation.culprits if named else isolation.suspects:
            yield part, isolation.ports.healthy_GBps


def _told(backend: str, isolation: Isolation) -> list[str]:
    """How much was measured over a backend, and the pairs that no part explains."""
    ports, meetings = isolation.ports, isolation.ports.meetings
    rails = f" of {meetings.rails} rails" if meetings.rails > 1 else ""
    told = [
        f"{backend}: {len(meetings.rate_GBps)} one-way rates between {len(meetings.hosts)} nodes{rails}; "
        f"a healthy port reaches {ports.healthy_GBps:.3g} GB/s"
    ]
    good = ports.good.reshape(-1)
    source_good, target_good = good[2 * meetings.src], good[2 * meetings.dst + 1]
    share = meetings.rate_GBps / ports.healthy_GBps
    by_chance = source_good & target_good & (share < BAR)
    if by_chance.any():
        told.append(
            f"{np.count_nonzero(by_chance)} of {np.count_nonzero(source_good & target_good)} rates between good ports "
            f"are slow, as flows are that share a link by chance: {_pairs(isolation, by_chance)}"
        )
    unknown = np.isnan(ports.share).reshape(-1)
    either = unknown[2 * meetings.src] & unknown[2 * meetings.dst + 1] & (share < BAR)
    if either.any():
        told.append(f"neither end met a good partner, so either may be guilty: {_pairs(isolation, either)}")
    return told


def _pairs(isolation: Isolation, chosen: np.ndarray) -> str:
    meetings, healthy = isolation.ports.meetings, isolation.ports.healthy_GBps
    order = np.flatnonzero(chosen)[np.argsort(meetings.rate_GBps[chosen])]
    share = meetings.rate_GBps / healthy
    names = [
        f"{_port(meetings, meetings.src[k])} to {_port(meetings, meetings.dst[k])} {share[k]:.0%}"
        for k in order[:_SHOWN]
    ]
    return ", ".join(names) + (f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else "")


def _port(meetings, port: int) -> str:
    rail = f" rail {port % meetings.rails}" if meetings.rails > 1 else ""
    return meetings.hosts[port // meetings.rails] + rail


def to_json(found: Accusation) -> dict:
    """The same for programs: parts, and for each backend the medians of each port by side, null where none is known."""
    return {
        "culprits": [asdict(part) for part in found.culprits],
        "suspects": [asdict(part) for part in found.suspects],
        "between": {
            backend: {
                "healthy_GBps": isolation.ports.healthy_GBps,
                "rates": len(isolation.ports.meetings.rate_GBps),
                "hosts": list(isolation.ports.meetings.hosts),
                **{
                    f"share_{side}": [
                        [None if np.isnan(value) else round(float(value), 4) for value in rails]
                        for rails in isolation.ports.share[:, :, i]
                    ]
                    for i, side in enumerate(SIDES)
                },
            }
            for backend, isolation in found.between.items()
        },
    }
