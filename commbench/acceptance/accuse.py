"""The culprits of a run, and how they are told to people and to programs."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from commbench.acceptance.culprits import NAMED, Isolation, Part, isolate
from commbench.acceptance.evidence import alone, meetings_of
from commbench.acceptance.links import by_chance, link, share_of, undetermined
from commbench.acceptance.ports import BAR, SIDES
from commbench.acceptance.switches import read_switches, switches_of
from commbench.acceptance.wording import sentence
from commbench.results.store import Run

_SHOWN = 4  # slow pairs in words


@dataclass(frozen=True)
class Accusation:
    """Who is slow in a run: within nodes (`alone` holds every node that was measured by itself) and between them, for
    each backend that was measured there."""

    alone: tuple[Part, ...]
    between: dict[str, Isolation]

    @property
    def culprits(self) -> list[Part]:
        """Those of whom it is sure enough, from both."""
        found = [part for part in self.alone if part.share < BAR and part.confidence >= NAMED]
        return found + [part for isolation in self.between.values() for part in isolation.culprits]

    @property
    def undetermined(self) -> bool:
        """Whether a pair is slow of which either end may be guilty."""
        return any(undetermined(isolation).size for isolation in self.between.values())

    @property
    def suspects(self) -> list[Part]:
        """Those whom too few figures accuse."""
        found = [part for part in self.alone if part.share < BAR and part.confidence < NAMED]
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
    return Accusation(tuple(alone(run)), between)


def lines(found: Accusation) -> list[str]:
    """Everything that a person should read, the culprits first; a sentence when nobody is slow."""
    told = [f"CULPRIT {sentence(part, healthy)}" for part, healthy in _all(found, True)]
    told += [f"suspect {sentence(part, healthy)}" for part, healthy in _all(found, False)]
    if not told:
        known = "no culprit: every part reaches what the others do"
        told = ["somebody is slow, and too few nodes met to tell who" if found.undetermined else known]
    for backend, isolation in found.between.items():
        told += _told(backend, isolation)
    return told


def _all(found: Accusation, named: bool):
    for part in found.alone:
        if part.share < BAR and (part.confidence >= NAMED) == named:
            yield part, None
    for isolation in found.between.values():
        for part in isolation.culprits if named else isolation.suspects:
            yield part, isolation.ports.healthy_GBps


def _told(backend: str, isolation: Isolation) -> list[str]:
    """How much was measured over a backend, and the pairs that no part explains."""
    ports, meetings = isolation.ports, isolation.ports.meetings
    rails = f" of {meetings.rails} rails" if meetings.rails > 1 else ""
    how_much = (
        f"{backend}: {len(meetings.rate_GBps)} one-way rates between {len(meetings.hosts)} nodes{rails}; "
        f"a healthy port reaches {ports.healthy_GBps:.3g} GB/s"
    )
    return [how_much, *unexplained(isolation)]


def unexplained(isolation: Isolation) -> list[str]:
    """Sentences on the slow pairs that no part explains."""
    slow, of = by_chance(isolation)
    told = []
    if slow.size:
        told.append(
            f"{slow.size} of {of} rates between good ports are slow, as flows are that share a link by chance: "
            + _pairs(isolation, slow)
        )
    either = undetermined(isolation)
    if either.size:
        told.append(f"neither end met a good partner, so either may be guilty: {_pairs(isolation, either)}")
    return told


def _pairs(isolation: Isolation, chosen: np.ndarray) -> str:
    share = share_of(isolation)
    names = [f"{link(isolation, k, ' to ')} {share[k]:.0%}" for k in chosen[:_SHOWN]]
    return ", ".join(names) + (f" and {len(chosen) - _SHOWN} more" if len(chosen) > _SHOWN else "")


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
